#include "quant/grid/grid_codes_simd.h"

#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e5m2.h"
#include "engine/numeric/integers.h"

namespace pare::PARE_SIMD {
namespace {

// Runs of 16, which compilers turn into whole vectors also where a group is no longer than that.
template <class Op>
PARE_INLINE void for_each(std::int64_t n, Op op) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::int64_t k = 0; k < 16; ++k) op(i + k);
  for (; i < n; ++i) op(i);
}

// Vectors of the compiler, as wide as the class has them: integer steps and the narrowing to bytes are what
// automatic vectorization makes a poor job of.
constexpr int kWide = PARE_SIMD_LEVEL == 2 ? 16 : PARE_SIMD_LEVEL == 1 ? 8 : 4;
typedef float Floats __attribute__((vector_size(4 * kWide)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kWide)));
typedef std::uint8_t Bytes __attribute__((vector_size(kWide)));

// encode_e4m3 and its like, lane by lane; see round_to_code for the steps. Magnitudes are below 2^31, so
// signed comparisons serve.
template <int kMantissa, int kBias>
PARE_INLINE Ints encode_lanes(Floats value, std::int32_t largest, std::int32_t nan, int sign_bit) {
  constexpr int kDrop = 23 - kMantissa;
  constexpr std::int32_t kRebias = (127 - kBias) << 23, kSmallestNormal = (128 - kBias) << 23;
  constexpr std::int32_t kMagic = (151 - kBias - kMantissa) << 23;
  const Ints bits = (Ints)value, magnitude = bits & 0x7FFFFFFF;
  const Ints half = ((magnitude >> kDrop) & 1) + ((1 << (kDrop - 1)) - 1);
  const Ints normal = (magnitude + half - kRebias) >> kDrop;
  const Ints magic = Ints{} + kMagic;
  const Ints subnormal = (Ints)((Floats)magnitude + (Floats)magic) - kMagic;
  const Ints code = magnitude < kSmallestNormal ? subnormal : normal;
  const Ints finite =
      (code < largest ? code : Ints{} + largest) | ((bits >> (31 - sign_bit)) & (1 << sign_bit));
  const Ints odd = (Ints{} + nan) | (sign_bit == 7 ? (bits >> 24) & 0x80 : Ints{});
  return magnitude > 0x7F800000 ? odd : finite;
}

template <int kMantissa, int kBias, class Scalar>
PARE_INLINE void encode_floats(const float* w, float scale, std::int64_t n, std::uint8_t* codes,
                               std::int32_t largest, std::int32_t nan, int sign_bit, Scalar scalar) {
  std::int64_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    Floats value;
    __builtin_memcpy(&value, w + i, sizeof value);
    const Ints code = encode_lanes<kMantissa, kBias>(value / scale, largest, nan, sign_bit);
    const Bytes bytes = __builtin_convertvector(code, Bytes);
    __builtin_memcpy(codes + i, &bytes, sizeof bytes);
  }
  for (; i < n; ++i) codes[i] = scalar(w[i] / scale);
}

PARE_INLINE void encode_group(GridCodes type, const GridStep& step, float s, std::int32_t zero,
                              const float* __restrict w, std::int64_t n, std::uint8_t* __restrict codes) {
  switch (type) {
    case GridCodes::kSigned:
    case GridCodes::kUnsigned: {
      const auto low = static_cast<float>(step.low - zero), high = static_cast<float>(step.high - zero);
      const std::int32_t mask = step.mask;
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) {
            codes[i] = static_cast<std::uint8_t>((round_clamped(w[i] / s, low, high) + zero) & mask);
          });
    }
    case GridCodes::kE4M3:
      return encode_floats<3, 7>(w, s, n, codes, 0x7E, 0x7F, 7, [](float q) { return encode_e4m3(q); });
    case GridCodes::kE5M2:
      return encode_floats<2, 15>(w, s, n, codes, 0x7B, 0x7E, 7, [](float q) { return encode_e5m2(q); });
    case GridCodes::kE2M1:
      return encode_floats<1, 1>(w, s, n, codes, 7, 7, 3, [](float q) { return encode_e2m1(q); });
  }
}

template <GridCodes kType>
void encode_groups(const GridStep& step, const float* scales, const std::int32_t* zeros, const float* w,
                   std::int64_t n, std::int64_t width, std::uint8_t* codes) {
  for (std::int64_t c = 0, g = 0; c < n; c += width, ++g) {
    const std::int32_t zero = zeros == nullptr ? step.zero : zeros[g];
    const std::int64_t count = n - c < width ? n - c : width;
    if (count == 16)  // known here, so that no loop is left
      encode_group(kType, step, scales[g], zero, w + c, 16, codes + c);
    else
      encode_group(kType, step, scales[g], zero, w + c, count, codes + c);
  }
}

}  // namespace

void grid_encode_groups(GridCodes type, const GridStep& step, const float* scales, const std::int32_t* zeros,
                        const float* w, std::int64_t n, std::int64_t width, std::uint8_t* codes) {
  switch (type) {
    case GridCodes::kSigned:
      return encode_groups<GridCodes::kSigned>(step, scales, zeros, w, n, width, codes);
    case GridCodes::kUnsigned:
      return encode_groups<GridCodes::kUnsigned>(step, scales, zeros, w, n, width, codes);
    case GridCodes::kE4M3:
      return encode_groups<GridCodes::kE4M3>(step, scales, zeros, w, n, width, codes);
    case GridCodes::kE5M2:
      return encode_groups<GridCodes::kE5M2>(step, scales, zeros, w, n, width, codes);
    case GridCodes::kE2M1:
      return encode_groups<GridCodes::kE2M1>(step, scales, zeros, w, n, width, codes);
  }
}

void grid_decode(GridCodes type, const GridStep& step, const std::uint8_t* __restrict codes, std::int64_t n,
                 float* __restrict values) {
  // The sign bit of a code is the highest of the mask.
  const std::int32_t mask = step.mask, sign = type == GridCodes::kSigned ? (mask + 1) >> 1 : 0;
  const std::int32_t less = sign + step.zero;
  const float s = step.scale;
  for_each(
      n, [=](std::int64_t i) __attribute__((always_inline)) {
        values[i] = static_cast<float>(((codes[i] & mask) ^ sign) - less) * s;
      });
}

void grid_look_up(const float* __restrict table, float scale, const std::uint8_t* __restrict codes,
                  std::int64_t n, float* __restrict values) {
  for_each(
      n, [=](std::int64_t i) __attribute__((always_inline)) { values[i] = table[codes[i]] * scale; });
}

}  // namespace pare::PARE_SIMD
