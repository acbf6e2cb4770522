#include "engine/numeric/ggml_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/numeric/f16.h"

namespace pare {
namespace {

constexpr int kBlock = 32, kSuper = 256;

void put_half(std::uint8_t* to, float value) {
  const std::uint16_t code = encode_f16(value);
  std::memcpy(to, &code, sizeof code);
}

// The first half of 32 codes in the low nibbles.
void put_nibbles(const std::uint8_t* codes, std::uint8_t* to) {
  for (int i = 0; i < kBlock / 2; ++i)
    to[i] = static_cast<std::uint8_t>(codes[i] | codes[i + kBlock / 2] << 4);
}

int nearest(float value) { return static_cast<int>(std::nearbyint(value)); }

// Scale and minimum (negated: value = scale * code - minimum) of 32 values, codes of 0 to 15 in `codes`.
float fit_scale_and_minimum(const float* x, const float* weights, std::uint8_t* codes, float& minimum) {
  constexpr int kLargest = 15, kSteps = 20;
  float low = x[0], high = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < kBlock; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  low = std::min(low, 0.0f);
  if (high == low) {
    std::fill_n(codes, kBlock, std::uint8_t{0});
    minimum = -low;
    return 0;
  }
  const auto code_of = [&](float inverse, float value) {
    return static_cast<std::uint8_t>(std::clamp(nearest(inverse * (value - low)), 0, kLargest));
  };
  const float first = kLargest / (high - low);
  float scale = 1 / first, offset = low, best = 0;
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = code_of(first, x[i]);
    const float d = scale * static_cast<float>(codes[i]) + offset - x[i];
    best += weights[i] * (d * d);
  }
  std::uint8_t tried[kBlock];
  for (int step = 0; step <= kSteps; ++step) {
    const float inverse = (-1.0f + 0.1f * static_cast<float>(step) + kLargest) / (high - low);
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < kBlock; ++i) {
      tried[i] = code_of(inverse, x[i]);
      const float l = tried[i], w = weights[i];
      sum_l += w * l;
      sum_l2 += w * l * l;
      sum_xl += w * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float this_offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (this_offset > 0) {
      this_offset = 0;
      this_scale = sum_xl / sum_l2;
    }
    float error = 0;
    for (int i = 0; i < kBlock; ++i) {
      const float d = this_scale * static_cast<float>(tried[i]) + this_offset - x[i];
      error += weights[i] * (d * d);
    }
    if (error >= best) continue;
    std::copy_n(tried, kBlock, codes);
    best = error;
    scale = this_scale;
    offset = this_offset;
  }
  minimum = -offset;
  return scale;
}

void q4_k_block(const float* x, std::uint8_t* block) {
  constexpr int kRuns = kSuper / kBlock;
  std::uint8_t codes[kSuper];
  float scales[kRuns], minima[kRuns], largest_scale = 0, largest_minimum = 0;
  for (int j = 0; j < kRuns; ++j) {
    const float* run = x + kBlock * j;
    float squares = 0, weights[kBlock];
    for (int i = 0; i < kBlock; ++i) squares += run[i] * run[i];
    const float rms = std::sqrt(squares / kBlock);
    for (int i = 0; i < kBlock; ++i) weights[i] = rms + std::fabs(run[i]);
    scales[j] = fit_scale_and_minimum(run, weights, codes + kBlock * j, minima[j]);
    largest_scale = std::max(largest_scale, scales[j]);
    largest_minimum = std::max(largest_minimum, minima[j]);
  }
  const float inverse_scale = largest_scale > 0 ? 63 / largest_scale : 0;
  const float inverse_minimum = largest_minimum > 0 ? 63 / largest_minimum : 0;
  put_half(block, largest_scale / 63);
  put_half(block + 2, largest_minimum / 63);
  const float d = decode_f16(encode_f16(largest_scale / 63));
  const float dmin = decode_f16(encode_f16(largest_minimum / 63));
  std::uint8_t* packed = block + 4;
  std::fill_n(packed, 12, std::uint8_t{0});
  for (int j = 0; j < kRuns; ++j) {
    const int s = std::min(63, nearest(inverse_scale * scales[j]));
    const int m = std::min(63, nearest(inverse_minimum * minima[j]));
    if (j < 4) {
      packed[j] = static_cast<std::uint8_t>(packed[j] | s);
      packed[j + 4] = static_cast<std::uint8_t>(packed[j + 4] | m);
    } else {
      packed[j + 4] = static_cast<std::uint8_t>((s & 15) | (m & 15) << 4);
      packed[j - 4] = static_cast<std::uint8_t>(packed[j - 4] | (s >> 4) << 6);
      packed[j] = static_cast<std::uint8_t>(packed[j] | (m >> 4) << 6);
    }
    const float step = d * static_cast<float>(s), base = dmin * static_cast<float>(m);
    if (step == 0) continue;
    for (int i = 0; i < kBlock; ++i)
      codes[kBlock * j + i] =
          static_cast<std::uint8_t>(std::clamp(nearest((x[kBlock * j + i] + base) / step), 0, 15));
  }
  std::uint8_t* to = block + 16;
  for (int j = 0; j < kSuper; j += 2 * kBlock)
    for (int i = 0; i < kBlock; ++i)
      *to++ = static_cast<std::uint8_t>(codes[j + i] | codes[j + kBlock + i] << 4);
}

}  // namespace

