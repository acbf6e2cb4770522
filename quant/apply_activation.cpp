#include "quant/apply_activation.h"

#include <cstring>
#include <limits>

#include "calib/ranges.h"
#include "engine/base/error.h"
#include "engine/ir/block_scales.h"
#include "engine/ir/token_scales.h"
#include "engine/numeric/table.h"
#include "quant/placement/activation.h"

namespace pare::quant {

Value value_like(const Graph& graph, ValueId id, const std::string& suffix, DType dtype) {
  Value value;
  value.name = graph.value(id).name + suffix;
  value.dtype = dtype;
  value.shape = graph.value(id).shape;
  return value;
}
namespace {

// Puts nodes one behind the other, first behind the producer of a value (or in front of everything).
class Chain {
 public:
  Chain(Graph& graph, ValueId source, std::string base)
      : graph_(graph), last_(graph.producer(source)), base_(std::move(base)) {}

  void add(Node&& node) {
    if (last_ != NodeId::kNone) {
      last_ = graph_.insert_after(last_, std::move(node));
      return;
    }
    const std::vector<NodeId> order = graph_.nodes();
    last_ = order.empty() ? graph_.add_node(std::move(node))
                          : graph_.insert_before(order.front(), std::move(node));
  }

  // A node of one output, which is named BASE + suffix, as the node is.
  ValueId compute(const char* op, const std::string& suffix, std::vector<ValueId> in, DType dtype,
                  Shape shape, Attributes attrs = {}) {
    Value value;
    value.name = base_ + suffix;
    value.dtype = dtype;
    value.shape = std::move(shape);
    Node node;
    node.op = op;
    node.name = value.name;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    const ValueId out = graph_.add_value(std::move(value));
    node.out = {out};
    add(std::move(node));
    return out;
  }

