// Convolutions and pools of one axis, transposed convolutions that only move, LSTMs step by step.
#include <algorithm>
#include <cstring>

#include "engine/build/plan/plan_forms.h"
#include "engine/build/plan/plan_forms_write.h"
#include "engine/ir/window.h"
#include "engine/numeric/convert.h"
#include "engine/run/evaluate.h"

namespace pare::planning {
namespace {

// A constant, also one that a DequantizeLinear of constants gives.
bool known_weight(const Graph& graph, ValueId value, Tensor& weight) {
  if (value == ValueId::kNone) return false;
  if (graph.is_constant(value)) {
    weight = graph.value(value).constant;
    return true;
  }
  const NodeId id = graph.producer(value);
  if (id == NodeId::kNone || !graph.node(id).is("DequantizeLinear") || !is_foldable(graph, graph.node(id)))
    return false;
  weight = evaluate_constant_node(graph, graph.node(id))[0];
  return true;
}

// One step and zero point for the whole tensor.
bool one_step(const Graph& graph, const Node& node) {
  if (!node.is("QuantizeLinear") && !node.is("DequantizeLinear")) return false;
  for (std::size_t slot = 1; slot < node.in.size(); ++slot)
    if (node.in[slot] != ValueId::kNone &&
        (!graph.is_constant(node.in[slot]) || graph.value(node.in[slot]).constant.size() != 1))
      return false;
  return true;
}

// x [N,C,L] as [N,C,1,L]. Q/DQ and Relu on its way here move behind the reshape, so that they stay next to
// the layers that absorb them, and between two such layers there is no reshape at all.
ValueId widened(Rewrite& to, ValueId x, const Dims& wide) {
  const Graph& graph = to.graph();
  const NodeId id = graph.producer(x);
  if (id == NodeId::kNone || graph.is_output(x)) return to.reshape(x, wide);
  const Node node = graph.node(id);  // a copy: adding nodes moves those that are there
  if (node.is("Reshape") && graph.value(node.in[0]).shape.concrete() && to.dims(node.in[0]) == wide)
    return node.in[0];
  if (!one_step(graph, node) && !(node.is("Relu") && graph.only_user(x) != NodeId::kNone))
    return to.reshape(x, wide);
  std::vector<ValueId> in = node.in;
  in[0] = widened(to, in[0], wide);
  const ValueId moved = to.add(node.op.c_str(), std::move(in), node.attrs);
  to.graph().value(moved).dtype = to.graph().value(x).dtype;
  return moved;
}

// The weight with its axis of 1; codes stay codes, with their steps behind them.
ValueId widened_weight(Rewrite& to, const Tensor& weight) {
  const auto wide = [](const Tensor& w) {
    const Dims& d = w.dims();
    return w.reshaped({d[0], d[1], 1, d[2]});
  };
  const NodeId id = to.graph().producer(to.in(1));
  if (id == NodeId::kNone) return to.constant(wide(weight));
  const Node node = to.graph().node(id);
  // Steps of one number or for each output channel; blocks along another axis become floats.
  if (!to.graph().is_constant(node.in[0]) || node.attr("block_size", std::int64_t{0}) != 0 ||
      (to.graph().value(node.in[1]).constant.size() != 1 && node.attr("axis", std::int64_t{1}) != 0))
    return to.constant(wide(weight));
  std::vector<ValueId> in = node.in;
  in[0] = to.constant(wide(to.graph().value(node.in[0]).constant));
  const ValueId out = to.add("DequantizeLinear", std::move(in), node.attrs);
  to.graph().value(out).dtype = weight.dtype();
  return out;
}

// [N,C,L] as [N,C,1,L] and back; attributes of a window get an axis of 1 in front.
bool widen_axis(Rewrite& to) {
  const Node& node = to.node();
  const bool conv = node.is("Conv");
  if (node.out.size() != 1 || !to.sized(to.in(0)) || !to.sized(to.out(0)) || to.dims(to.in(0)).size() != 3)
    return false;
  Tensor weight;
  if (conv && !known_weight(to.graph(), to.in(1), weight)) return false;
  if (conv && weight.dims().size() != 3) return false;
  Attributes attrs = node.attrs;
  const auto front = [&](const char* key, std::int64_t one) {
    const std::vector<std::int64_t> old = node.attr_ints(key);
    if (old.size() == 1) attrs[key] = std::vector<std::int64_t>{one, old[0]};
    if (old.size() == 2) attrs[key] = std::vector<std::int64_t>{one, old[0], one, old[1]};  // pads
  };
  front("kernel_shape", 1), front("strides", 1), front("dilations", 1), front("pads", 0);
  const Dims x = to.dims(to.in(0)), y = to.dims(to.out(0));
  std::vector<ValueId> in = {widened(to, to.in(0), {x[0], x[1], 1, x[2]})};
  if (conv) {
    in.push_back(widened_weight(to, weight));
    if (to.in(2) != ValueId::kNone) in.push_back(to.in(2));
  }
  const ValueId wide = to.add(node.op.c_str(), in, attrs);
  to.graph().value(wide).shape = Shape(Dims{y[0], y[1], 1, y[2]});
  to.give(0, "Reshape", {wide, to.ints(y)});
  to.finish();
  return true;
}

// A vector so many times, one behind the other.
Tensor tiled(const Tensor& v, std::int64_t times) {
  Tensor out = Tensor::allocate(v.dtype(), {times * v.size()});
  for (std::int64_t i = 0; i < times; ++i)
    std::memcpy(out.mut<std::byte>() + i * v.bytes(), v.as<std::byte>(), static_cast<std::size_t>(v.bytes()));
  return out;
}

// [C,M,kH,kW] as [kH kW M, C, 1, 1]; codes stay codes, with their steps behind them.
ValueId turned_weight(Rewrite& to, const Tensor& weight) {
  const Dims d = weight.dims();
  const std::int64_t c = d[0], m = d[1], pixels = d[2] * d[3];
  const auto turned = [&](const Tensor& w) {
    Tensor out = Tensor::allocate(w.dtype(), {pixels * m, c, 1, 1});
    const std::int64_t size = bits(w.dtype()) / 8;
    for (std::int64_t i = 0; i < c; ++i)
      for (std::int64_t j = 0; j < m; ++j)
        for (std::int64_t k = 0; k < pixels; ++k)
          std::memcpy(out.mut<std::byte>() + ((k * m + j) * c + i) * size,
                      w.as<std::byte>() + ((i * m + j) * pixels + k) * size, static_cast<std::size_t>(size));
    return out;
  };
  const Graph& graph = to.graph();
  const NodeId id = graph.producer(to.in(1));
  if (id == NodeId::kNone) return to.constant(turned(weight));
  const Node node = graph.node(id);
  const Tensor steps = graph.value(node.in[1]).constant;
  const std::int64_t axis = node.attr("axis", std::int64_t{1});
  if (!graph.is_constant(node.in[0]) || bits(graph.value(node.in[0]).dtype) != 8 ||
      node.attr("block_size", std::int64_t{0}) != 0 || (steps.size() != 1 && axis != 1 && axis != -3))
    return to.constant(turned(weight));
  std::vector<ValueId> in = {to.constant(turned(graph.value(node.in[0]).constant))};
  for (std::size_t slot = 1; slot < node.in.size(); ++slot)
    in.push_back(node.in[slot] == ValueId::kNone || steps.size() == 1
                     ? node.in[slot]
                     : to.constant(tiled(graph.value(node.in[slot]).constant, pixels)));
  Attributes attrs = node.attrs;
  attrs["axis"] = std::int64_t{0};
  const ValueId out = to.add("DequantizeLinear", std::move(in), std::move(attrs));
  to.graph().value(out).dtype = weight.dtype();
  return out;
}

// Every output pixel comes of one input pixel: w[c][m][i][j] is the weight of channel (i, j, m) of a 1x1
// convolution.
bool scatter_free_transpose(Rewrite& to) {
  const Node& node = to.node();
  Tensor w;
  if (!to.sized(to.in(0)) || !to.sized(to.out(0)) || !known_weight(to.graph(), to.in(1), w)) return false;
  const Dims x = to.dims(to.in(0)), y = to.dims(to.out(0)), d = w.dims();
  if (x.size() != 4 || d.size() != 4 || w.dtype() != DType::kF32 || node.attr("group", std::int64_t{1}) != 1)
    return false;
  const std::int64_t c = d[0], m = d[1], kh = d[2], kw = d[3];
  const std::vector<std::int64_t> strides = node.attr_ints("strides"), pads = node.attr_ints("pads");
  const bool apart = strides == std::vector<std::int64_t>{kh, kw} || (strides.empty() && kh == 1 && kw == 1);
  if (!apart || std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p != 0; }) ||
      y[2] != x[2] * kh || y[3] != x[3] * kw || x[1] != c)
    return false;
  for (const std::int64_t dilation : node.attr_ints("dilations"))
    if (dilation != 1) return false;
  Tensor bias;
  const bool biased = to.known(2, bias);
  if (to.in(2) != ValueId::kNone && (!biased || bias.dtype() != DType::kF32 || bias.dims() != Dims{m}))
    return false;
  std::vector<ValueId> in = {to.in(0), turned_weight(to, w)};
  if (biased) in.push_back(to.constant(tiled(bias, kh * kw)));
  const ValueId all = to.add("Conv", in, {{"kernel_shape", std::vector<std::int64_t>{1, 1}}});
  const ValueId moved = to.transpose(to.reshape(all, {x[0], kh, kw, m, x[2], x[3]}), {0, 3, 4, 1, 5, 2});
  to.give(0, "Reshape", {moved, to.ints(y)});
  to.finish();
  return true;
}

