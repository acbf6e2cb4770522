#include "calib/gram_geometry.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::size_t kMostAxes = 8;

std::int64_t positive_or(std::int64_t value) { return std::max<std::int64_t>(value, 0); }

}  // namespace

bool GramGeometry::operator==(const GramGeometry& o) const {
  return conv == o.conv && first_axis == o.first_axis && ins == o.ins && taps == o.taps &&
         groups == o.groups && window.kernel == o.window.kernel && window.strides == o.window.strides &&
         window.dilations == o.window.dilations && window.pads_begin == o.window.pads_begin &&
         window.pads_end == o.window.pads_end && window.auto_pad == o.window.auto_pad;
}

bool gram_geometry(const Graph& graph, const Node& node, GramGeometry& geometry) {
  geometry = {};
  if (node.in.size() < 2 || node.in[0] == ValueId::kNone || !graph.is_constant(node.in[1])) return false;
  const Dims& dims = graph.value(node.in[1]).constant.dims();
  if (node.is("Conv")) {
    if (dims.size() < 3 || dims.size() > kMostAxes) return false;
    geometry.conv = true;
    geometry.ins = dims[1];
    geometry.groups = node.attr("group", std::int64_t{1});
    geometry.window = read_window(node, {dims.begin() + 2, dims.end()});
    for (std::size_t i = 2; i < dims.size(); ++i) geometry.taps *= dims[i];
    return geometry.groups > 0 && geometry.n() > 0;
  }
  if (dims.size() != 2) return false;
  if (node.is("MatMul")) {
    geometry.ins = dims[0];
  } else if (node.is("Gemm")) {
    geometry.first_axis = node.attr("transA", std::int64_t{0}) != 0;
    geometry.ins = dims[node.attr("transB", std::int64_t{0}) != 0 ? 1 : 0];
  } else {
    return false;
  }
  return geometry.ins > 0;
}

GramRows::GramRows(const GramGeometry& geometry, const Dims& dims, Layout layout)
    : geometry_(geometry), window_(geometry.window) {
  const std::size_t rank = dims.size();
  if (rank == 0 || rank > kMostAxes)
    throw make_error(ErrorCode::kUsage, "a tensor of {} axes as a layer's input", rank)
        .hint("leave the layer out (ignore, --exclude)");
  std::vector<std::int64_t> stride(rank, 1);
  for (std::size_t d = rank - 1; d > 0; --d) stride[d - 1] = stride[d] * dims[d];
  Dims logical = dims;
  if (layout == Layout::kChannelsLast && rank > 2) {  // [N, ..., C] is [N, C, ...] with other strides
    std::rotate(logical.begin() + 1, logical.end() - 1, logical.end());
    std::rotate(stride.begin() + 1, stride.end() - 1, stride.end());
  }
  const std::size_t axis = geometry.conv ? 1 : geometry.first_axis ? 0 : rank - 1;
  const std::int64_t channels = geometry.ins * geometry.groups;
  if ((geometry.conv && static_cast<int>(rank) != window_.axes() + 2) || logical[axis] != channels)
    throw make_error(ErrorCode::kUsage, "an input of shape {} for a layer of {} channels{}",
                     to_string(logical), channels,
                     geometry.conv ? fmt::format(" and {} spatial axes", window_.axes()) : "")
        .hint("leave the layer out (ignore, --exclude)");
  column_stride_ = stride[axis];
  if (geometry.conv) {
    size_.assign(logical.begin() + 2, logical.end());
    stride_.assign(stride.begin() + 2, stride.end());
    resolve_pads(window_, size_);
    outer_ = {logical[0]};
    outer_stride_ = {stride[0]};
    for (int a = 0; a < window_.axes(); ++a)
      outer_.push_back(positive_or(window_output(window_, a, size_[static_cast<std::size_t>(a)])));
  } else {
    for (std::size_t d = 0; d < rank; ++d)
      if (d != axis) {
        outer_.push_back(logical[d]);
        outer_stride_.push_back(stride[d]);
      }
  }
  for (const std::int64_t size : outer_) positions_ *= size;
}

void GramRows::gather(const float* x, std::int64_t begin, std::int64_t end, std::int64_t group_stride,
                      std::int64_t column_stride, float* out) const {
  const std::int64_t width = geometry_.n() * geometry_.groups;
  for (std::int64_t p = begin; p < end; ++p, out += width)
    if (geometry_.conv)
      gather_window(x, p, group_stride, column_stride, out);
    else
      gather_one(x, p, group_stride, column_stride, out);
}

void GramRows::gather_one(const float* x, std::int64_t position, std::int64_t, std::int64_t,
                          float* out) const {
  for (std::size_t d = outer_.size(); d-- > 0;) {
    x += position % outer_[d] * outer_stride_[d];
    position /= outer_[d];
  }
  if (column_stride_ == 1) {
    std::copy_n(x, geometry_.ins, out);
  } else {
    for (std::int64_t c = 0; c < geometry_.ins; ++c) out[c] = x[c * column_stride_];
  }
}

void GramRows::gather_window(const float* x, std::int64_t position, std::int64_t group_stride,
                             std::int64_t column_stride, float* out) const {
  const std::size_t axes = size_.size();
  std::int64_t corner[kMostAxes] = {};  // input coordinate of the first tap
  for (std::size_t a = axes; a-- > 0;) {
    corner[a] = position % outer_[a + 1] * window_.strides[a] - window_.pads_begin[a];
    position /= outer_[a + 1];
  }
  x += position * outer_stride_[0];
  std::int64_t tap_at[kMostAxes] = {};
  for (std::int64_t tap = 0; tap < geometry_.taps; ++tap) {
    const float* from = x;
    bool inside = true;
    for (std::size_t a = 0; a < axes; ++a) {
      const std::int64_t at = corner[a] + tap_at[a] * window_.dilations[a];
      inside = inside && at >= 0 && at < size_[a];
      if (inside) from += at * stride_[a];
    }
    for (std::int64_t g = 0; g < geometry_.groups; ++g) {
      float* to = out + g * group_stride + tap * geometry_.ins * column_stride;
      const float* channel = from + g * geometry_.ins * column_stride_;
      for (std::int64_t c = 0; c < geometry_.ins; ++c)
        to[c * column_stride] = inside ? channel[c * column_stride_] : 0.0f;
    }
    for (std::size_t a = axes; a-- > 0;) {
      if (++tap_at[a] < window_.kernel[a]) break;
      tap_at[a] = 0;
    }
  }
}

}  // namespace pare
