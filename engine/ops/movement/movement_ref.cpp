// Data movement as index arithmetic: for each output element, which input element is it?
#include <cstring>

#include "engine/base/error.h"
#include "engine/ir/slice.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

using Index = std::vector<std::int64_t>;

Index unravel(std::int64_t i, const Dims& dims) {
  Index index(dims.size());
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = i % dims[axis];
    i /= dims[axis];
  }
  return index;
}

std::int64_t ravel(const Index& index, const Dims& dims) {
  std::int64_t i = 0;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) i = i * dims[axis] + index[axis];
  return i;
}

void copy_element(const TensorView& x, std::int64_t from, const TensorView& y, std::int64_t to) {
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  std::memcpy(y.mut<std::byte>() + static_cast<std::size_t>(to) * size,
              x.as<std::byte>() + static_cast<std::size_t>(from) * size, size);
}

std::string why_not(const OpCall& call) { return moved_type_reason(call, 0); }

void run_transpose(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  Index perm = call.node->attr_ints("perm");
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  if (perm.empty())
    for (std::int64_t i = rank; i-- > 0;) perm.push_back(i);
  const std::int64_t count = y.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const Index at = unravel(i, y.dims);
    Index from(at.size());
    for (std::size_t k = 0; k < at.size(); ++k)
      from[static_cast<std::size_t>((perm[k] + rank) % rank)] = at[k];
    copy_element(x, ravel(from, x.dims), y, i);
  }
}

void run_slice(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const Index starts = ints_of(call.in[1]), ends = ints_of(call.in[2]);
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  const std::int64_t count = y.size();
  for (std::int64_t i = 0; i < count; ++i) {
    Index at = unravel(i, y.dims);
    for (std::size_t k = 0; k < starts.size(); ++k) {
      std::int64_t axis = call.has(3) ? ints_of(call.in[3])[k] : static_cast<std::int64_t>(k);
      axis = (axis + rank) % rank;
      const std::int64_t step = call.has(4) ? ints_of(call.in[4])[k] : 1;
      const std::int64_t size = x.dims[static_cast<std::size_t>(axis)];
      std::int64_t& place = at[static_cast<std::size_t>(axis)];
      place = resolve_slice(starts[k], ends[k], step, size).start + (place == 0 ? 0 : place * step);
    }
    copy_element(x, ravel(at, x.dims), y, i);
  }
}

void run_repeat(const OpCall& call) {  // Expand and Tile: the place modulo the input's size
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t count = y.size();
  const std::size_t missing = y.dims.size() - x.dims.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const Index at = unravel(i, y.dims);
    Index from(x.dims.size());
    for (std::size_t k = 0; k < from.size(); ++k) from[k] = at[k + missing] % x.dims[k];
    copy_element(x, ravel(from, x.dims), y, i);
  }
}

void run_concat(const OpCall& call) {
  const TensorView& y = call.out[0];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(y.dims.size())));
  std::int64_t begin = 0;
  for (const TensorView& x : call.in) {
    const std::int64_t count = x.size();
    for (std::int64_t i = 0; i < count; ++i) {
      Index at = unravel(i, x.dims);
      at[axis] += begin;
      copy_element(x, i, y, ravel(at, y.dims));
    }
    begin += x.dims[axis];
  }
}

void run_split(const OpCall& call) {
  const TensorView& x = call.in[0];
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", 0, static_cast<std::int64_t>(x.dims.size())));
  const std::vector<std::int64_t> sizes = split_sizes(call);
  std::int64_t begin = 0;
  for (std::size_t part = 0; part < call.out.size(); begin += sizes[part++]) {
    const TensorView& y = call.out[part];
    if (!y.present()) continue;
    const std::int64_t count = y.size();
    for (std::int64_t i = 0; i < count; ++i) {
      Index at = unravel(i, y.dims);
      at[axis] += begin;
      copy_element(x, ravel(at, x.dims), y, i);
    }
  }
}

void run_blocks(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const bool to_space = call.node->op == "DepthToSpace";
  const bool channel_last = call.node->attr("mode", "DCR") == "CRD";
  const std::int64_t b = call.node->attr("blocksize", std::int64_t{1});
  const TensorView& wide = to_space ? y : x;
  const TensorView& deep = to_space ? x : y;
  const std::int64_t channels = wide.dims[1], count = wide.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const Index at = unravel(i, wide.dims);
    const std::int64_t block = at[2] % b * b + at[3] % b;
    const std::int64_t channel = channel_last ? at[1] * b * b + block : block * channels + at[1];
    const std::int64_t place = ravel({at[0], channel, at[2] / b, at[3] / b}, deep.dims);
    copy_element(x, to_space ? place : i, y, to_space ? i : place);
  }
}

std::string sequence_why_not(const OpCall& call) {
  std::string reason = moved_type_reason(call, 0);
  return reason.empty() ? type_reason(call, 1, {DType::kI64}) : reason;
}

void run_reverse(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const auto rank = static_cast<std::int64_t>(x.dims.size());
  const std::int64_t time = axis_of(*call.node, "time_axis", 0, rank),
                     batch = axis_of(*call.node, "batch_axis", 1, rank);
  const Index lengths = ints_of(call.in[1]);
  if (time < 0 || batch < 0 || time >= rank || batch >= rank || time == batch ||
      static_cast<std::int64_t>(lengths.size()) != x.dims[static_cast<std::size_t>(batch)])
    throw make_error(ErrorCode::kBadFile, "{} lengths for axes {} and {} of {}", lengths.size(), batch, time,
                     to_string(x.dims));
  const std::int64_t most = x.dims[static_cast<std::size_t>(time)], count = y.size();
  for (const std::int64_t length : lengths)
    if (length < 0 || length > most)
      throw make_error(ErrorCode::kBadFile, "a sequence of {} in {} places", length, most);
  for (std::int64_t i = 0; i < count; ++i) {
    Index at = unravel(i, y.dims);
    std::int64_t& place = at[static_cast<std::size_t>(time)];
    const std::int64_t length = lengths[static_cast<std::size_t>(at[static_cast<std::size_t>(batch)])];
    if (place < length) place = length - 1 - place;
    copy_element(x, ravel(at, x.dims), y, i);
  }
}

}  // namespace

void add_movement_references(Registry& registry) {
  add_kernel(registry, "Transpose", "reference", why_not, run_transpose);
  add_kernel(registry, "Slice", "reference", why_not, run_slice);
  add_kernel(registry, "Expand", "reference", why_not, run_repeat);
  add_kernel(registry, "Tile", "reference", why_not, run_repeat);
  add_kernel(registry, "Concat", "reference", why_not, run_concat);
  add_kernel(registry, "Split", "reference", why_not, run_split);
  add_kernel(registry, "DepthToSpace", "reference", why_not, run_blocks);
  add_kernel(registry, "SpaceToDepth", "reference", why_not, run_blocks);
  add_kernel(registry, "ReverseSequence", "reference", sequence_why_not, run_reverse);
}

}  // namespace pare
