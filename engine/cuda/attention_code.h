// What the attention kernels share (kernel_attention.cpp, kernel_attention_rows.cpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/kernel_source.h"

namespace pare::cuda {

struct AttentionCode {
  DType type = DType::kF16;  // of the products' operands: 16 bits
  std::string finish;        // float finish_(float v): codes of the output
  std::vector<std::pair<std::string, std::string>>
      words;  // sizes, strides, types, what is done to probabilities
};
AttentionCode attention_code(const EnginePlan& plan, const PlanLayer& layer);
// f += mask at (query, key), times `factor`; "" without a mask. Needs b, h and key in scope.
std::string attention_mask_code(const PlanLayer& layer, const char* query, const char* factor);

// All scores of a row at once, on wgmma: heads of 64, at most 256 keys. None when it cannot do the layer.
std::vector<KernelSource> attention_rows_kernels(const EnginePlan& plan, const PlanLayer& layer);

}  // namespace pare::cuda
