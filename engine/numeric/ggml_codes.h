// The block formats of ggml_blocks.h with codes and scales apart, for kernels that keep weights in few bits:
//
//   x = fma(scale, value(code), offset)     the bits of GgmlType::decode
//
// which holds because scale * value is exact wherever there is an offset (at most 22 bits), and rounded once
// where there is none. Without offsets the sum is with -0.
#pragma once

#include <cstdint>

#include "engine/numeric/ggml_blocks.h"

namespace pare {

struct GgmlCoding {
  int bits;      // 4: codes are indices into `values`; 8: int8, two's complement
  int group;     // neighbours that share a scale; divides GgmlType::block
  bool offsets;  // else they are not written
  float values[16];
  // One block: `codes` gets GgmlType::block of them, `scales` and `offsets` one a group.
  void (*split)(const std::uint8_t* block, std::uint8_t* codes, float* scales, float* offsets);
};

const GgmlCoding* find_ggml_coding(const GgmlType& type);  // nullptr for plain types
const GgmlType* find_ggml_type(const char* name);          // nullptr: not known

}  // namespace pare
