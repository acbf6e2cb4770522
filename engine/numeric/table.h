// The one table of number formats. Readers, packers, exporters, the command line and reports ask it; nobody
// else keeps a second list. The arithmetic itself is in the headers of the formats (e4m3.h, f16.h, ...).
//
// Array conversion that uses the processor's vector instructions: engine/numeric/convert.h. The rows here are
// plain loops over the scalar functions: the reference that the vector paths are tested against.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/dtype.h"

namespace pare {

// How float values become codes and back. `codes` is packed as tensors are: sub-byte elements over the
// flattened array, first in the low bits, unused bits of the last byte zero. Any alignment; n >= 0. Encoding
// saturates where the format's header says it does; f16 and bf16 overflow to infinity.
using EncodeRow = void (*)(const float* values, void* codes, std::int64_t n);
using DecodeRow = void (*)(const void* codes, float* values, std::int64_t n);

struct FormatInfo {
  DType dtype;
  const char* name;  // as name(dtype): "float8_e4m3fn"
  int bits;
  double largest;   // largest finite value
  double smallest;  // smallest positive value, subnormals included; 1 for integers
  double smallest_normal;
  int mantissa_bits;  // stored ones; 0 for integers and E8M0
  bool is_signed, has_inf, has_nan;
  const char* safetensors;  // name in a safetensors header, or nullptr: no such type there
  int onnx_code;            // TensorProto.DataType
  int qdq_opset;            // first opset whose Quantize/DequantizeLinear take it as codes (E8M0: as scale);
                            // 0: never
  int min_ir;               // first IR version of ONNX that knows it
  EncodeRow encode;         // nullptr for types that are no target of rounding from float32:
  DecodeRow decode;         // bool, 32 and 64 bit integers, float64 (convert() casts among these)

  // Lowest value: 0 for unsigned integers, -largest for signed floats, -largest - 1 for signed integers.
  double lowest() const;
  bool is_integer() const { return pare::is_integer(dtype); }
};

// nullptr for undefined, string and complex types.
const FormatInfo* find_format(DType type);
// By the name of the table, the safetensors name, or a common short name: "int8", "F8_E4M3", "e4m3", "fp8",
// "bf16", "fp4", ... Case matters. nullptr if unknown.
const FormatInfo* find_format(const std::string& name);
// Error kUnsupported, naming the type, where find_format() has nothing.
const FormatInfo& format_info(DType type);

// All rows, in the order of DType: for listings and tests.
const FormatInfo* formats(int& count);

}  // namespace pare
