#include "engine/base/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "avx512_vnni", "amx"};

// Linux keeps AMX tile state off until a process asks for it (arch_prctl ARCH_REQ_XCOMP_PERM).
bool amx_permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx_int8() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d >> 24 & 1) != 0 && (d >> 25 & 1) != 0 && amx_permitted();
}

bool has_f16c() {  // clang 14 has no name for it in __builtin_cpu_supports
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return Isa::kScalar;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::kAvx512;
  return has_amx_int8() ? Isa::kAmx : Isa::kAvx512Vnni;
}

std::atomic<int> pinned{-1};

}  // namespace

Isa best_isa() {
  static const Isa best = detect();
  return best;
}

Isa isa() {
  const int value = pinned.load(std::memory_order_relaxed);
  return value < 0 ? best_isa() : static_cast<Isa>(value);
}

void set_isa(Isa isa) {
  if (isa > best_isa())
    throw make_error(ErrorCode::kUsage, "this processor has no {}", name(isa))
        .hint(fmt::format("its best class is {}", name(best_isa())));
  pinned.store(static_cast<int>(isa));
}

const char* name(Isa isa) { return kNames[static_cast<int>(isa)]; }

Isa isa_from_name(const std::string& text) {
  for (int i = 0; i < 5; ++i)
    if (text == kNames[i]) return static_cast<Isa>(i);
  throw make_error(ErrorCode::kUsage, "unknown instruction class '{}'", text)
      .hint("one of scalar, avx2, avx512, avx512_vnni, amx");
}

const char* reproducibility_class(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "scalar";
}

}  // namespace pare