bool unroll(Rewrite& to) {
  const Node& node = to.node();
  Tensor w, r, b;
  if (!to.sized(to.in(0)) || !to.known(1, w) || !to.known(2, r) || w.dtype() != DType::kF32) return false;
  const bool biased = to.known(3, b);
  if ((to.in(3) != ValueId::kNone && !biased) || to.in(4) != ValueId::kNone || to.in(7) != ValueId::kNone)
    return false;
  for (const char* key : {"clip", "activations", "activation_alpha", "activation_beta"})
    if (node.has_attr(key)) return false;
  if (node.attr("direction", "forward") != "forward" || node.attr("layout", std::int64_t{0}) != 0 ||
      node.attr("input_forget", std::int64_t{0}) != 0)
    return false;
  const Dims x = to.dims(to.in(0));
  if (x.size() != 3 || w.dims().size() != 3) return false;
  const std::int64_t steps = x[0], batch = x[1], width = x[2], gates = w.dims()[1], hidden = gates / 4;
  if (steps < 1 || steps > kMostSteps || gates < 4 || w.dims() != Dims{1, 4 * hidden, width} ||
      r.dims() != Dims{1, gates, hidden} || r.dtype() != DType::kF32 ||
      (biased && (b.dims() != Dims{1, 2 * gates} || b.dtype() != DType::kF32)))
    return false;
  const auto turned = [&](const Tensor& t, std::int64_t columns) {  // [1, gates, columns] -> [columns, gates]
    Tensor out = Tensor::allocate(DType::kF32, {columns, gates});
    for (std::int64_t i = 0; i < gates; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        out.mut<float>()[j * gates + i] = t.as<float>()[i * columns + j];
    return to.constant(std::move(out));
  };
  ValueId all = to.add("MatMul", {to.reshape(to.in(0), {steps * batch, width}), turned(w, width)});
  if (biased) {
    Tensor sum = Tensor::allocate(DType::kF32, {gates});
    for (std::int64_t i = 0; i < gates; ++i)
      sum.mut<float>()[i] = b.as<float>()[i] + b.as<float>()[gates + i];
    all = to.add("Add", {all, to.constant(std::move(sum))});
  }
  const ValueId recurrent = turned(r, hidden), rows = to.ints({0}), one = to.ints({1});
  const auto state = [&](std::size_t slot) {
    if (to.in(slot) != ValueId::kNone) return to.reshape(to.in(slot), {batch, hidden});
    Tensor zeros = Tensor::allocate(DType::kF32, {batch, hidden});
    std::fill_n(zeros.mut<float>(), zeros.size(), 0.0F);
    return to.constant(std::move(zeros));
  };
  const auto piece = [&](ValueId of, std::int64_t from, std::int64_t count, ValueId axis) {
    return to.add("Slice", {of, to.ints({from}), to.ints({from + count}), axis});
  };
  ValueId h = state(5), c = state(6);
  std::vector<ValueId> states;
  for (std::int64_t t = 0; t < steps; ++t) {
    const ValueId sum = to.add("Add", {to.add("MatMul", {h, recurrent}), piece(all, t * batch, batch, rows)});
    const auto gate = [&](std::int64_t index, const char* function) {
      return to.add(function, {piece(sum, index * hidden, hidden, one)});
    };
    const ValueId i = gate(0, "Sigmoid"), o = gate(1, "Sigmoid"), f = gate(2, "Sigmoid"), g = gate(3, "Tanh");
    c = to.add("Add", {to.add("Mul", {f, c}), to.add("Mul", {i, g})});
    h = to.add("Mul", {o, to.add("Tanh", {c})});
    states.push_back(h);
  }
  if (to.out(0) != ValueId::kNone) {
    const ValueId together = states.size() == 1 ? h : to.add("Concat", states, {{"axis", std::int64_t{0}}});
    to.give(0, "Reshape", {together, to.ints({steps, 1, batch, hidden})});
  }
  to.give(1, "Reshape", {h, to.ints({1, batch, hidden})});
  to.give(2, "Reshape", {c, to.ints({1, batch, hidden})});
  to.finish();
  return true;
}

}  // namespace

void expand_before_lowering(Graph& graph) {
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    Rewrite to(graph, id);
    if (node.is("Conv") || node.is("MaxPool") || node.is("AveragePool"))
      widen_axis(to);
    else if (node.is("ConvTranspose"))
      scatter_free_transpose(to);
    else if (node.is("LSTM"))
      unroll(to);
  }
  // What moved behind a reshape may have nobody in its old place.
  const std::vector<NodeId> order = graph.nodes();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    if (std::none_of(node.out.begin(), node.out.end(), [&](ValueId out) {
          return out != ValueId::kNone && (!graph.users(out).empty() || graph.is_output(out));
        }))
      graph.remove_node(*it);
  }
}

}  // namespace pare::planning
