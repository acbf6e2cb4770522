#include "engine/numeric/pack.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/numeric/row_kernels.h"

namespace pare {

void pack_codes(int bits, const std::uint8_t* codes, void* packed, std::int64_t n) {
  PARE_ASSERT(bits == 2 || bits == 4 || bits == 8);
  if (n <= 0) return;
  auto* out = static_cast<std::uint8_t*>(packed);
  if (bits == 8) {
    std::memcpy(out, codes, static_cast<std::size_t>(n));
    return;
  }
  const int per_byte = 8 / bits;
  const std::int64_t whole = n / per_byte;
  (bits == 4 ? row_kernels().pack4 : row_kernels().pack2)(codes, out, whole);
  unsigned last = 0;
  for (std::int64_t i = whole * per_byte; i < n; ++i)
    last |= (codes[i] & ((1u << bits) - 1)) << (i % per_byte * bits);
  if (n % per_byte != 0) out[whole] = static_cast<std::uint8_t>(last);
}

void unpack_codes(int bits, const void* packed, std::uint8_t* codes, std::int64_t n) {
  PARE_ASSERT(bits == 2 || bits == 4 || bits == 8);
  if (n <= 0) return;
  const auto* in = static_cast<const std::uint8_t*>(packed);
  if (bits == 8) {
    std::memcpy(codes, in, static_cast<std::size_t>(n));
    return;
  }
  const int per_byte = 8 / bits;
  const std::int64_t whole = n / per_byte;
  (bits == 4 ? row_kernels().unpack4 : row_kernels().unpack2)(in, codes, whole);
  for (std::int64_t i = whole * per_byte; i < n; ++i) codes[i] = packed_code(bits, in, i);
}

}  // namespace pare
