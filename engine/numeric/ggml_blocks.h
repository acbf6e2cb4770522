// The block formats of GGUF files: runs of 32 or 256 neighbours in a row with scales of their own.
//
//   Q4_0   fp16 d, 16 bytes of codes: x = d (q - 8)          Q8_0   fp16 d, 32 int8: x = d q
//   Q4_1   fp16 d, m, 16 bytes: x = d q + m                  MXFP4  E8M0 byte e, 16 bytes: x = 2^(e-127) e2m1
//   Q5_0   fp16 d, 32 high bits, 16 bytes: x = d (q - 16)    Q5_1   fp16 d, m, high bits: x = d q + m
//   Q2_K ... Q6_K  256 values: fp16 d (and dmin), scales of 16 or 32 values in 4 to 8 bits, codes of 2 to 6
//   bits
//
// Of 32 codes the first half lies in the low four bits, the second in the high ones. Arithmetic in float32,
// each operation rounded once, in the order of the gguf package (quants.py), which decode_ggml equals in
// every bit. Source: github.com/ggml-org/llama.cpp, ggml-common.h; gguf 0.19.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/dtype.h"

namespace pare {

struct GgmlType {
  int code;          // in the file
  const char* name;  // "Q4_K"
  int block;         // elements; 1 for plain types
  int bytes;         // of a block
  DType plain;       // the element type of plain types, else kUndefined
  // `blocks` of them at any alignment into blocks * block floats; nullptr for plain types.
  void (*decode)(const std::uint8_t* from, float* to, std::int64_t blocks);
};

const GgmlType* find_ggml_type(int code);  // nullptr: not known
std::string known_ggml_types();            // "F32, F16, Q4_0, ...": for messages

}  // namespace pare
