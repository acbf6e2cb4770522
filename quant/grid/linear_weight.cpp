#include "quant/grid/linear_weight.h"

#include "engine/base/error.h"

namespace pare::quant {

WeightView view_weight(const Dims& dims, int out, int in) {
  const int rank = static_cast<int>(dims.size());
  if (in < 0) in = out == 0 ? 1 : out - 1;
  PARE_ASSERT(rank >= 2 && out >= 0 && out < rank && in < rank && in != out);
  WeightView view;
  std::int64_t stride = 1;
  int last = -1;  // the tap axis behind, when there is one
  for (int axis = rank - 1; axis >= 0; --axis) {
    const std::int64_t size = dims[static_cast<std::size_t>(axis)];
    if (axis == out) {
      view.outs = size, view.out_stride = stride;
    } else if (axis == in) {
      view.ins = size, view.in_stride = stride;
    } else {
      PARE_ASSERT(last < 0 || last == axis + 1);
      if (last < 0) view.tap_stride = stride;
      view.taps *= size;
      last = axis;
    }
    stride *= size;
  }
  return view;
}

bool view_weight(const Graph& graph, const Node& node, WeightView& view) {
  if (node.in.size() < 2 || !graph.is_constant(node.in[1]) || graph.value(node.in[1]).dtype != DType::kF32)
    return false;
  const Dims dims = graph.value(node.in[1]).constant.dims();
  if (node.is("Conv")) {
    if (dims.size() < 3) return false;
    view.outs = dims[0];
    view.ins = dims[1];
    view.groups = node.attr("group", std::int64_t{1});
    for (std::size_t i = 2; i < dims.size(); ++i) view.taps *= dims[i];
    view.in_stride = view.taps;
    view.out_stride = view.taps * view.ins;
    return view.outs > 0 && view.groups > 0 && view.outs % view.groups == 0;
  }
  if (dims.size() != 2 || (!node.is("Gemm") && !node.is("MatMul"))) return false;
  if (node.is("Gemm") && node.attr("transA", std::int64_t{0}) != 0) return false;
  const bool transposed = node.is("Gemm") && node.attr("transB", std::int64_t{0}) != 0;
  view.ins = transposed ? dims[1] : dims[0];
  view.outs = transposed ? dims[0] : dims[1];
  view.in_stride = transposed ? 1 : view.outs;
  view.out_stride = transposed ? view.ins : 1;
  return view.outs > 0;
}

}  // namespace pare::quant
