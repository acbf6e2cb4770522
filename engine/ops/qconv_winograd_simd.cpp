// Plain loops over 16 channels, which the compiler turns into vectors of the class.
#include "engine/ops/qconv_winograd.h"

#include <cstring>

namespace pare::PARE_SIMD {
namespace {

constexpr int kLane = 16;

template <typename Code>
PARE_INLINE void transform_codes(const Code* const* x, std::int32_t zero, std::int16_t (*v)[kLane]) {
  std::int16_t d[16][kLane];
  for (int i = 0; i < 16; ++i)
    for (int c = 0; c < kLane; ++c) d[i][c] = x[i][c];
  for (int j = 0; j < 4; ++j) {  // columns
    for (int c = 0; c < kLane; ++c) {
      const std::int16_t d0 = d[j][c], d1 = d[4 + j][c], d2 = d[8 + j][c], d3 = d[12 + j][c];
      d[j][c] = static_cast<std::int16_t>(d0 - d2);
      d[4 + j][c] = static_cast<std::int16_t>(d1 + d2);
      d[8 + j][c] = static_cast<std::int16_t>(d2 - d1);
      d[12 + j][c] = static_cast<std::int16_t>(d1 - d3);
    }
  }
  for (int i = 0; i < 16; i += 4) {  // rows
    for (int c = 0; c < kLane; ++c) {
      const std::int16_t d0 = d[i][c], d1 = d[i + 1][c], d2 = d[i + 2][c], d3 = d[i + 3][c];
      v[i][c] = static_cast<std::int16_t>(d0 - d2);
      v[i + 1][c] = static_cast<std::int16_t>(d1 + d2);
      v[i + 2][c] = static_cast<std::int16_t>(d2 - d1);
      v[i + 3][c] = static_cast<std::int16_t>(d1 - d3);
    }
  }
  // The transform of a constant is zero but for one entry, so that is where the zero point leaves.
  for (int c = 0; c < kLane; ++c) v[5][c] = static_cast<std::int16_t>(v[5][c] - 4 * zero);
}

}  // namespace

void winograd_input(const std::uint8_t* const* x, std::int64_t shift, bool is_signed, std::int32_t zero,
                    int channels, std::int16_t* v, std::int64_t entry_stride) {
  std::uint8_t part[16][kLane];
  const std::uint8_t* from[16];
  for (int i = 0; i < 16; ++i) {
    from[i] = x[i] + shift;
    if (channels == kLane) continue;
    std::memset(part[i], zero, kLane);
    std::memcpy(part[i], from[i], static_cast<std::size_t>(channels));
    from[i] = part[i];
  }
  std::int16_t out[16][kLane];
  if (is_signed) {
    const std::int8_t* codes[16];
    for (int i = 0; i < 16; ++i) codes[i] = reinterpret_cast<const std::int8_t*>(from[i]);
    transform_codes(codes, zero, out);
  } else {
    transform_codes(from, zero, out);
  }
  for (int i = 0; i < 16; ++i) std::memcpy(v + i * entry_stride, out[i], sizeof out[i]);
}

void winograd_output(const std::int32_t* m, std::int64_t entry_stride, std::int32_t* y, int columns) {
  // Unsigned: sums may wrap on their way to 4 y.
  const auto* in = reinterpret_cast<const std::uint32_t*>(m);
  for (int at = 0; at < columns; at += kLane) {
    std::uint32_t r[2][4][kLane];
    for (int j = 0; j < 4; ++j) {
      for (int c = 0; c < kLane; ++c) {
        const std::uint32_t m1 = in[(4 + j) * entry_stride + at + c],
                            m2 = in[(8 + j) * entry_stride + at + c];
        r[0][j][c] = in[j * entry_stride + at + c] + m1 + m2;
        r[1][j][c] = m1 - m2 - in[(12 + j) * entry_stride + at + c];
      }
    }
    for (int i = 0; i < 2; ++i) {
      for (int c = 0; c < kLane; ++c) {
        const std::uint32_t r1 = r[i][1][c], r2 = r[i][2][c];
        y[2 * i * columns + at + c] = static_cast<std::int32_t>(r[i][0][c] + r1 + r2) >> 2;
        y[(2 * i + 1) * columns + at + c] = static_cast<std::int32_t>(r1 - r2 - r[i][3][c]) >> 2;
      }
    }
  }
}

}  // namespace pare::PARE_SIMD
