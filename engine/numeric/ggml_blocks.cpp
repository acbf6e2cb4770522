#include "engine/numeric/ggml_blocks.h"

#include <bit>
#include <cstring>

#include "engine/numeric/ggml_bytes.h"

namespace pare {
namespace {

using ggml::Byte;
using ggml::half_at;
using ggml::scale_and_min;

std::uint32_t word_at(const Byte* p) {
  std::uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Code i of 32 in 16 bytes.
int nibble(const Byte* codes, int i) { return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4; }

void q4_0(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 18, x += 32) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(nibble(p + 2, i) - 8);
  }
}

void q4_1(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 20, x += 32) {
    const float d = half_at(p), m = half_at(p + 2);
    for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(nibble(p + 4, i)) + m;
  }
}

int with_high_bit(const Byte* codes, std::uint32_t high, int i) {
  return nibble(codes, i) | static_cast<int>((high >> i & 1u) << 4);
}

void q5_0(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 22, x += 32) {
    const float d = half_at(p);
    const std::uint32_t high = word_at(p + 2);
    for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(with_high_bit(p + 6, high, i) - 16);
  }
}

void q5_1(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 24, x += 32) {
    const float d = half_at(p), m = half_at(p + 2);
    const std::uint32_t high = word_at(p + 4);
    for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(with_high_bit(p + 8, high, i)) + m;
  }
}

void q8_0(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 34, x += 32) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(static_cast<std::int8_t>(p[2 + i])) * d;
  }
}

void mxfp4(const Byte* p, float* x, std::int64_t blocks) {
  static constexpr int kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (; blocks > 0; --blocks, p += 17, x += 32) {
    // Half of 2^(e - 127), since the table holds doubled values; the smallest two are subnormal.
    const std::uint32_t bits = p[0] < 2 ? 0x00200000u << p[0] : static_cast<std::uint32_t>(p[0] - 1) << 23;
    const float d = std::bit_cast<float>(bits);
    for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(kDoubled[nibble(p + 1, i)]);
  }
}

// Sixteen scales (low four bits) and minima (high ones), 64 bytes of 2-bit codes, d, dmin. Of each 128 values
// 32 bytes hold four runs of 32, the lowest bits first.
void q2_k(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 84, x += 256) {
    const float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int i = 0; i < 256; ++i) {
      const int q = p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3, s = p[i / 16];
      x[i] = d * static_cast<float>(s & 15) * static_cast<float>(q) - dmin * static_cast<float>(s >> 4);
    }
  }
}

// 32 bytes of high bits, 64 of 2-bit codes, sixteen scales of 6 bits in 12 bytes, d. A high bit that is 0
// takes 4 away.
void q3_k(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 110, x += 256) {
    const float d = half_at(p + 108);
    const Byte* scales = p + 96;
    for (int i = 0; i < 256; ++i) {
      const int g = i / 16;
      const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
      const int scale = (low | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
      const int code = p[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      const int high = p[i % 32] >> (i / 32) & 1;
      x[i] = d * static_cast<float>(scale) * static_cast<float>(code - (high == 0 ? 4 : 0));
    }
  }
}

void q4_k(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 144, x += 256) {
    const float d = half_at(p), dmin = half_at(p + 2);
    for (int j = 0; j < 8; ++j) {
      int scale = 0, minimum = 0;
      scale_and_min(p + 4, j, scale, minimum);
      const float a = d * static_cast<float>(scale), b = dmin * static_cast<float>(minimum);
      for (int i = 0; i < 32; ++i)
        x[32 * j + i] = a * static_cast<float>(p[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15) - b;
    }
  }
}

void q5_k(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 176, x += 256) {
    const float d = half_at(p), dmin = half_at(p + 2);
    for (int j = 0; j < 8; ++j) {
      int scale = 0, minimum = 0;
      scale_and_min(p + 4, j, scale, minimum);
      const float a = d * static_cast<float>(scale), b = dmin * static_cast<float>(minimum);
      for (int i = 0; i < 32; ++i) {
        const int q = (p[48 + j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (p[16 + i] >> j & 1) << 4;
        x[32 * j + i] = a * static_cast<float>(q) - b;
      }
    }
  }
}

// 128 bytes of low four bits, 64 of high two, sixteen int8 scales, d.
void q6_k(const Byte* p, float* x, std::int64_t blocks) {
  for (; blocks > 0; --blocks, p += 210, x += 256) {
    const float d = half_at(p + 208);
    for (int i = 0; i < 256; ++i) {
      const int half = i / 128, in_half = i % 128;
      const int low = p[half * 64 + in_half % 64] >> (in_half / 64 * 4) & 15;
      const int high = p[128 + half * 32 + in_half % 32] >> (in_half / 32 * 2) & 3;
      const auto scale = static_cast<float>(static_cast<std::int8_t>(p[192 + i / 16]));
      x[i] = d * scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, DType::kF32, nullptr},          {1, "F16", 1, 2, DType::kF16, nullptr},
    {2, "Q4_0", 32, 18, DType::kUndefined, q4_0},    {3, "Q4_1", 32, 20, DType::kUndefined, q4_1},
    {6, "Q5_0", 32, 22, DType::kUndefined, q5_0},    {7, "Q5_1", 32, 24, DType::kUndefined, q5_1},
    {8, "Q8_0", 32, 34, DType::kUndefined, q8_0},    {10, "Q2_K", 256, 84, DType::kUndefined, q2_k},
    {11, "Q3_K", 256, 110, DType::kUndefined, q3_k}, {12, "Q4_K", 256, 144, DType::kUndefined, q4_k},
    {13, "Q5_K", 256, 176, DType::kUndefined, q5_k}, {14, "Q6_K", 256, 210, DType::kUndefined, q6_k},
    {24, "I8", 1, 1, DType::kI8, nullptr},           {25, "I16", 1, 2, DType::kI16, nullptr},
    {26, "I32", 1, 4, DType::kI32, nullptr},         {27, "I64", 1, 8, DType::kI64, nullptr},
    {28, "F64", 1, 8, DType::kF64, nullptr},         {30, "BF16", 1, 2, DType::kBF16, nullptr},
    {39, "MXFP4", 32, 17, DType::kUndefined, mxfp4},
};

}  // namespace

const GgmlType* find_ggml_type(int code) {
  for (const GgmlType& type : kTypes)
    if (type.code == code) return &type;
  return nullptr;
}

std::string known_ggml_types() {
  std::string all;
  for (const GgmlType& type : kTypes) all += (all.empty() ? "" : ", ") + std::string(type.name);
  return all;
}

}  // namespace pare
