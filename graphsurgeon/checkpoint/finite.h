// NaN and infinities in weights: which tensor has how many, in one message for every way that reads it.
#pragma once

#include <string>

#include "engine/base/tensor.h"
#include "graphsurgeon/checkpoint/weights.h"

namespace pare {

// Of a float tensor of 8 to 32 bits; tensors of other types have none.
NonfiniteWeights count_nonfinite(const std::string& name, const Tensor& tensor);

// Error kBadFile at `where` when there are any: the name, both counts, the size.
void refuse_nonfinite(const std::string& name, const Tensor& tensor, const std::string& where);

}  // namespace pare
