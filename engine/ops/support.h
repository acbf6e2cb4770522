// Small helpers of kernels: reasons, axes, work split over elements, element types as C++ types.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/ops/kernel.h"

namespace pare {

// "" when input i has one of the types; else "input 0 is int8, needs float32 or float16".
std::string type_reason(const OpCall& call, int i, std::initializer_list<DType> types);
std::string type_reason(const TensorView& view, const std::string& what, std::initializer_list<DType> types);

// "Softmax/cpu:vector"; the text lives as long as the program.
std::string_view kernel_name(std::string_view op, std::string_view variant);

// axis in [-rank, rank) made >= 0. The shape rule has checked the range.
int axis_of(const Node& node, const char* key, std::int64_t otherwise, std::int64_t rank);

std::int64_t product_of(const Dims& dims, std::size_t first, std::size_t last);
Dims row_major_strides(const Dims& dims);  // in elements

// The elements of an integer input of any integer type.
std::vector<std::int64_t> ints_of(const TensorView& view);
// Bytes of one element; 0 for packed types and strings.
int element_bytes(DType type);

// Pieces of whole cache lines, none smaller than is worth waking a thread for.
inline constexpr std::int64_t kElementGrain = 16384;

// Calls f(T{}) with the C++ type of a native number type (bool is std::uint8_t); false for the others
// (float16, packed and 8 bit float types, strings).
template <typename F>
bool with_native_type(DType type, F&& f) {
  switch (type) {
    case DType::kF32:
      return f(float{}), true;
    case DType::kF64:
      return f(double{}), true;
    case DType::kI8:
      return f(std::int8_t{}), true;
    case DType::kI16:
      return f(std::int16_t{}), true;
    case DType::kI32:
      return f(std::int32_t{}), true;
    case DType::kI64:
      return f(std::int64_t{}), true;
    case DType::kU8:
    case DType::kBool:
      return f(std::uint8_t{}), true;
    case DType::kU16:
      return f(std::uint16_t{}), true;
    case DType::kU32:
      return f(std::uint32_t{}), true;
    case DType::kU64:
      return f(std::uint64_t{}), true;
    default:
      return false;
  }
}

// float32, float16 or bfloat16: what is computed in float32.
inline bool is_small_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// Elements [begin, begin + n) of a float32, float16 or bfloat16 tensor as float32: a pointer into it, or into
// `room` (n floats) after decoding.
const float* read_floats(const TensorView& view, std::int64_t begin, std::int64_t n, float* room);
// Where to write elements [begin, begin + n); write_floats then encodes what was written to `room`.
float* floats_to_write(const TensorView& view, std::int64_t begin, float* room);
void write_floats(const TensorView& view, std::int64_t begin, std::int64_t n, const float* room);

// A whole float32, float16 or bfloat16 tensor as float32, decoded into `room` where need be.
const float* all_floats(const TensorView& view, std::vector<float>& room);

// A whole tensor of any number type in double, and back with one rounding (convert.h). Plain kernels compute
// so.
std::vector<double> doubles_of(const TensorView& view);
void write_doubles(const TensorView& view, const std::vector<double>& values);
// "" when input i is left out or has a type that plain kernels of floats take: float32, float16, bfloat16,
// float64.
std::string float_reason(const OpCall& call, std::initializer_list<int> inputs);

inline constexpr std::int64_t kFloatChunk = 1024;  // elements converted at a time

}  // namespace pare
