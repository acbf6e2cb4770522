#include "engine/numeric/ggml_codes.h"

#include <bit>
#include <cstring>

#include "engine/numeric/ggml_bytes.h"

namespace pare {
namespace {

using ggml::Byte;
using ggml::half_at;
using ggml::scale_and_min;

// 32 codes of four bits: the first half in the low ones.
void nibbles(const Byte* p, Byte* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = p[i] & 15;
    codes[i + 16] = p[i] >> 4;
  }
}

void q4_0(const Byte* p, Byte* codes, float* scales, float*) {
  scales[0] = half_at(p);
  nibbles(p + 2, codes);
}

void q4_1(const Byte* p, Byte* codes, float* scales, float* offsets) {
  scales[0] = half_at(p);
  offsets[0] = half_at(p + 2);
  nibbles(p + 4, codes);
}

// The fifth bits of 32 codes, and what they stand for at 0.
void high_bits(const Byte* p, Byte* codes, int zero) {
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<Byte>((codes[i] | (p[i / 8] >> (i % 8) & 1) << 4) - zero);
}

void q5_0(const Byte* p, Byte* codes, float* scales, float*) {
  scales[0] = half_at(p);
  nibbles(p + 6, codes);
  high_bits(p + 2, codes, 16);
}

void q5_1(const Byte* p, Byte* codes, float* scales, float* offsets) {
  scales[0] = half_at(p);
  offsets[0] = half_at(p + 2);
  nibbles(p + 8, codes);
  high_bits(p + 4, codes, 0);
}

void q8_0(const Byte* p, Byte* codes, float* scales, float*) {
  scales[0] = half_at(p);
  std::memcpy(codes, p + 2, 32);
}

void mxfp4(const Byte* p, Byte* codes, float* scales, float*) {
  // Half of 2^(e - 127), since `values` are doubled; the smallest two are subnormal.
  scales[0] =
      std::bit_cast<float>(p[0] < 2 ? 0x00200000u << p[0] : static_cast<std::uint32_t>(p[0] - 1) << 23);
  nibbles(p + 1, codes);
}

// Layouts of the K formats: ggml_blocks.cpp.
void q2_k(const Byte* p, Byte* codes, float* scales, float* offsets) {
  const float d = half_at(p + 80), dmin = half_at(p + 82);
  for (int g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(p[g] & 15);
    offsets[g] = -(dmin * static_cast<float>(p[g] >> 4));
  }
  for (int i = 0; i < 256; ++i) codes[i] = p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void q3_k(const Byte* p, Byte* codes, float* scales, float*) {
  const float d = half_at(p + 108);
  const Byte* s = p + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    scales[g] = d * static_cast<float>((low | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32);
  }
  for (int i = 0; i < 256; ++i)
    codes[i] = static_cast<Byte>((p[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) |
                                 (p[i % 32] >> (i / 32) & 1) << 2);
}

void scales_and_minima(const Byte* p, float* scales, float* offsets) {
  const float d = half_at(p), dmin = half_at(p + 2);
  for (int j = 0; j < 8; ++j) {
    int scale = 0, minimum = 0;
    scale_and_min(p + 4, j, scale, minimum);
    scales[j] = d * static_cast<float>(scale);
    offsets[j] = -(dmin * static_cast<float>(minimum));
  }
}

void q4_k(const Byte* p, Byte* codes, float* scales, float* offsets) {
  scales_and_minima(p, scales, offsets);
  for (int i = 0; i < 256; ++i) codes[i] = p[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}

void q5_k(const Byte* p, Byte* codes, float* scales, float* offsets) {
  scales_and_minima(p, scales, offsets);
  for (int i = 0; i < 256; ++i)
    codes[i] = static_cast<Byte>((p[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15) |
                                 (p[16 + i % 32] >> (i / 32) & 1) << 4);
}

void q6_k(const Byte* p, Byte* codes, float* scales, float*) {
  const float d = half_at(p + 208);
  for (int g = 0; g < 16; ++g) scales[g] = d * static_cast<float>(static_cast<std::int8_t>(p[192 + g]));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, in_half = i % 128;
    const int low = p[half * 64 + in_half % 64] >> (in_half / 64 * 4) & 15;
    const int high = p[128 + half * 32 + in_half % 32] >> (in_half / 32 * 2) & 3;
    codes[i] = static_cast<Byte>((low | high << 4) - 32);
  }
}

#define PARE_COUNTED \
  { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
struct Entry {
  const char* name;
  GgmlCoding coding;
};
constexpr Entry kEntries[] = {
    {"Q4_0", {4, 32, false, {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}, q4_0}},
    {"Q4_1", {4, 32, true, PARE_COUNTED, q4_1}},
    {"Q5_0", {8, 32, false, {}, q5_0}},
    {"Q5_1", {8, 32, true, {}, q5_1}},
    {"Q8_0", {8, 32, false, {}, q8_0}},
    {"Q2_K", {4, 16, true, PARE_COUNTED, q2_k}},
    {"Q3_K", {4, 16, false, {-4, -3, -2, -1, 0, 1, 2, 3}, q3_k}},
    {"Q4_K", {4, 32, true, PARE_COUNTED, q4_k}},
    {"Q5_K", {8, 32, true, {}, q5_k}},
    {"Q6_K", {8, 16, false, {}, q6_k}},
    {"MXFP4", {4, 32, false, {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}, mxfp4}},
};
#undef PARE_COUNTED

}  // namespace

const GgmlCoding* find_ggml_coding(const GgmlType& type) {
  for (const Entry& entry : kEntries)
    if (std::strcmp(entry.name, type.name) == 0) return &entry.coding;
  return nullptr;
}

const GgmlType* find_ggml_type(const char* name) {
  for (int code = 0; code < 64; ++code)
    if (const GgmlType* type = find_ggml_type(code); type != nullptr && std::strcmp(type->name, name) == 0)
      return type;
  return nullptr;
}

}  // namespace pare
