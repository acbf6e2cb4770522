#include "engine/run/batch_axis.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "engine/base/error.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

// What a value is to the samples: an axis number, or one of these.
constexpr int kConstant = -1;  // the same for any batch
constexpr int kSizes = -2;     // depends on the number of samples only
constexpr int kMixed = -3;     // unknown: the batch must stay whole

using Words = std::set<std::string_view>;

const Words kElementwise = {"Abs",
                            "Add",
                            "And",
                            "Cast",
                            "Ceil",
                            "Clip",
                            "DequantizeLinear",
                            "Div",
                            "Elu",
                            "Equal",
                            "Erf",
                            "Exp",
                            "Floor",
                            "Gelu",
                            "Greater",
                            "HardSigmoid",
                            "HardSwish",
                            "Identity",
                            "Less",
                            "Log",
                            "Max",
                            "Mean",
                            "Min",
                            "Mish",
                            "LeakyRelu",
                            "Mul",
                            "Neg",
                            "Not",
                            "Or",
                            "PRelu",
                            "Pow",
                            "Relu",
                            "Reciprocal",
                            "QuantizeLinear",
                            "Round",
                            "Selu",
                            "Sigmoid",
                            "Sign",
                            "Softplus",
                            "Softsign",
                            "Sqrt",
                            "Sub",
                            "Sum",
                            "Swish",
                            "Tanh",
                            "Where",
                            "FakeQuant"};
