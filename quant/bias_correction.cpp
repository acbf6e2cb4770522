#include "quant/bias_correction.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/numeric/quantize.h"
#include "quant/grid/linear_weight.h"

namespace pare::quant {
namespace {

// The Add of a constant row right behind a MatMul, and which of its inputs is the row.
bool row_add(const Graph& graph, const Node& matmul, NodeId& add, int& slot) {
  add = graph.only_user(matmul.out[0]);
  if (add == NodeId::kNone || !graph.node(add).is("Add")) return false;
  const Node& node = graph.node(add);
  slot = node.in[0] == matmul.out[0] ? 1 : 0;
  const ValueId row = node.in[static_cast<std::size_t>(slot)];
  return graph.is_constant(row) && graph.value(row).dtype == DType::kF32 &&
         graph.value(row).constant.dims().size() == 1;
}

// f[t]: how often tap t reads inside the map. Taps are counted row by row.
std::vector<double> tap_shares(const Graph& graph, const Node& node, std::int64_t taps) {
  std::vector<double> shares(static_cast<std::size_t>(taps), 1.0);
  if (!node.is("Conv")) return shares;
  const Shape &x = graph.value(node.in[0]).shape, &y = graph.value(node.out[0]).shape;
  const Dims w = graph.value(node.in[1]).constant.dims();
  if (x.rank() != 4 || y.rank() != 4 || !x.dims[2].known() || !x.dims[3].known() || !y.dims[2].known() ||
      !y.dims[3].known() || node.attr("auto_pad", "NOTSET") != "NOTSET")
    return shares;
  const auto attr = [&](const char* key, std::size_t i, std::int64_t otherwise) {
    const std::vector<std::int64_t> list = node.attr_ints(key);
    return i < list.size() ? list[i] : otherwise;
  };
  const auto share = [&](std::size_t d, std::int64_t tap) {
    std::int64_t inside = 0;
    const std::int64_t out = y.dims[d + 2].value, in = x.dims[d + 2].value;
    for (std::int64_t o = 0; o < out; ++o) {
      const std::int64_t at = o * attr("strides", d, 1) + tap * attr("dilations", d, 1) - attr("pads", d, 0);
      inside += at >= 0 && at < in ? 1 : 0;
    }
    return out == 0 ? 1.0 : static_cast<double>(inside) / static_cast<double>(out);
  };
  for (std::int64_t t = 0; t < taps; ++t)
    shares[static_cast<std::size_t>(t)] = share(0, t / w[3]) * share(1, t % w[3]);
  return shares;
}

void subtract(Graph& graph, NodeId id, int slot, const std::vector<double>& d, const std::string& name) {
  const Node& node = graph.node(id);
  const bool absent = static_cast<std::size_t>(slot) >= node.in.size() ||
                      node.in[static_cast<std::size_t>(slot)] == ValueId::kNone;
  std::vector<float> bias(d.size(), 0.0f);
  if (!absent) {
    const Tensor& old = graph.value(node.in[static_cast<std::size_t>(slot)]).constant;
    std::copy_n(old.as<float>(), d.size(), bias.data());
  }
  for (std::size_t o = 0; o < d.size(); ++o)
    bias[o] = static_cast<float>(static_cast<double>(bias[o]) - d[o]);
  const Dims dims{static_cast<std::int64_t>(d.size())};
  graph.set_input(id, slot, graph.add_constant(name, Tensor::from(DType::kF32, dims, bias)));
}

}  // namespace

std::vector<BiasTarget> find_bias_targets(const Graph& whole, const Placement& placement) {
  std::vector<BiasTarget> targets;
  for (std::size_t w = 0; w < placement.weights.size(); ++w) {
    const SubgraphPath& path = placement.weights[w].path;
    const Graph& graph = subgraph_at(whole, path);
    for (const Use& use : placement.weights[w].uses) {
      if (use.slot != 1) continue;
      const Node& node = graph.node(use.node);
      WeightView view;
      if (!view_weight(graph, node, view)) continue;
      BiasTarget target{use.node, w, kFloatInput, 1, view.ins * view.groups, path};
      bool found = false;
      for (std::size_t a = 0; a < placement.activations.size() && !found; ++a)
        for (const Use& read : placement.activations[a].uses)
          if (read.node == use.node && read.slot == 0 && placement.activations[a].path == path) {
            target.activation = a;
            found = true;
          }
      const std::int64_t rank = graph.value(node.in[0]).shape.rank();
      NodeId add = NodeId::kNone;
      int slot = 0;
      const bool has_place =
          node.is("MatMul")
              ? row_add(graph, node, add, slot)
              : node.in.size() < 3 || node.in[2] == ValueId::kNone ||
                    (graph.is_constant(node.in[2]) && graph.value(node.in[2]).dtype == DType::kF32 &&
                     graph.value(node.in[2]).constant.dims() == Dims{view.outs});
      if (!has_place || rank < 2) continue;
      if (node.is("Gemm") && (node.attr("alpha", 1.0f) != 1.0f || node.attr("beta", 1.0f) != 1.0f)) continue;
      target.channel_axis = node.is("Conv") ? 1 : static_cast<int>(rank) - 1;
      targets.push_back(target);
    }
  }
  return targets;
}

std::vector<double> mean_output_error(const Graph& whole, const Plan& plan, const BiasTarget& target,
                                      const InputMeans& in) {
  const Graph& graph = subgraph_at(whole, target.path);
  const Node& node = graph.node(target.node);
  WeightView view;
  if (!view_weight(graph, node, view)) return {};
  const auto channels = static_cast<std::size_t>(target.channels);
  const bool by_column = in.columns.size() == channels * static_cast<std::size_t>(view.taps);
  if (!by_column && (in.mean.size() != channels || in.error.size() != channels)) return {};
  const float* w = graph.value(node.in[1]).constant.as<float>();
  const Tensor back = dequantized(plan.placement.weights[target.weight], plan.weights[target.weight]);
  const float* wq = back.as<float>();
  const std::vector<double> f = tap_shares(graph, node, view.taps);
  std::vector<double> d(static_cast<std::size_t>(view.outs), 0.0);
  for (std::int64_t o = 0; o < view.outs; ++o)
    for (std::int64_t c = 0; c < view.ins; ++c) {
      const auto k = static_cast<std::size_t>(view.channel(o, c));
      for (std::int64_t t = 0; t < view.taps; ++t) {
        const auto at = static_cast<std::size_t>(view.at(o, c, t));
        const double q = static_cast<double>(wq[at]), v = static_cast<double>(w[at]);
        const auto column =
            static_cast<std::size_t>(view.group_of(o) * view.taps * view.ins + t * view.ins + c);
        d[static_cast<std::size_t>(o)] +=
            by_column ? (q - v) * in.columns[column]
                      : f[static_cast<std::size_t>(t)] * (q * (in.mean[k] + in.error[k]) - v * in.mean[k]);
      }
    }
  return d;
}

bool correction_holds(const std::vector<double>& d, const std::vector<double>& check) {
  PARE_ASSERT(d.size() == check.size());
  double before = 0, after = 0;
  for (std::size_t o = 0; o < d.size(); ++o) {
    before += check[o] * check[o];
    after += (check[o] - d[o]) * (check[o] - d[o]);
  }
  return after < before;  // false for NaN
}

void subtract_from_bias(Graph& whole, const BiasTarget& target, const std::vector<double>& d) {
  Graph& graph = own_subgraph_at(whole, target.path);
  NodeId holder = target.node;
  int slot = 2;
  if (graph.node(target.node).is("MatMul") && !row_add(graph, graph.node(target.node), holder, slot)) return;
  const std::string label = graph.value(graph.node(target.node).out[0]).name + "_bias_corrected";
  subtract(graph, holder, slot, d, label);
}

void correct_biases(Graph& whole, const Plan& plan, const std::vector<BiasTarget>& targets,
                    const std::vector<InputMeans>& means) {
  PARE_ASSERT(targets.size() == means.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::vector<double> d = mean_output_error(whole, plan, targets[i], means[i]);
    if (!d.empty()) subtract_from_bias(whole, targets[i], d);
  }
}

}  // namespace pare::quant
