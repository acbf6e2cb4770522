#include "engine/numeric/table.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/numeric/format_traits.h"

namespace pare {
namespace {

void copy_in(const float* values, void* codes, std::int64_t n) {
  if (n > 0) std::memcpy(codes, values, static_cast<std::size_t>(n) * sizeof(float));
}
void copy_out(const void* codes, float* values, std::int64_t n) {
  if (n > 0) std::memcpy(values, codes, static_cast<std::size_t>(n) * sizeof(float));
}

template <typename F>
void encode_row(const float* values, void* codes, std::int64_t n) {
  auto* out = static_cast<std::uint8_t*>(codes);
  if constexpr (F::kBits == 16) {
    for (std::int64_t i = 0; i < n; ++i) {
      const typename F::Code code = F::encode(values[i]);
      std::memcpy(out + 2 * i, &code, 2);
    }
  } else {
    constexpr int kPerByte = 8 / F::kBits;
    for (std::int64_t i = 0; i < n; i += kPerByte) {
      unsigned byte = 0;
      for (int j = 0; j < kPerByte && i + j < n; ++j)
        byte |= static_cast<unsigned>(F::encode(values[i + j])) << (j * F::kBits);
      out[i / kPerByte] = static_cast<std::uint8_t>(byte);
    }
  }
}

template <typename F>
void decode_row(const void* codes, float* values, std::int64_t n) {
  const auto* in = static_cast<const std::uint8_t*>(codes);
  if constexpr (F::kBits == 16) {
    for (std::int64_t i = 0; i < n; ++i) {
      typename F::Code code;
      std::memcpy(&code, in + 2 * i, 2);
      values[i] = F::decode(code);
    }
  } else {
    constexpr int kPerByte = 8 / F::kBits;
    for (std::int64_t i = 0; i < n; ++i) {
      const unsigned code = static_cast<unsigned>(in[i / kPerByte]) >> (i % kPerByte * F::kBits);
      values[i] = F::decode(static_cast<std::uint8_t>(code & ((1u << F::kBits) - 1)));
    }
  }
}

using namespace traits;  // NOLINT: only the rows below

constexpr double kF32Largest = 3.4028234663852886e38, kF64Largest = 1.7976931348623157e308;

// dtype, name, bits, largest, smallest, smallest normal, mantissa, signed, inf, nan, safetensors, code, qdq,
// ir, rows. Sources: reference of ONNX (TensorProto.DataType, operator versions), safetensors' Dtype.
const FormatInfo kFormats[] = {
    {DType::kF32, "float32", 32, kF32Largest, 0x1p-149, 0x1p-126, 23, true, true, true, "F32", 1, 0, 3,
     copy_in, copy_out},
    {DType::kU8, "uint8", 8, 255, 1, 1, 0, false, false, false, "U8", 2, 10, 3, encode_row<U8>,
     decode_row<U8>},
    {DType::kI8, "int8", 8, 127, 1, 1, 0, true, false, false, "I8", 3, 10, 3, encode_row<I8>, decode_row<I8>},
    {DType::kU16, "uint16", 16, 65535, 1, 1, 0, false, false, false, "U16", 4, 21, 3, encode_row<U16>,
     decode_row<U16>},
    {DType::kI16, "int16", 16, 32767, 1, 1, 0, true, false, false, "I16", 5, 21, 3, encode_row<I16>,
     decode_row<I16>},
    {DType::kI32, "int32", 32, 2147483647.0, 1, 1, 0, true, false, false, "I32", 6, 10, 3, nullptr, nullptr},
    {DType::kI64, "int64", 64, 9223372036854775807.0, 1, 1, 0, true, false, false, "I64", 7, 0, 3, nullptr,
     nullptr},
    {DType::kBool, "bool", 8, 1, 1, 1, 0, false, false, false, "BOOL", 9, 0, 3, nullptr, nullptr},
    {DType::kF16, "float16", 16, 65504, 0x1p-24, 0x1p-14, 10, true, true, true, "F16", 10, 0, 3,
     encode_row<F16>, decode_row<F16>},
    {DType::kF64, "float64", 64, kF64Largest, 0x1p-1074, 0x1p-1022, 52, true, true, true, "F64", 11, 0, 3,
     nullptr, nullptr},
    {DType::kU32, "uint32", 32, 4294967295.0, 1, 1, 0, false, false, false, "U32", 12, 0, 3, nullptr,
     nullptr},
    {DType::kU64, "uint64", 64, 18446744073709551615.0, 1, 1, 0, false, false, false, "U64", 13, 0, 3,
     nullptr, nullptr},
    {DType::kBF16, "bfloat16", 16, 0x1.FEp127, 0x1p-133, 0x1p-126, 7, true, true, true, "BF16", 16, 0, 4,
     encode_row<BF16>, decode_row<BF16>},
    {DType::kE4M3FN, "float8_e4m3fn", 8, 448, 0x1p-9, 0x1p-6, 3, true, false, true, "F8_E4M3", 17, 19, 9,
     encode_row<E4M3>, decode_row<E4M3>},
    {DType::kE4M3FNUZ, "float8_e4m3fnuz", 8, 240, 0x1p-10, 0x1p-7, 3, true, false, true, nullptr, 18, 19, 9,
     encode_row<E4M3Fnuz>, decode_row<E4M3Fnuz>},
    {DType::kE5M2, "float8_e5m2", 8, 57344, 0x1p-16, 0x1p-14, 2, true, true, true, "F8_E5M2", 19, 19, 9,
     encode_row<E5M2>, decode_row<E5M2>},
    {DType::kE5M2FNUZ, "float8_e5m2fnuz", 8, 57344, 0x1p-17, 0x1p-15, 2, true, false, true, nullptr, 20, 19,
     9, encode_row<E5M2Fnuz>, decode_row<E5M2Fnuz>},
    {DType::kU4, "uint4", 4, 15, 1, 1, 0, false, false, false, nullptr, 21, 21, 10, encode_row<U4>,
     decode_row<U4>},
    {DType::kI4, "int4", 4, 7, 1, 1, 0, true, false, false, nullptr, 22, 21, 10, encode_row<I4>,
     decode_row<I4>},
    {DType::kE2M1, "float4_e2m1fn", 4, 6, 0.5, 1, 1, true, false, false, "F4", 23, 23, 11, encode_row<E2M1>,
     decode_row<E2M1>},
    {DType::kE8M0, "float8_e8m0fnu", 8, 0x1p127, 0x1p-127, 0x1p-127, 0, false, false, true, "F8_E8M0", 24, 24,
     12, encode_row<E8M0>, decode_row<E8M0>},
    {DType::kU2, "uint2", 2, 3, 1, 1, 0, false, false, false, nullptr, 25, 25, 13, encode_row<U2>,
     decode_row<U2>},
    {DType::kI2, "int2", 2, 1, 1, 1, 0, true, false, false, nullptr, 26, 25, 13, encode_row<I2>,
     decode_row<I2>},
};
constexpr int kFormatCount = static_cast<int>(sizeof(kFormats) / sizeof(kFormats[0]));

// Words of papers and other tools for rows of the table.
struct Alias {
  const char* word;
  DType type;
};
constexpr Alias kAliases[] = {
    {"fp32", DType::kF32},   {"f32", DType::kF32},           {"float", DType::kF32},
    {"fp16", DType::kF16},   {"f16", DType::kF16},           {"half", DType::kF16},
    {"bf16", DType::kBF16},  {"fp64", DType::kF64},          {"double", DType::kF64},
    {"fp8", DType::kE4M3FN}, {"e4m3", DType::kE4M3FN},       {"e4m3fn", DType::kE4M3FN},
    {"e5m2", DType::kE5M2},  {"fp4", DType::kE2M1},          {"e2m1", DType::kE2M1},
    {"e8m0", DType::kE8M0},  {"e4m3fnuz", DType::kE4M3FNUZ}, {"e5m2fnuz", DType::kE5M2FNUZ},
};

}  // namespace

double FormatInfo::lowest() const {
  if (!is_signed) return dtype == DType::kE8M0 ? smallest : 0;
  return is_integer() ? -largest - 1 : -largest;
}

const FormatInfo* find_format(DType type) {
  for (const FormatInfo& row : kFormats)
    if (row.dtype == type) return &row;
  return nullptr;
}

const FormatInfo* find_format(const std::string& word) {
  for (const FormatInfo& row : kFormats)
    if (word == row.name || (row.safetensors != nullptr && word == row.safetensors)) return &row;
  for (const Alias& alias : kAliases)
    if (word == alias.word) return find_format(alias.type);
  return nullptr;
}

const FormatInfo& format_info(DType type) {
  const FormatInfo* row = find_format(type);
  if (row == nullptr)
    throw make_error(ErrorCode::kUnsupported, "{} is not a number format that pare computes with",
                     name(type));
  return *row;
}

const FormatInfo* formats(int& count) {
  count = kFormatCount;
  return kFormats;
}

}  // namespace pare