const Words kPerSample = {  // the samples are the first axis, and stay it
    "Conv",
    "ConvTranspose",
    "QConv",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "ToPlain",
    "ToChannelsLast",
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization"};
const Words kProducts = {"MatMul", "QMatMul"};
const Words kAlongAxis = {"Softmax",          "LogSoftmax", "LayerNormalization",
                          "RMSNormalization", "Concat",     "Split"};
const Words kMoves = {"Transpose", "Squeeze",   "Unsqueeze", "ReduceMean",
                      "ReduceSum", "ReduceMax", "ReduceMin"};
const Words kQuantizers = {"QuantizeLinear", "DequantizeLinear", "FakeQuant"};

class Follower {
 public:
  Follower(const Graph& graph, std::string symbol)
      : graph_(graph), symbol_(std::move(symbol)), axis_(graph.value_count(), kMixed) {}

  std::string run() {
    for (std::size_t i = 0; i < graph_.value_count(); ++i)
      if (graph_.is_constant(static_cast<ValueId>(i))) axis_[i] = kConstant;
    for (const ValueId id : graph_.inputs) at(id) = 0;
    for (const NodeId id : graph_.nodes()) {
      const Node& node = graph_.node(id);
      const int axis = node_axis(node);
      if (axis == kMixed) return fmt::format("node '{}' ({})", node.name, node.op);
      for (const ValueId out : node.out)
        if (out != ValueId::kNone) at(out) = axis;
    }
    for (const ValueId id : graph_.outputs)
      if (at(id) != 0 || sample_axis(id) != 0)
        return fmt::format("output '{}' does not begin with the samples", graph_.value(id).name);
    return "";
  }

 private:
  int& at(ValueId id) { return axis_[static_cast<std::size_t>(id)]; }
  const Shape& shape(ValueId id) const { return graph_.value(id).shape; }
  int rank(ValueId id) const { return shape(id).rank(); }

  // The one axis whose size is the number of samples, or kMixed.
  int sample_axis(ValueId id) const {
    int found = kMixed;
    for (int i = 0; i < rank(id); ++i) {
      const Dim& dim = shape(id).dims[static_cast<std::size_t>(i)];
      if (dim.known() || dim.symbol != symbol_) continue;
      if (found != kMixed) return kMixed;
      found = i;
    }
    return found;
  }

  // The state of input i; kConstant when it is left out.
  int input(const Node& node, std::size_t i) {
    return i < node.in.size() && node.in[i] != ValueId::kNone ? at(node.in[i]) : kConstant;
  }

  int node_axis(const Node& node) {
    const OpSchema* schema = find_schema(node.domain, node.op);
    if (schema == nullptr || !schema->deterministic || node.declared_inputs >= 0) return kMixed;
    for (const auto& [key, value] : node.attrs)
      if (std::holds_alternative<std::shared_ptr<Graph>>(value)) return kMixed;
    bool samples = false, sizes = false;
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      samples = samples || input(node, i) >= 0;
      sizes = sizes || input(node, i) == kSizes;
    }
    if (!samples && !sizes) return kConstant;
    if (node.is("Shape") || node.is("Size")) return kSizes;
    const int axis = !samples && !node.is("Expand") ? kSizes : axis_with_samples(node, sizes);
    // What the rule says must agree with the shapes.
    if (axis >= 0)
      for (const ValueId out : node.out)
        if (out != ValueId::kNone && sample_axis(out) != axis) return kMixed;
    return axis;
  }

  int axis_with_samples(const Node& node, bool sizes) {
    const ValueId out = node.out[0];
    // Row-major: while the samples stay the first axis, each stays in one piece.
    if (node.is("Reshape") || node.is("Flatten"))
      return input(node, 0) == 0 && input(node, 1) < 0 && sample_axis(out) == 0 ? 0 : kMixed;
    if (node.is("Expand")) return expand(node);
    if (sizes) return kMixed;
    if (kElementwise.count(node.op) != 0) return elementwise(node);
    if (kPerSample.count(node.op) != 0) return per_sample(node);
    if (kProducts.count(node.op) != 0) return product(node);
    if (node.is("Gemm")) {
      const bool plain = node.attr("transA", std::int64_t{0}) == 0 && input(node, 1) == kConstant &&
                         input(node, 2) == kConstant && (!has(node, 2) || one_at(node.in[2], 2, 0));
      return plain && input(node, 0) == 0 ? 0 : kMixed;
    }
    if (kAlongAxis.count(node.op) != 0) return along_axis(node);
    // Axes move or go, the samples' must be left; every other input is a constant list of axes.
    if (kMoves.count(node.op) != 0) return only_first(node) ? sample_axis(out) : kMixed;
    if (node.is("Slice")) return slice(node);
    if (node.is("Gather")) {
      if (input(node, 0) == kConstant)
        return node.attr("axis", std::int64_t{0}) == 0 ? sample_axis(out) : kMixed;
      return only_first(node) && attr_axis(node, 0) != input(node, 0) ? sample_axis(out) : kMixed;
    }
    return kMixed;
  }

  bool has(const Node& node, std::size_t i) const {
    return i < node.in.size() && node.in[i] != ValueId::kNone;
  }

  bool only_first(const Node& node) {
    for (std::size_t i = 1; i < node.in.size(); ++i)
      if (input(node, i) != kConstant) return false;
    return input(node, 0) >= 0;
  }

  // A constant aligned with an output of `out_rank` axes has no more than one element along `axis`.
  bool one_at(ValueId id, int out_rank, int axis) const {
    if (rank(id) < 0) return false;
    const int own = axis - (out_rank - rank(id));
    return own < 0 || shape(id).dims[static_cast<std::size_t>(own)].value == 1;
  }

  std::int64_t attr_axis(const Node& node, std::int64_t otherwise) const {
    const std::int64_t axis = node.attr("axis", otherwise);
    return axis < 0 ? axis + rank(node.in[0]) : axis;
  }

  int elementwise(const Node& node) {
    const int out_rank = rank(node.out[0]), axis = sample_axis(node.out[0]);
    if (axis < 0) return kMixed;
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      const ValueId in = node.in[i];
      if (in == ValueId::kNone) continue;
      if (input(node, i) >= 0) {
        if (rank(in) < 0 || input(node, i) + out_rank - rank(in) != axis) return kMixed;
      } else if (i > 0 && kQuantizers.count(node.op) != 0) {  // scales lie along an axis of their own
        if (rank(in) > 0 && shape(in).dims[0].value != 1 && attr_axis(node, 1) == axis) return kMixed;
        if (rank(in) > 1) return kMixed;
      } else if (!one_at(in, out_rank, axis)) {
        return kMixed;
      }
    }
    return axis;
  }

  // Inputs are constants or have the samples first, in their own right (a residual).
  int per_sample(const Node& node) {
    if (input(node, 0) != 0 || node.attr("training_mode", std::int64_t{0}) != 0) return kMixed;
    for (std::size_t i = 1; i < node.in.size(); ++i)
      if (input(node, i) > 0 || (input(node, i) == 0 && i < 3)) return kMixed;
    return 0;
  }

  int product(const Node& node) {
    const ValueId out = node.out[0];
    const int axis = sample_axis(out), out_rank = rank(out);
    if (axis < 0 || axis == out_rank - 1) return kMixed;
    const int leading = out_rank - 2;
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      const ValueId in = node.in[i];
      if (in == ValueId::kNone) continue;
      const bool operand_b = i == 1;
      if (input(node, i) >= 0) {
        if (rank(in) < 2 || input(node, i) + out_rank - rank(in) != axis) return kMixed;
        if (operand_b && axis >= leading) return kMixed;  // its own rows and columns mix in every output
      } else if (operand_b ? axis < leading && !one_at(in, out_rank, axis)
                           : i < 2 && !one_at(in, out_rank, axis)) {
        return kMixed;
      } else if (i >= 2 && graph_.value(in).constant.size() != 1 && rank(in) > 1 &&
                 !one_at(in, out_rank, axis)) {
        return kMixed;
      }
    }
    return axis;
  }

  int along_axis(const Node& node) {
    const int samples = input(node, 0);
    if (samples < 0) return kMixed;
    if (node.is("Concat")) {
      for (std::size_t i = 0; i < node.in.size(); ++i)
        if (input(node, i) != samples) return kMixed;
      return attr_axis(node, 0) == samples ? kMixed : samples;
    }
    if (!only_first(node)) return kMixed;
    if (node.is("Split")) return attr_axis(node, 0) == samples ? kMixed : samples;
    if (node.is("Softmax") || node.is("LogSoftmax")) return attr_axis(node, -1) == samples ? kMixed : samples;
    return attr_axis(node, -1) <= samples ? kMixed : samples;  // normalizations: from the axis on
  }

  int slice(const Node& node) {
    if (!only_first(node) || !has(node, 3)) return kMixed;
    for (std::int64_t axis : graph_.value(node.in[3]).constant.to_ints())
      if ((axis < 0 ? axis + rank(node.in[0]) : axis) == input(node, 0)) return kMixed;
    return input(node, 0);
  }

  // A constant, the same for each sample, or samples that gain axes of size 1.
  int expand(const Node& node) {
    const ValueId out = node.out[0], in = node.in[0];
    const int axis = sample_axis(out);
    if (axis < 0) return kMixed;
    if (input(node, 0) >= 0) return input(node, 0) + rank(out) - rank(in) == axis ? axis : kMixed;
    return input(node, 0) == kConstant && one_at(in, rank(out), axis) ? axis : kMixed;
  }

  const Graph& graph_;
  std::string symbol_;
  std::vector<int> axis_;
};

}  // namespace