 private:
  Graph& graph_;
  NodeId last_;
  std::string base_;
};

// What the forms share: where the value comes from, and what the pair writes.
struct Pair {
  std::string base;
  ValueId source;  // what is quantized
  ValueId result;  // what readers get
};

Node dequantize_node(const Pair& pair, ValueId codes, ValueId scale, ValueId zero) {
  Node dq;
  dq.op = "DequantizeLinear";
  dq.name = pair.base + "_DequantizeLinear";
  dq.in = {codes, scale};
  if (zero != ValueId::kNone) dq.in.push_back(zero);
  dq.out = {pair.result};
  return dq;
}

void write_static(Graph& graph, const ActivationSite& site, const ActivationPlan& plan, const Pair& pair) {
  const ValueId scale = graph.add_constant(pair.base + "_scale", activation_scales(plan));
  const ValueId zero =
      graph.add_constant(pair.base + "_zero_point", activation_zero_points(site.format, plan));
  Chain chain(graph, pair.source, pair.base);
  Attributes attrs;
  if (!plan.channel_scales.empty()) attrs["axis"] = static_cast<std::int64_t>(activation_axis(graph, site));
  const ValueId codes = chain.compute("QuantizeLinear", "_QuantizeLinear", {pair.source, scale, zero},
                                      site.format.dtype, graph.value(site.value).shape, attrs);
  graph.rename(codes, pair.base + "_QuantizeLinear_Output");
  Node dq = dequantize_node(pair, codes, scale, zero);
  dq.attrs = attrs;
  chain.add(std::move(dq));
}

void write_dynamic_uint8(Graph& graph, const ActivationSite& site, const Pair& pair) {
  const Shape shape = graph.value(site.value).shape;
  const auto output = [&](const char* suffix, DType dtype, const Shape& of) {
    Value value;
    value.name = pair.base + suffix;
    value.dtype = dtype;
    value.shape = of;
    return graph.add_value(std::move(value));
  };
  Node q;
  q.op = "DynamicQuantizeLinear";
  q.name = pair.base + "_DynamicQuantizeLinear";
  q.in = {pair.source};
  q.out = {output("_QuantizeLinear_Output", DType::kU8, shape), output("_scale", DType::kF32, Shape(Dims{})),
           output("_zero_point", DType::kU8, Shape(Dims{}))};
  Node dq = dequantize_node(pair, q.out[0], q.out[1], q.out[2]);
  Chain chain(graph, pair.source, pair.base);
  chain.add(std::move(q));
  chain.add(std::move(dq));
}

// Symmetric, one scale for the tensor or for each row of the axis that is summed over.
void write_dynamic(Graph& graph, const ActivationSite& site, const Pair& pair) {
  const Shape shape = graph.value(site.value).shape;
  const bool token = site.format.granularity == Granularity::kToken;
  const std::int64_t axis = activation_axis(graph, site);
  Shape scale_shape(Dims{});
  std::int64_t row = 0;
  if (token) {
    scale_shape = shape;
    Dim& dim = scale_shape.dims[static_cast<std::size_t>(axis)];
    row = dim.value;
    dim = Dim::of(1);
  }
  const ValueId largest = graph.add_constant(
      pair.base + "_scale_codes", Tensor::scalar(static_cast<float>(symmetric_largest(site.format.dtype))));
  const ValueId least =
      graph.add_constant(pair.base + "_scale_least", Tensor::scalar(std::numeric_limits<float>::min()));
  Chain chain(graph, pair.source, pair.base);
  const ValueId magnitude = chain.compute("Abs", "_scale_magnitude", {pair.source}, DType::kF32, shape);
  std::vector<ValueId> reduced = {magnitude};
  if (token) reduced.push_back(graph.add_constant(pair.base + "_scale_axes", Tensor::ints({axis})));
  Attributes keep;
  keep["keepdims"] = std::int64_t{token ? 1 : 0};
  const ValueId amax = chain.compute("ReduceMax", "_scale_amax", reduced, DType::kF32, scale_shape, keep);
  const ValueId raw = chain.compute("Div", "_scale_raw", {amax, largest}, DType::kF32, scale_shape);
  const ValueId scale = chain.compute("Max", "_scale", {raw, least}, DType::kF32, scale_shape);
  ActivationPlan zeros;
  if (!find_format(site.format.dtype)->is_signed)
    zeros.zero_point = static_cast<std::int32_t>(symmetric_largest(site.format.dtype)) + 1;
  Attributes attrs;
  ValueId zero = ValueId::kNone;
  if (token) {
    attrs["axis"] = axis;
    attrs["block_size"] = row;
    attrs["output_dtype"] =
        static_cast<std::int64_t>(site.format.dtype);  // a zero point would be as large as the scales
  } else {
    zero = graph.add_constant(pair.base + "_zero_point", activation_zero_points(site.format, zeros));
  }
  std::vector<ValueId> in = {pair.source, scale};
  if (zero != ValueId::kNone) in.push_back(zero);
  const ValueId codes =
      chain.compute("QuantizeLinear", "_QuantizeLinear", in, site.format.dtype, shape, attrs);
  graph.rename(codes, pair.base + "_QuantizeLinear_Output");
  Node dq = dequantize_node(pair, codes, scale, zero);
  dq.attrs = attrs;
  dq.attrs.erase("output_dtype");
  chain.add(std::move(dq));
}

// Names of what computes the scales: NAME_scale_... .
class BlockWriter final : public OpWriter {
 public:
  BlockWriter(Graph& graph, const Pair& pair)
      : graph_(graph), chain_(graph, pair.source, pair.base), base_(pair.base) {}

  ValueId node(const char* what, const char* op, std::vector<ValueId> in, DType dtype, const Shape& shape,
               const Attributes& attrs) override {
    const bool codes = std::string(what) == "QuantizeLinear";
    const ValueId out = chain_.compute(op, codes ? "_QuantizeLinear" : fmt::format("_scale_{}", what),
                                       std::move(in), dtype, shape, attrs);
    if (codes) graph_.rename(out, base_ + "_QuantizeLinear_Output");
    return out;
  }
  ValueId constant(const char* what, Tensor tensor) override {
    return graph_.add_constant(fmt::format("{}_scale_{}", base_, what), std::move(tensor));
  }
  Chain& chain() { return chain_; }

