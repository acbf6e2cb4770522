// Tensors whose numbers are gone: type and sizes are known, memory is none. They stand where a graph needs a
// constant that nobody will look at again: the float weight behind codes that are journaled.
#pragma once

#include "engine/base/tensor.h"

namespace pare {

// Whoever reads it all the same gets NaN (bytes of 0xFF), out of one page that is mapped over and over. Error
// kDevice where the address space for its size is not to be had.
Tensor absent_tensor(DType type, Dims dims);
bool is_absent(const Tensor& tensor);

}  // namespace pare