std::string samples_stay_apart(const Graph& graph) {
  std::string symbol;
  if (graph.inputs.empty() || graph.outputs.empty()) return "no inputs or no outputs";
  for (const ValueId id : graph.inputs) {
    const Shape& shape = graph.value(id).shape;
    if (shape.rank() < 1 || shape.dims[0].known() || shape.dims[0].symbol.empty())
      return fmt::format("input '{}' does not begin with a named size", graph.value(id).name);
    if (!symbol.empty() && symbol != shape.dims[0].symbol) return "inputs begin with different sizes";
    symbol = shape.dims[0].symbol;
  }
  for (const auto& list : {graph.inputs, graph.outputs})
    for (const ValueId id : list)
      if (graph.value(id).dtype == DType::kString || bits(graph.value(id).dtype) % 8 != 0)
        return fmt::format("elements of '{}' are no whole bytes", graph.value(id).name);
  return Follower(graph, symbol).run();
}

std::int64_t part_of_batch(std::int64_t batch, std::int64_t most) {
  if (batch <= most) return batch;
  for (std::int64_t part = most; part * 2 >= most; --part)
    if (batch % part == 0) return part;
  return most;
}

std::int64_t samples_of_a_part(const Graph& graph) {
  constexpr std::int64_t kBytes = 4 << 20;
  const std::string& symbol = graph.value(graph.inputs.at(0)).shape.dims.at(0).symbol;
  std::int64_t largest = 1;
  for (const NodeId id : graph.nodes()) {
    for (const ValueId out : graph.node(id).out) {
      if (out == ValueId::kNone) continue;
      const Value& value = graph.value(out);
      if (!value.shape.ranked) return 0;
      Dims dims;
      for (const Dim& dim : value.shape.dims) {
        if (!dim.known() && dim.symbol != symbol) return 0;
        dims.push_back(dim.known() ? dim.value : 1);
      }
      if (value.dtype != DType::kString) largest = std::max(largest, byte_count(value.dtype, dims));
    }
  }
  return std::max<std::int64_t>(8, kBytes / largest / 4 * 4);
}

}  // namespace pare
