// Element types. The values are those of onnx.TensorProto.DataType, so no second table maps them.
// How each one is encoded is engine/numeric's business; here is only what a tensor needs to know.
#pragma once

#include <cstdint>
#include <string>

namespace pare {

enum class DType : std::uint8_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBF16 = 16,
  kE4M3FN = 17,
  kE4M3FNUZ = 18,
  kE5M2 = 19,
  kE5M2FNUZ = 20,
  kU4 = 21,
  kI4 = 22,
  kE2M1 = 23,
  kE8M0 = 24,
  kU2 = 25,
  kI2 = 26
};
inline constexpr int kDTypeCount = 27;

int bits(DType type);          // 4 for int4; 0 for undefined and string
const char* name(DType type);  // "float32", "int8", "float8_e4m3fn", ... (NumPy, ml_dtypes)
bool dtype_from_name(const std::string& text, DType& out);
bool is_float(DType type);    // any floating format, 4 and 8 bit ones included; not E8M0
bool is_integer(DType type);  // signed or unsigned, 2 to 64 bits; not bool

}  // namespace pare
