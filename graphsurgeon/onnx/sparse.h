// SparseTensorProto -> dense Tensor. Internal to graphsurgeon/onnx.
#pragma once

#include "graphsurgeon/onnx/tensor_proto.h"

namespace pare {

inline constexpr std::int64_t kMaxDensifiedBytes = std::int64_t{1} << 31;  // of one tensor

// Kernels and passes know dense tensors only, so sparse initializers and Constants are filled up with zeros.
// Indices: [NNZ] of the flattened tensor, or [NNZ, rank]; ascending, each once, as ONNX asks.
// Error kBadFile: dims, counts or indices that contradict each other; kUnsupported: more than
// kMaxDensifiedBytes when dense, strings, and types below 8 bits.
Tensor read_sparse(const onnx::SparseTensorProto& proto, TensorSource& source);

}  // namespace pare
