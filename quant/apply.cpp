// The one place that writes quantization decisions into a graph.
#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/apply_activation.h"
#include "quant/plan.h"

namespace pare::quant {

namespace {

Tensor zero_point_tensor(DType dtype, std::int32_t value, const Dims& dims) {
  Tensor tensor = Tensor::allocate(dtype, dims);
  const float code = static_cast<float>(value);  // 16 bits at most; 0 is 0.0 in the FP8 formats
  const std::vector<float> values(static_cast<std::size_t>(tensor.size()), code);
  format_info(dtype).encode(values.data(), tensor.mut<std::byte>(), tensor.size());
  return tensor;
}

// Before the first of the readers, in graph order.
NodeId first_reader(const Graph& graph, const std::vector<Use>& uses) {
  if (uses.size() > 1)
    for (const NodeId id : graph.nodes())
      if (std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.node == id; })) return id;
  return uses.front().node;
}

// E8M0 and the half types are no types of a result, or not of this one.
void set_output_dtype(Node& dq, DType scales) {
  if (scales != DType::kF32) dq.attrs["output_dtype"] = static_cast<std::int64_t>(DType::kF32);
}

// Block scales of two levels, as one value: E4M3 codes times the global float32.
ValueId two_level_scales(Graph& graph, const std::string& base, const WeightPlan& plan, NodeId before) {
  Node dq;
  dq.op = "DequantizeLinear";
  dq.name = base + "_scale_DequantizeLinear";
  dq.in = {graph.add_constant(base + "_scale", plan.scales),
           graph.add_constant(base + "_global_scale", plan.global)};
  Value value;
  value.name = base + "_scale_DequantizeLinear_Output";
  value.dtype = DType::kF32;
  value.shape = Shape(plan.scales.dims());
  dq.out = {graph.add_value(std::move(value))};
  const ValueId result = dq.out[0];
  graph.insert_before(before, std::move(dq));
  return result;
}

void apply_weight(Graph& graph, const WeightSite& site, const WeightPlan& plan) {
  const std::string base = graph.value(site.value).name;
  const NodeId first = first_reader(graph, site.uses);
  Node dq;
  dq.op = "DequantizeLinear";
  dq.name = base + "_DequantizeLinear";
  dq.in = {graph.add_constant(base + "_quantized", plan.codes)};
  const bool two_levels = !plan.global.empty();
  dq.in.push_back(two_levels ? two_level_scales(graph, base, plan, first)
                             : graph.add_constant(base + "_scale", plan.scales));
  if (!plan.zero_points.empty())
    dq.in.push_back(graph.add_constant(base + "_zero_point", plan.zero_points));
  else if (site.format.granularity != Granularity::kBlock && bits(site.format.dtype) >= 8)
    dq.in.push_back(graph.add_constant(base + "_zero_point",
                                       zero_point_tensor(site.format.dtype, 0, plan.scales.dims())));
  if (site.format.granularity == Granularity::kChannel)
    dq.attrs["axis"] = static_cast<std::int64_t>(site.axis);
  if (site.format.granularity == Granularity::kBlock) {
    dq.attrs["axis"] = static_cast<std::int64_t>(site.reduce_axis);
    dq.attrs["block_size"] = static_cast<std::int64_t>(site.format.block);
  }
  if (!two_levels) set_output_dtype(dq, plan.scales.dtype());
  dq.out = {graph.add_value(value_like(graph, site.value, "_DequantizeLinear_Output", DType::kF32))};
  const ValueId result = dq.out[0];
  graph.insert_before(first, std::move(dq));
  for (const Use& use : site.uses) graph.set_input(use.node, use.slot, result);
}

// int32 codes with scale sx*sw[c], the form in which integer kernels add a bias. A code beyond int32 (a tiny
// scale beside a large bias) leaves the bias float: raising sw would cost the weights their precision.
void apply_bias(Graph& graph, const BiasSite& site) {
  const Node& node = graph.node(site.node);
  const ValueId bias = node.in[static_cast<std::size_t>(site.slot)];
  const NodeId x_dq = graph.producer(node.in[0]), w_dq = graph.producer(node.in[1]);
  if (!graph.is_constant(bias) || x_dq == NodeId::kNone || w_dq == NodeId::kNone) return;
  if (!graph.node(x_dq).is("DequantizeLinear") || !graph.node(w_dq).is("DequantizeLinear")) return;
  const Tensor& values = graph.value(bias).constant;
  const Tensor& w_scales = graph.value(graph.node(w_dq).in[1]).constant;
  const float x_scale = *graph.value(graph.node(x_dq).in[1]).constant.as<float>();
  if (values.dtype() != DType::kF32 || values.dims().size() != 1 ||
      (w_scales.size() != 1 && w_scales.size() != values.size()))
    return;
  std::vector<std::int32_t> codes(static_cast<std::size_t>(values.size()));
  std::vector<float> scales(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    scales[i] = x_scale * w_scales.as<float>()[w_scales.size() == 1 ? 0 : i];
    const double code =
        std::nearbyint(static_cast<double>(values.as<float>()[i]) / static_cast<double>(scales[i]));
    if (!std::isnormal(scales[i]) || std::fabs(code) > 2147483647.0) return;
    codes[i] = static_cast<std::int32_t>(code);
  }
  const std::string base = graph.value(bias).name;
  const Dims dims = values.dims();
  Node dq;
  dq.op = "DequantizeLinear";
  dq.name = base + "_DequantizeLinear";
  dq.in = {graph.add_constant(base + "_quantized", Tensor::from(DType::kI32, dims, codes)),
           graph.add_constant(base + "_scale", Tensor::from(DType::kF32, dims, scales))};
  dq.attrs["axis"] = std::int64_t{0};
  dq.out = {graph.add_value(value_like(graph, bias, "_DequantizeLinear_Output", DType::kF32))};
  const ValueId result = dq.out[0];
  graph.insert_before(site.node, std::move(dq));
  graph.set_input(site.node, site.slot, result);
}

}  // namespace

Graph apply(const Graph& graph, const Plan& plan) {
  PARE_ASSERT(plan.activations.size() == plan.placement.activations.size());
  PARE_ASSERT(plan.weights.size() == plan.placement.weights.size());
  Graph quantized = graph;
  std::set<SubgraphPath> changed;
  const auto scope = [&](const SubgraphPath& path) -> Graph& {
    changed.insert(path);
    return own_subgraph_at(quantized, path);
  };
  for (std::size_t i = 0; i < plan.activations.size(); ++i) {
    const ActivationSite& site = plan.placement.activations[i];
    apply_activation(scope(site.path), site, plan.activations[i]);
  }
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    const WeightSite& site = plan.placement.weights[i];
    apply_weight(scope(site.path), site, plan.weights[i]);
  }
  for (const BiasSite& site : plan.placement.biases) apply_bias(scope(site.path), site);
  for (const SubgraphPath& path : changed) scope(path).drop_unused_values();
  verify(quantized);
  return quantized;
}

}  // namespace pare::quant
