// GNU vector types: the compiler maps them to the registers of the class (plain C++ gets SSE2 halves).
#include "engine/ops/integer/qconv_winograd.h"

#include <cstring>

namespace pare::PARE_SIMD {
namespace {

constexpr int kLane = 16;  // channels

using Words = std::int16_t __attribute__((vector_size(32)));
using Signed = std::int8_t __attribute__((vector_size(16)));
using Unsigned = std::uint8_t __attribute__((vector_size(16)));

// Unsigned sums: they may wrap on their way to 4 y.
constexpr int kColumns = PARE_SIMD_LEVEL == 2 ? 16 : 8;
using Sums = std::uint32_t __attribute__((vector_size(kColumns * 4)));
using Shifted = std::int32_t __attribute__((vector_size(kColumns * 4)));

template <typename Vector, typename T>
PARE_INLINE void load(const T* p, Vector& v) {
  std::memcpy(&v, p, sizeof v);
}

template <typename Codes>
PARE_INLINE void transform_codes(const std::uint8_t* const* x, std::int64_t at, std::int32_t zero,
                                 std::int16_t* v, std::int64_t entry_stride) {
  Words t[16];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {  // columns
    Words d[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Codes codes;
      load(x[4 * i + j] + at, codes);
      d[i] = __builtin_convertvector(codes, Words);
    }
    t[j] = d[0] - d[2];
    t[4 + j] = d[1] + d[2];
    t[8 + j] = d[2] - d[1];
    t[12 + j] = d[1] - d[3];
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // rows
    const Words* d = t + 4 * i;
    Words out[4] = {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
    // The transform of a constant is zero but for one entry, so that is where the zero point leaves.
    if (i == 1) out[1] -= static_cast<std::int16_t>(4 * zero);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) std::memcpy(v + (4 * i + j) * entry_stride, &out[j], sizeof out[j]);
  }
}

template <typename Codes>
PARE_INLINE void transform_channels(const std::uint8_t* const* x, std::int32_t zero, std::int64_t channels,
                                    std::int16_t* v, std::int64_t entry_stride) {
  std::int64_t c = 0;
  for (; c + kLane <= channels; c += kLane) transform_codes<Codes>(x, c, zero, v + c, entry_stride);
  if (c == channels) return;
  std::uint8_t part[16][kLane];
  const std::uint8_t* from[16];
  for (int i = 0; i < 16; ++i) {
    std::memset(part[i], zero, kLane);
    std::memcpy(part[i], x[i] + c, static_cast<std::size_t>(channels - c));
    from[i] = part[i];
  }
  transform_codes<Codes>(from, 0, zero, v + c, entry_stride);
}

}  // namespace

void winograd_input(const std::uint8_t* const* x, bool is_signed, std::int32_t zero, std::int64_t channels,
                    std::int16_t* v, std::int64_t entry_stride) {
  if (is_signed)
    transform_channels<Signed>(x, zero, channels, v, entry_stride);
  else
    transform_channels<Unsigned>(x, zero, channels, v, entry_stride);
}

void winograd_output(const std::int32_t* m, std::int64_t entry_stride, std::int32_t* y, int columns) {
  for (int at = 0; at < columns; at += kColumns) {
    Sums r[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      Sums m0, m1, m2, m3;
      load(m + j * entry_stride + at, m0);
      load(m + (4 + j) * entry_stride + at, m1);
      load(m + (8 + j) * entry_stride + at, m2);
      load(m + (12 + j) * entry_stride + at, m3);
      r[0][j] = m0 + m1 + m2;
      r[1][j] = m1 - m2 - m3;
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Shifted left = reinterpret_cast<Shifted>(r[i][0] + r[i][1] + r[i][2]) >> 2;
      const Shifted right = reinterpret_cast<Shifted>(r[i][1] - r[i][2] - r[i][3]) >> 2;
      std::memcpy(y + 2 * i * columns + at, &left, sizeof left);
      std::memcpy(y + (2 * i + 1) * columns + at, &right, sizeof right);
    }
  }
}

}  // namespace pare::PARE_SIMD
