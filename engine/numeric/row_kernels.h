// Internal to engine/numeric: array loops compiled once per instruction class, chosen by isa().
//
// All classes compute the same bits: the loops are the same source (row_loops.inc) over the scalar functions
// of the format headers, or (F16C) instructions that the tests hold against them. Codes here are unpacked:
// one byte each, 4 and 2 bit formats in its low bits, or two bytes for 16 bit formats. No pointer needs
// alignment beyond a float's; codes need none. n >= 0. Ranges must not overlap, unless they are the same
// float array.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace pare {

struct RowKernels {
  struct Format {
    void (*encode)(const float* values, void* codes, std::int64_t n);
    void (*encode_unsaturated)(const float* values, void* codes, std::int64_t n);
    void (*decode)(const void* codes, float* values, std::int64_t n);
  };
  Format formats[kDTypeCount];  // null where traits have no such format

  // `bytes` packed bytes from or to 2 (4) times as many codes, the first in the low bits. pack ignores upper
  // bits.
  void (*pack4)(const std::uint8_t* codes, std::uint8_t* packed, std::int64_t bytes);
  void (*pack2)(const std::uint8_t* codes, std::uint8_t* packed, std::int64_t bytes);
  void (*unpack4)(const std::uint8_t* packed, std::uint8_t* codes, std::int64_t bytes);
  void (*unpack2)(const std::uint8_t* packed, std::uint8_t* codes, std::int64_t bytes);

  // y = rne(clamp(x / s, low - z, high - z)) + z, its low 8 or 16 bits. `_each`: one s and z per element.
  void (*quantize8)(const float* x, float s, std::int32_t z, int low, int high, std::uint8_t* y,
                    std::int64_t n);
  void (*quantize16)(const float* x, float s, std::int32_t z, int low, int high, void* y, std::int64_t n);
  void (*quantize8_each)(const float* x, const float* s, const std::int32_t* z, int low, int high,
                         std::uint8_t* y, std::int64_t n);
  void (*quantize16_each)(const float* x, const float* s, const std::int32_t* z, int low, int high, void* y,
                          std::int64_t n);
  // y = rne(clamp(x / s, low - z, high - z)) * s.
  void (*fake)(const float* x, float s, std::int32_t z, int low, int high, float* y, std::int64_t n);
  void (*fake_each)(const float* x, const float* s, const std::int32_t* z, int low, int high, float* y,
                    std::int64_t n);
  // Each of `groups` scales `block` times in a row; block is a multiple of 16.
  void (*spread)(const float* scales, std::int64_t groups, std::int64_t block, float* each);
  // y = x / s.
  void (*divide)(const float* x, float s, float* y, std::int64_t n);
  void (*divide_each)(const float* x, const float* s, float* y, std::int64_t n);
  // y = (x - z) * s.
  void (*rescale)(const float* x, float s, std::int32_t z, float* y, std::int64_t n);
  void (*rescale_each)(const float* x, const float* s, const std::int32_t* z, float* y, std::int64_t n);
};

const RowKernels& row_kernels();  // of isa()

const RowKernels& row_kernels_scalar();
const RowKernels& row_kernels_avx2();
const RowKernels& row_kernels_avx512();

}  // namespace pare
