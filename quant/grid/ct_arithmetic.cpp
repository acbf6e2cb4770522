#include "quant/grid/ct_arithmetic.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"

namespace pare::quant {
namespace {

float bf16(float value) { return decode_bf16(encode_bf16(value)); }

struct Range {
  float low = 0, high = 0;                             // with 0
  float amax() const { return std::max(high, -low); }  // 0, not -0, where all is zero
};

Range range_of(const float* w, std::int64_t n) {
  Range r;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(w[i]))
      throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
          .hint("look at the training run, or leave the layer out (ignore, --exclude)");
    r.low = std::min(r.low, w[i]);
    r.high = std::max(r.high, w[i]);
  }
  return r;
}

std::uint8_t nibble(float code) {
  return static_cast<std::uint8_t>(static_cast<int>(std::nearbyint(code)) & 15);
}

struct Group {
  const float* w;
  std::int64_t n;
  std::uint8_t* codes;
};

std::uint16_t int4(const Group& g) {
  float s = bf16(range_of(g.w, g.n).amax() / 7.5f);
  if (s == 0) s = 0x1p-7f;
  for (std::int64_t i = 0; i < g.n; ++i) g.codes[i] = nibble(std::clamp(bf16(g.w[i] / s), -8.0f, 7.0f));
  return encode_bf16(s);
}

std::uint16_t int4_zeros(const Group& g, std::int32_t& zero) {
  const Range r = range_of(g.w, g.n);
  float s = bf16(bf16(r.high - r.low) / 15);
  if (s == 0) s = 0x1p-7f;
  const float z = std::nearbyint(std::clamp(bf16(-8 - bf16(r.low / s)), -8.0f, 7.0f));
  zero = static_cast<std::int32_t>(z);
  for (std::int64_t i = 0; i < g.n; ++i)
    g.codes[i] = nibble(std::clamp(bf16(bf16(g.w[i] / s) + z), -8.0f, 7.0f));
  return encode_bf16(s);
}

std::uint16_t fp8(const Group& g) {
  float s = bf16(range_of(g.w, g.n).amax() / 448);
  if (s == 0) s = 0x1p-7f;
  for (std::int64_t i = 0; i < g.n; ++i)
    g.codes[i] = encode_e4m3(std::clamp(bf16(g.w[i] / s), -448.0f, 448.0f));
  return encode_bf16(s);
}

std::uint16_t nvfp4(const Group& g, float global) {
  std::uint8_t scale = encode_e4m3(std::min(global * bf16(range_of(g.w, g.n).amax() / 6), 448.0f));
  if (scale == 0) scale = encode_e4m3(0.125f);
  const float step = decode_e4m3(scale) / global;
  for (std::int64_t i = 0; i < g.n; ++i) g.codes[i] = encode_e2m1(std::clamp(g.w[i] / step, -6.0f, 6.0f));
  return scale;
}

std::uint16_t mxfp4(const Group& g) {
  const float amax = range_of(g.w, g.n).amax();
  int byte = 127;
  if (amax > 0) byte = std::max((((encode_bf16(amax) + 32) & 0xff80) >> 7) - 2, 0);
  const float step = std::ldexp(1.0f, byte - 127);
  for (std::int64_t i = 0; i < g.n; ++i)
    g.codes[i] = encode_e2m1(std::clamp(bf16(g.w[i] / step), -6.0f, 6.0f));
  return static_cast<std::uint16_t>(byte);
}

}  // namespace

CtQuantized ct_quantize(CtFormat format, const float* weight, std::int64_t rows, std::int64_t cols,
                        std::int64_t group) {
  const std::int64_t width = group == 0 ? cols : group;
  PARE_ASSERT(width > 0 && cols % width == 0);
  CtQuantized out;
  out.codes.resize(static_cast<std::size_t>(rows * cols));
  if (format == CtFormat::kNvfp4) {
    const float amax = range_of(weight, rows * cols).amax();
    out.global = amax > 0 ? bf16(2688 / amax) : 1.0f;
  }
  for (std::int64_t at = 0; at < rows * cols; at += width) {
    const Group g{weight + at, width, out.codes.data() + at};
    std::int32_t zero = 0;
    switch (format) {
      case CtFormat::kInt4:
        out.scales.push_back(int4(g));
        break;
      case CtFormat::kInt4Zeros:
        out.scales.push_back(int4_zeros(g, zero));
        out.zero_points.push_back(zero);
        break;
      case CtFormat::kFp8:
        out.scales.push_back(fp8(g));
        break;
      case CtFormat::kNvfp4:
        out.scales.push_back(nvfp4(g, out.global));
        break;
      case CtFormat::kMxfp4:
        out.scales.push_back(mxfp4(g));
        break;
    }
  }
  return out;
}

}  // namespace pare::quant