void encode_q4_0(const float* x, std::uint8_t* blocks, std::int64_t count) {
  for (; count > 0; --count, x += kBlock, blocks += 18) {
    float largest = 0, amax = 0;
    for (int i = 0; i < kBlock; ++i)
      if (std::fabs(x[i]) > amax) {
        amax = std::fabs(x[i]);
        largest = x[i];
      }
    const float d = largest / -8, inverse = d != 0 ? 1 / d : 0;
    std::uint8_t codes[kBlock];
    for (int i = 0; i < kBlock; ++i)
      codes[i] = static_cast<std::uint8_t>(std::min(15, static_cast<int>(x[i] * inverse + 8.5f)));
    put_half(blocks, d);
    put_nibbles(codes, blocks + 2);
  }
}

void encode_q4_1(const float* x, std::uint8_t* blocks, std::int64_t count) {
  for (; count > 0; --count, x += kBlock, blocks += 20) {
    const auto [low, high] = std::minmax_element(x, x + kBlock);
    const float d = (*high - *low) / 15, inverse = d != 0 ? 1 / d : 0;
    std::uint8_t codes[kBlock];
    for (int i = 0; i < kBlock; ++i)
      codes[i] = static_cast<std::uint8_t>(std::min(15, static_cast<int>((x[i] - *low) * inverse + 0.5f)));
    put_half(blocks, d);
    put_half(blocks + 2, *low);
    put_nibbles(codes, blocks + 4);
  }
}

void encode_q8_0(const float* x, std::uint8_t* blocks, std::int64_t count) {
  for (; count > 0; --count, x += kBlock, blocks += 34) {
    float amax = 0;
    for (int i = 0; i < kBlock; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float d = amax / 127, inverse = d != 0 ? 1 / d : 0;
    put_half(blocks, d);
    for (int i = 0; i < kBlock; ++i)
      blocks[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::round(x[i] * inverse)));
  }
}

void encode_q4_k(const float* x, std::uint8_t* blocks, std::int64_t count) {
  for (; count > 0; --count, x += kSuper, blocks += 144) q4_k_block(x, blocks);
}

GgmlEncode ggml_encoder(int code) {
  switch (code) {
    case 2:
      return encode_q4_0;
    case 3:
      return encode_q4_1;
    case 8:
      return encode_q8_0;
    case 12:
      return encode_q4_k;
    default:
      return nullptr;
  }
}

void pack_q4_0(const std::uint8_t* codes, std::uint16_t scale, std::uint8_t* block) {
  std::memcpy(block, &scale, sizeof scale);
  put_nibbles(codes, block + 2);
}

void pack_q8_0(const std::uint8_t* codes, std::uint16_t scale, std::uint8_t* block) {
  std::memcpy(block, &scale, sizeof scale);
  std::copy_n(codes, kBlock, block + 2);
}

void pack_mxfp4(const std::uint8_t* codes, std::uint16_t scale, std::uint8_t* block) {
  block[0] = static_cast<std::uint8_t>(scale);
  put_nibbles(codes, block + 1);
}

}  // namespace pare
