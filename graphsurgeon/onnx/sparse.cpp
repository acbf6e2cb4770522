#include "graphsurgeon/onnx/sparse.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/base/limits.h"

namespace pare {
namespace {

// The place in the flattened tensor, or Error.
std::int64_t flat_index(const std::int64_t* index, bool linear, const Dims& dims, std::int64_t elements) {
  if (linear) {
    if (index[0] < 0 || index[0] >= elements)
      fail(ErrorCode::kBadFile, "index {} is outside of {}", index[0], to_string(dims));
    return index[0];
  }
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (index[d] < 0 || index[d] >= dims[d])
      fail(ErrorCode::kBadFile, "index {} of axis {} is outside of {}", index[d], d, to_string(dims));
    flat = flat * dims[d] + index[d];
  }
  return flat;
}

Tensor densify(const onnx::SparseTensorProto& proto, TensorSource& source) {
  const Dims dims(proto.dims().begin(), proto.dims().end());
  if (dims.size() > limits::kMaxRank) fail(ErrorCode::kBadFile, "its rank is {}", dims.size());
  const std::int64_t elements = element_count(dims);
  const DType type = dtype_of(proto.values().data_type());
  if (type == DType::kString || bits(type) < 8)
    throw make_error(ErrorCode::kUnsupported, "sparse tensors of {} are not read", name(type))
        .hint("store the tensor densely");
  const std::int64_t bytes = byte_count(type, dims);
  if (bytes > kMaxDensifiedBytes)
    throw make_error(ErrorCode::kUnsupported, "{} of shape {} has {} bytes when dense; at most {} are made",
                     name(type), to_string(dims), bytes, kMaxDensifiedBytes)
        .hint("pare computes with dense tensors; one as sparse as this needs another tool");
  const Tensor values = read_tensor(proto.values(), source), indices = read_tensor(proto.indices(), source);
  const std::int64_t count = values.size();
  if (values.dims().size() != 1)
    fail(ErrorCode::kBadFile, "its values have shape {}, not [NNZ]", to_string(values.dims()));
  const auto rank = static_cast<std::int64_t>(dims.size());
  const bool linear = indices.dims() == Dims{count};
  if (indices.dtype() != DType::kI64 || (!linear && indices.dims() != Dims{count, rank}))
    fail(ErrorCode::kBadFile, "its indices are {} {}, not int64 [{}] or [{},{}]", name(indices.dtype()),
         to_string(indices.dims()), count, count, rank);
  Tensor dense = Tensor::allocate(type, dims);
  const auto width = static_cast<std::size_t>(bits(type) / 8);
  auto* out = dense.mut<std::byte>();
  if (bytes > 0) std::memset(out, 0, static_cast<std::size_t>(bytes));
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at =
        flat_index(indices.as<std::int64_t>() + i * (linear ? 1 : rank), linear, dims, elements);
    if (at <= last) fail(ErrorCode::kBadFile, "its indices are not ascending, or one stands twice");
    last = at;
    std::memcpy(out + static_cast<std::size_t>(at) * width,
                values.as<std::byte>() + static_cast<std::size_t>(i) * width, width);
  }
  return dense;
}

}  // namespace

Tensor read_sparse(const onnx::SparseTensorProto& proto, TensorSource& source) {
  return with_context("reading sparse tensor '" + proto.values().name() + "'",
                      [&] { return densify(proto, source); });
}

}  // namespace pare
