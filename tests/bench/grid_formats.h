// Weight formats by the names that benchmarks take.
#pragma once

#include <string>

#include "quant/grid/grid.h"

namespace pare::bench {

inline quant::GridFormat grid_format(const std::string& name) {
  quant::GridFormat f;
  const auto set = [&](DType codes, std::int64_t group, DType scales, bool symmetric = true, int bits = 0) {
    f.codes = codes;
    f.group = group;
    f.scales = scales;
    f.symmetric = symmetric;
    f.bits = bits;
  };
  if (name == "int8") set(DType::kI8, 0, DType::kF32);
  if (name == "int4_channel") set(DType::kI4, 0, DType::kF32);
  if (name == "int4_g128") set(DType::kI4, 128, DType::kF32);
  if (name == "int4_g64") set(DType::kI4, 64, DType::kF32);
  if (name == "int4_g32") set(DType::kI4, 32, DType::kF32);
  if (name == "uint4_g32") set(DType::kU4, 32, DType::kF32, false);
  if (name == "int3_g64") set(DType::kI4, 64, DType::kF32, true, 3);
  if (name == "nvfp4") set(DType::kE2M1, 16, DType::kE4M3FN);
  if (name == "mxfp4") set(DType::kE2M1, 32, DType::kE8M0);
  if (name == "mxfp8") set(DType::kE4M3FN, 32, DType::kE8M0);
  if (name == "fp8_channel") set(DType::kE4M3FN, 0, DType::kF32);
  if (name == "int4_g128_bf16") set(DType::kI4, 128, DType::kBF16);
  if (name == "uint4_g128_bf16") set(DType::kU4, 128, DType::kBF16, false);
  if (name == "int4_g32_bf16") set(DType::kI4, 32, DType::kBF16);
  if (name == "int3_g128_bf16") set(DType::kI4, 128, DType::kBF16, true, 3);
  if (name == "int2_g64_bf16") set(DType::kI2, 64, DType::kBF16);
  return f;
}

}  // namespace pare::bench
