#include "engine/ops/integer/qcodes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/integer/qfinish.h"

namespace pare::qcodes {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements that are worth a thread
constexpr std::int64_t kChunk = 1024;

bool is_code(const TensorView& t) { return t.dtype == DType::kI8 || t.dtype == DType::kU8; }

std::string lookup_why_not(const OpCall& call) {
  if (!is_code(call.in[0]) || !is_code(call.out[0])) return "x and y are not both int8 or uint8";
  const TensorView& table = call.input(1);
  return table.dtype == DType::kU8 && table.data != nullptr && table.size() == 256
             ? ""
             : "the table is not 256 constant uint8";
}

void lookup(const std::uint8_t* x, const std::uint8_t* table, std::uint8_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}

void lookup_run(const OpCall& call) {
  call.pool->parallel_for(call.in[0].size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    lookup(call.in[0].as<std::uint8_t>() + begin, call.in[1].as<std::uint8_t>(),
           call.out[0].mut<std::uint8_t>() + begin, end - begin);
  });
}

void lookup_reference(const OpCall& call) {
  lookup(call.in[0].as<std::uint8_t>(), call.in[1].as<std::uint8_t>(), call.out[0].mut<std::uint8_t>(),
         call.in[0].size());
}

enum AddSlot : int { kA, kAScale, kAZero, kB, kBScale, kBZero, kYScale, kYZero };

std::string add_why_not(const OpCall& call) {
  for (const int slot : {kA, kB, kYZero})
    if (!is_code(call.input(slot))) return "operands and result are not all int8 or uint8";
  for (const int slot : {kAScale, kBScale, kYScale}) {
    const TensorView& scale = call.input(slot);
    if (scale.dtype != DType::kF32 || scale.data == nullptr || scale.size() != 1)
      return "a scale is not one constant float32";
  }
  const std::pair<int, DType> zeros[] = {
      {kAZero, call.input(kA).dtype}, {kBZero, call.input(kB).dtype}, {kYZero, call.out[0].dtype}};
  for (const auto& [slot, type] : zeros) {
    const TensorView& zero = call.input(slot);
    if (zero.present() && (zero.dtype != type || zero.data == nullptr || zero.size() != 1))
      return "a zero point is not one constant of its type";
  }
  if (call.input(kA).dims != call.input(kB).dims || call.input(kA).dims != call.out[0].dims)
    return "operands and result differ in shape";
  Activation activation;
  return read_activation(*call.node, activation) ? "" : "unknown activation";
}

std::int32_t code(const TensorView& t, std::int64_t i) {
  return t.dtype == DType::kI8 ? t.as<std::int8_t>()[i] : t.as<std::uint8_t>()[i];
}
std::int32_t zero_of(const OpCall& call, int slot) { return call.has(slot) ? code(call.input(slot), 0) : 0; }

void add_run(const OpCall& call) {
  const TensorView &a = call.input(kA), &b = call.input(kB);
  const std::vector<float> scale(kChunk, *call.input(kAScale).as<float>());
  QFinish f;
  f.scale = scale.data();
  f.residual_type = b.dtype;
  f.residual_scale = *call.input(kBScale).as<float>();
  f.residual_zero = zero_of(call, kBZero);
  read_activation(*call.node, f.activation);
  f.y_type = call.out[0].dtype;
  f.y_scale = *call.input(kYScale).as<float>();
  f.y_zero = zero_of(call, kYZero);
  const std::int32_t za = zero_of(call, kAZero);
  const auto finish = PARE_SIMD_PICK(q_finish);
  const auto widen = [za](const auto* codes, std::int32_t* acc, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] = codes[i] - za;
  };
  call.pool->parallel_for(a.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::int32_t acc[kChunk];
    QFinish part = f;
    for (std::int64_t at = begin; at < end; at += kChunk) {
      const std::int64_t n = std::min(kChunk, end - at);
      if (a.dtype == DType::kI8)
        widen(a.as<std::int8_t>() + at, acc, n);
      else
        widen(a.as<std::uint8_t>() + at, acc, n);
      part.residual = b.as<std::uint8_t>() + at;
      part.y = call.out[0].mut<std::uint8_t>() + at;
      finish(part, acc, 0, 0, 1, 0, n);
    }
  });
}

void add_reference(const OpCall& call) {
  const float sa = *call.input(kAScale).as<float>(), sb = *call.input(kBScale).as<float>();
  const float sy = *call.input(kYScale).as<float>();
  const std::int32_t za = zero_of(call, kAZero), zb = zero_of(call, kBZero), zy = zero_of(call, kYZero);
  Activation activation;
  read_activation(*call.node, activation);
  const float low = call.out[0].dtype == DType::kI8 ? -128.0f : 0.0f;
  for (std::int64_t i = 0; i < call.out[0].size(); ++i) {
    const float left = static_cast<float>(code(call.input(kA), i) - za) * sa;
    const float right = static_cast<float>(code(call.input(kB), i) - zb) * sb;
    const auto v = static_cast<float>(activation(static_cast<double>(left + right)));
    const float q = std::nearbyint(v / sy) + static_cast<float>(zy);
    const float clamped = std::isnan(v / sy) ? static_cast<float>(zy) : std::clamp(q, low, low + 255.0f);
    call.out[0].mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(clamped));
  }
}

}  // namespace

Kernel lookup_kernel() {
  return {"pare", "QLookup", Backend::kCpu, "pare.QLookup/cpu:table", lookup_why_not, nullptr, lookup_run};
}

Kernel add_kernel() {
  return {"pare", "QAdd", Backend::kCpu, "pare.QAdd/cpu:finish", add_why_not, nullptr, add_run};
}

Kernel lookup_ref_kernel() {
  return {"pare",         "QLookup", Backend::kCpu,   "pare.QLookup/cpu:ref",
          lookup_why_not, nullptr,   lookup_reference};
}

Kernel add_ref_kernel() {
  return {"pare", "QAdd", Backend::kCpu, "pare.QAdd/cpu:ref", add_why_not, nullptr, add_reference};
}

}  // namespace pare::qcodes
