#include "engine/ops/qconv.h"

namespace pare::qconv {
namespace {

std::int64_t at(const std::vector<std::int64_t>& values, std::size_t i, std::int64_t otherwise) {
  return i < values.size() ? values[i] : otherwise;
}

}  // namespace

Geometry geometry(const OpCall& call) {
  const Dims &x = call.input(kQX).dims, &w = call.input(kQW).dims, &y = call.out[0].dims;
  const Node& node = *call.node;
  const auto strides = node.attr_ints("strides"), dilations = node.attr_ints("dilations"),
             pads = node.attr_ints("pads");
  Geometry g;
  g.n = x[0], g.h = x[1], g.w = x[2], g.c = x[3];
  g.oh = y[1], g.ow = y[2], g.m = w[0];
  g.kh = w[2], g.kw = w[3];
  g.group = node.attr("group", std::int64_t{1});
  g.sh = at(strides, 0, 1), g.sw = at(strides, 1, 1);
  g.dh = at(dilations, 0, 1), g.dw = at(dilations, 1, 1);
  g.top = at(pads, 0, 0), g.left = at(pads, 1, 0), g.bottom = at(pads, 2, 0), g.right = at(pads, 3, 0);
  return g;
}

std::string why_not(const OpCall& call) {
  const TensorView &x = call.input(kQX), &w = call.input(kQW), &y = call.out[0];
  if (x.dims.size() != 4 || w.dims.size() != 4 || y.dims.size() != 4)
    return "x, w and y are not all of rank 4";
  if (w.data == nullptr) return "w is not a constant";
  const Geometry g = geometry(call);
  if (g.sh < 1 || g.sw < 1 || g.dh < 1 || g.dw < 1) return "strides and dilations must be positive";
  if (g.top < 0 || g.left < 0 || g.bottom < 0 || g.right < 0) return "pads must not be negative";
  if (g.group < 1 || g.c % g.group != 0 || g.m % g.group != 0 || w.dims[1] != g.c / g.group)
    return "channels do not fit the groups";
  if (g.h + g.top + g.bottom < (g.kh - 1) * g.dh + 1 || g.w + g.left + g.right < (g.kw - 1) * g.dw + 1)
    return "the window is larger than x";
  const auto size = [](std::int64_t in, std::int64_t pad, std::int64_t k, std::int64_t d, std::int64_t s) {
    return (in + pad - (k - 1) * d - 1) / s + 1;
  };
  if (y.dims != Dims{g.n, size(g.h, g.top + g.bottom, g.kh, g.dh, g.sh),
                     size(g.w, g.left + g.right, g.kw, g.dw, g.sw), g.m})
    return "y has not the shape that follows from x and the window";
  return qlinear_why_not(call, g.k(), g.m);
}

}  // namespace pare::qconv
