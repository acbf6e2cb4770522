// The table's figures are derived again from the codes, and its words are looked up.
#include "engine/numeric/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/error.h"

namespace pare {
namespace {

std::vector<FormatInfo> rows() {
  int count = 0;
  const FormatInfo* first = formats(count);
  return {first, first + count};
}

TEST(FormatTable, AgreesWithDType) {
  int last = 0;
  for (const FormatInfo& row : rows()) {
    EXPECT_EQ(row.bits, bits(row.dtype)) << row.name;
    EXPECT_STREQ(row.name, name(row.dtype));
    EXPECT_EQ(row.onnx_code, static_cast<int>(row.dtype)) << row.name;
    EXPECT_GT(row.onnx_code, last) << "in the order of DType";
    last = row.onnx_code;
    EXPECT_EQ(find_format(row.dtype)->name, row.name);
    EXPECT_EQ(find_format(std::string(row.name))->dtype, row.dtype);
    if (row.safetensors != nullptr) {
      EXPECT_EQ(find_format(std::string(row.safetensors))->dtype, row.dtype);
    }
  }
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    const bool number = is_float(type) || is_integer(type) || type == DType::kBool || type == DType::kE8M0;
    EXPECT_EQ(find_format(type) != nullptr, number) << name(type);
  }
}

TEST(FormatTable, FiguresFollowFromTheCodes) {
  for (const FormatInfo& row : rows()) {
    if (row.bits > 16 || row.decode == nullptr) continue;
    double largest = 0, lowest = 0, smallest = std::numeric_limits<double>::infinity();
    bool inf = false, nan = false, negative = false;
    for (int code = 0; code < 1 << row.bits; ++code) {
      const auto stored = static_cast<std::uint16_t>(code);
      float value = 0;
      row.decode(&stored, &value, 1);
      const auto v = static_cast<double>(value);
      inf |= std::isinf(v);
      nan |= std::isnan(v);
      if (!std::isfinite(v)) continue;
      largest = std::max(largest, v);
      lowest = std::min(lowest, v);
      negative |= v < 0;
      if (v > 0) smallest = std::min(smallest, v);
    }
    EXPECT_EQ(row.largest, largest) << row.name;
    EXPECT_EQ(row.smallest, smallest) << row.name;
    EXPECT_EQ(row.has_inf, inf) << row.name;
    EXPECT_EQ(row.has_nan, nan) << row.name;
    EXPECT_EQ(row.is_signed, negative) << row.name;
    EXPECT_EQ(row.lowest(), row.dtype == DType::kE8M0 ? smallest : lowest) << row.name;
    if (is_float(row.dtype)) {
      EXPECT_EQ(row.smallest_normal, std::ldexp(row.smallest, row.mantissa_bits)) << row.name;
    }
  }
}

TEST(FormatTable, OpsetsAndIrVersions) {
  const struct {
    DType type;
    int opset, ir;
  } cases[] = {{DType::kU8, 10, 3},       {DType::kI8, 10, 3},  {DType::kE4M3FN, 19, 9},
               {DType::kE5M2FNUZ, 19, 9}, {DType::kI16, 21, 3}, {DType::kU16, 21, 3},
               {DType::kI4, 21, 10},      {DType::kU4, 21, 10}, {DType::kE2M1, 23, 11},
               {DType::kE8M0, 24, 12},    {DType::kI2, 25, 13}, {DType::kU2, 25, 13},
               {DType::kF16, 0, 3},       {DType::kI64, 0, 3}};
  for (const auto& c : cases) {
    EXPECT_EQ(format_info(c.type).qdq_opset, c.opset) << name(c.type);
    EXPECT_EQ(format_info(c.type).min_ir, c.ir) << name(c.type);
  }
}

TEST(FormatTable, WordsAndErrors) {
  EXPECT_EQ(find_format("fp8")->dtype, DType::kE4M3FN);
  EXPECT_EQ(find_format("F8_E5M2")->dtype, DType::kE5M2);
  EXPECT_EQ(find_format("bf16")->dtype, DType::kBF16);
  EXPECT_EQ(find_format("BF16")->dtype, DType::kBF16);
  EXPECT_EQ(find_format("fp4")->dtype, DType::kE2M1);
  EXPECT_EQ(find_format(""), nullptr);
  EXPECT_EQ(find_format("Int8"), nullptr);
  try {
    format_info(DType::kString);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("string"), std::string::npos);
  }
}

}  // namespace
}  // namespace pare
