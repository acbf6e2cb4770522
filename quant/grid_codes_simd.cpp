#include "quant/grid_codes_simd.h"

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

}  // namespace

void grid_encode(GridCodes type, const GridStep& step, const float* __restrict w, std::int64_t n,
                 std::uint8_t* __restrict codes) {
  const float s = step.scale;
  switch (type) {
    case GridCodes::kSigned:
    case GridCodes::kUnsigned: {
      const auto low = static_cast<float>(step.low - step.zero),
                 high = static_cast<float>(step.high - step.zero);
      const std::int32_t zero = step.zero, mask = step.mask;
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) {
            codes[i] = static_cast<std::uint8_t>((round_clamped(w[i] / s, low, high) + zero) & mask);
          });
    }
    case GridCodes::kE4M3:
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) { codes[i] = encode_e4m3(w[i] / s); });
    case GridCodes::kE5M2:
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) { codes[i] = encode_e5m2(w[i] / s); });
    case GridCodes::kE2M1:
      return for_each(
          n, [=](std::int64_t i) __attribute__((always_inline)) { codes[i] = encode_e2m1(w[i] / s); });
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