 private:
  Graph& graph_;
  Chain chain_;
  std::string base_;
};

void write_blocks(Graph& graph, const ActivationSite& site, const ActivationPlan& plan, const Pair& pair) {
  const Shape shape = graph.value(site.value).shape;
  const BlockScales blocks{site.format.dtype, site.format.scales, activation_axis(graph, site),
                           site.format.block, site.format.fitted};
  ValueId global = ValueId::kNone;
  if (blocks.scales == DType::kE4M3FN)
    global = graph.add_constant(pair.base + "_global_scale", Tensor::scalar(plan.scale));
  BlockWriter writer(graph, pair);
  const BlockCodes codes = write_block_quantize(writer, pair.source, shape, global, blocks);
  Node dq = dequantize_node(pair, codes.codes, codes.scale, ValueId::kNone);
  dq.attrs = block_dequantize_attributes(blocks, shape.rank());
  writer.chain().add(std::move(dq));
}

void write_tokens_with_zero_points(Graph& graph, const ActivationSite& site, const Pair& pair) {
  const Shape shape = graph.value(site.value).shape;
  BlockWriter writer(graph, pair);
  const TokenCodes token = write_token_quantize(writer, pair.source, shape, activation_axis(graph, site));
  Node dq = dequantize_node(pair, token.codes, token.scale, token.zero);
  dq.attrs = token.attributes;
  writer.chain().add(std::move(dq));
}

}  // namespace

Tensor activation_scales(const ActivationPlan& plan) {
  if (plan.channel_scales.empty()) return Tensor::scalar(plan.scale);
  return Tensor::from(DType::kF32, {static_cast<std::int64_t>(plan.channel_scales.size())},
                      plan.channel_scales);
}

Tensor activation_zero_points(const Format& format, const ActivationPlan& plan) {
  std::vector<std::int32_t> points = plan.channel_zero_points;
  Dims dims;
  if (points.empty())
    points = {plan.zero_point};
  else
    dims = {static_cast<std::int64_t>(points.size())};
  Tensor tensor = Tensor::allocate(format.dtype, dims);
  std::memset(tensor.mut<std::uint8_t>(), 0, tensor.bytes());  // 0 is 0.0 in the float formats
  const int width = bits(format.dtype);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (width == 16)
      tensor.mut<std::uint16_t>()[i] = static_cast<std::uint16_t>(points[i]);  // two's complement
    else if (width == 8)
      tensor.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(points[i]);
    else  // 4 and 2 bits: the first in the low ones
      tensor.mut<std::uint8_t>()[i * static_cast<std::size_t>(width) / 8] |=
          static_cast<std::uint8_t>((static_cast<unsigned>(points[i]) & ((1u << width) - 1))
                                    << (i * static_cast<std::size_t>(width) % 8));
  }
  return tensor;
}

void apply_activation(Graph& graph, const ActivationSite& site, const ActivationPlan& plan) {
  Pair pair{graph.value(site.value).name, site.value, site.value};
  if (site.graph_output) {
    // The output keeps its name: the producer writes a new value, DequantizeLinear the output.
    const NodeId producer = graph.producer(site.value);
    PARE_ASSERT(producer != NodeId::kNone);
    pair.source = graph.add_value(
        value_like(graph, site.value, "_QuantizeLinear_Input", graph.value(site.value).dtype));
    const int slot = graph.value(site.value).producer_slot;
    graph.set_output(producer, slot, pair.source);
  } else {
    pair.result = graph.add_value(
        value_like(graph, site.value, "_DequantizeLinear_Output", graph.value(site.value).dtype));
  }
  if (site.format.granularity == Granularity::kBlock)
    write_blocks(graph, site, plan, pair);
  else if (!site.format.dynamic)
    write_static(graph, site, plan, pair);
  else if (site.format.granularity == Granularity::kTensor && !site.format.symmetric)
    write_dynamic_uint8(graph, site, pair);
  else if (!site.format.symmetric)
    write_tokens_with_zero_points(graph, site, pair);
  else
    write_dynamic(graph, site, pair);
  if (pair.result != site.value)
    for (const Use& use : site.uses) graph.set_input(use.node, use.slot, pair.result);
}

}  // namespace pare::quant
