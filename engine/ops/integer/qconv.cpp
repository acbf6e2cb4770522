#include "engine/ops/integer/qconv.h"

namespace pare::qconv {
namespace {

std::int64_t at(const std::vector<std::int64_t>& values, std::size_t i, std::int64_t otherwise) {
  return i < values.size() ? values[i] : otherwise;
}

}  // namespace

// One spatial axis is a map of one line.
Geometry geometry(const OpCall& call) {
  const Dims &x = call.input(kQX).dims, &w = call.input(kQW).dims, &y = call.out[0].dims;
  const Node& node = *call.node;
  const auto strides = node.attr_ints("strides"), dilations = node.attr_ints("dilations"),
             pads = node.attr_ints("pads");
  const bool line = x.size() == 3;
  const std::size_t last = line ? 0 : 1;  // the horizontal axis
  Geometry g;
  g.n = x[0], g.w = x[last + 1], g.c = x[last + 2];
  g.ow = y[last + 1], g.m = w[0], g.kw = w[last + 2];
  g.h = line ? 1 : x[1], g.oh = line ? 1 : y[1], g.kh = line ? 1 : w[2];
  g.group = node.attr("group", std::int64_t{1});
  g.sw = at(strides, last, 1), g.dw = at(dilations, last, 1);
  g.left = at(pads, last, 0), g.right = at(pads, line ? 1 : 3, 0);
  g.sh = line ? 1 : at(strides, 0, 1), g.dh = line ? 1 : at(dilations, 0, 1);
  g.top = line ? 0 : at(pads, 0, 0), g.bottom = line ? 0 : at(pads, 2, 0);
  return g;
}

std::string why_not(const OpCall& call) {
  const TensorView &x = call.input(kQX), &w = call.input(kQW), &y = call.out[0];
  const std::size_t rank = x.dims.size();
  if ((rank != 3 && rank != 4) || w.dims.size() != rank || y.dims.size() != rank)
    return "x, w and y are not all of rank 3, or of rank 4";
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
  Dims want = {g.n, size(g.h, g.top + g.bottom, g.kh, g.dh, g.sh),
               size(g.w, g.left + g.right, g.kw, g.dw, g.sw), g.m};
  if (rank == 3) want.erase(want.begin() + 1);
  if (y.dims != want) return "y has not the shape that follows from x and the window";
  return qlinear_why_not(call, g.k(), g.m);
}

}  // namespace pare::qconv
