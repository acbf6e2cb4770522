#include "engine/base/dtype.h"

namespace pare {
namespace {

struct Row {
  const char* name;
  int bits;
  bool is_float, is_integer;
};

// By DType value.
constexpr Row kRows[kDTypeCount] = {
    {"undefined", 0, false, false},
    {"float32", 32, true, false},
    {"uint8", 8, false, true},
    {"int8", 8, false, true},
    {"uint16", 16, false, true},
    {"int16", 16, false, true},
    {"int32", 32, false, true},
    {"int64", 64, false, true},
    {"string", 0, false, false},
    {"bool", 8, false, false},
    {"float16", 16, true, false},
    {"float64", 64, true, false},
    {"uint32", 32, false, true},
    {"uint64", 64, false, true},
    {"complex64", 64, false, false},
    {"complex128", 128, false, false},
    {"bfloat16", 16, true, false},
    {"float8_e4m3fn", 8, true, false},
    {"float8_e4m3fnuz", 8, true, false},
    {"float8_e5m2", 8, true, false},
    {"float8_e5m2fnuz", 8, true, false},
    {"uint4", 4, false, true},
    {"int4", 4, false, true},
    {"float4_e2m1fn", 4, true, false},
    {"float8_e8m0fnu", 8, false, false},
    {"uint2", 2, false, true},
    {"int2", 2, false, true},
};

const Row& row(DType type) {
  const auto i = static_cast<int>(type);
  return kRows[i < kDTypeCount ? i : 0];
}

}  // namespace

int bits(DType type) { return row(type).bits; }
const char* name(DType type) { return row(type).name; }
bool is_float(DType type) { return row(type).is_float; }
bool is_integer(DType type) { return row(type).is_integer; }

bool dtype_from_name(const std::string& text, DType& out) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (text != kRows[i].name) continue;
    out = static_cast<DType>(i);
    return true;
  }
  return false;
}

}  // namespace pare
