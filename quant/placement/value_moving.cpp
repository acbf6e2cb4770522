#include "quant/placement/value_moving.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace pare::quant {
namespace {

// A Pad that adds zeros (every grid has one) or copies of what is there.
bool pads_on_the_grid(const Graph& graph, const Node& node) {
  const std::string mode = node.attr("mode", "constant");
  if (mode != "constant") return true;
  if (node.in.size() < 3 || node.in[2] == ValueId::kNone) return true;
  if (!graph.is_constant(node.in[2])) return false;
  const Tensor& value = graph.value(node.in[2]).constant;
  return value.dtype() == DType::kF32 && value.size() == 1 && *value.as<float>() == 0.0F;
}

const Node* producer(const Graph& graph, ValueId value) {
  if (value == ValueId::kNone) return nullptr;
  const NodeId id = graph.producer(value);
  return id == NodeId::kNone ? nullptr : &graph.node(id);
}

// The DequantizeLinear that a value's codes went through; null when it has none.
const Node* dequantizer(const Graph& graph, ValueId value, int depth) {
  constexpr int kDeepest = 64;
  const Node* node = producer(graph, value);
  if (node == nullptr || depth > kDeepest) return nullptr;
  if (node->is("DequantizeLinear")) return node;
  const std::vector<int> slots = moved_inputs(graph, *node);
  const Node* first = nullptr;
  for (const int slot : slots) {
    const Node* dq = dequantizer(graph, node->in[static_cast<std::size_t>(slot)], depth + 1);
    if (dq == nullptr) return nullptr;
    if (first == nullptr) {
      first = dq;
      continue;
    }
    const auto same = [&](std::size_t input) {
      const bool here = dq->in.size() > input, there = first->in.size() > input;
      if (!here || !there) return here == there;
      if (dq->in[input] == first->in[input]) return true;
      return graph.is_constant(dq->in[input]) && graph.is_constant(first->in[input]) &&
             equal_bytes(graph.value(dq->in[input]).constant, graph.value(first->in[input]).constant);
    };
    if (!same(1) || !same(2) || !graph.is_constant(dq->in[1]) || graph.value(dq->in[1]).constant.size() != 1)
      return nullptr;
  }
  return first;
}

}  // namespace

bool is_linear(const Node& node) {
  return node.is("Conv") || node.is("ConvTranspose") || node.is("Gemm") || node.is("MatMul");
}

std::vector<int> moved_inputs(const Graph& graph, const Node& node) {
  static const std::set<std::string_view> kMovers = {
      "MaxPool",  "Reshape",      "Flatten",      "Squeeze",        "Unsqueeze",     "Transpose",
      "Identity", "Slice",        "Split",        "Gather",         "Expand",        "GatherND",
      "Tile",     "DepthToSpace", "SpaceToDepth", "GatherElements", "CenterCropPad", "ReverseSequence"};
  if (!node.domain.empty() || node.in.empty()) return {};
  if (kMovers.count(node.op) != 0) return {0};
  if (node.is("Resize") && node.attr("mode", "nearest") == "nearest" &&
      node.attr("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize")
    return {0};
  if (node.is("Pad") && pads_on_the_grid(graph, node)) return {0};
  if (!node.is("Concat")) return {};
  std::vector<int> all;
  for (std::size_t i = 0; i < node.in.size(); ++i) all.push_back(static_cast<int>(i));
  return all;
}

bool has_codes(const Graph& graph, ValueId value) { return dequantizer(graph, value, 0) != nullptr; }

bool is_turned_constant(const Graph& graph, ValueId value) {
  while (value != ValueId::kNone && !graph.is_constant(value)) {
    const Node* node = producer(graph, value);
    if (node == nullptr || (!node->is("Transpose") && !node->is("Identity"))) return false;
    value = node->in[0];
  }
  return value != ValueId::kNone;
}

std::optional<WeightSource> weight_source(const Graph& graph, NodeId node, int slot) {
  WeightSource source;
  source.use = {node, slot};
  source.value = graph.node(node).in[static_cast<std::size_t>(slot)];
  if (source.value == ValueId::kNone) return std::nullopt;
  for (int i = 0; i < graph.value(source.value).shape.rank(); ++i) source.axes.push_back(i);
  while (!graph.is_constant(source.value)) {
    const NodeId id = graph.producer(source.value);
    if (id == NodeId::kNone || graph.is_output(source.value)) return std::nullopt;
    const Node& turn = graph.node(id);
    if (!turn.is("Transpose") && !turn.is("Identity")) return std::nullopt;
    for (const Use& use : graph.users(source.value)) {
      const Node& reader = graph.node(use.node);
      if (!is_linear(reader) && !reader.is("Transpose") && !reader.is("Identity")) return std::nullopt;
    }
    if (turn.is("Transpose")) {
      const std::vector<std::int64_t> perm = turn.attr_ints("perm");
      const int rank = static_cast<int>(source.axes.size());
      for (int& axis : source.axes) {
        if (perm.empty()) {
          axis = rank - 1 - axis;
        } else if (static_cast<std::size_t>(axis) < perm.size()) {
          axis = static_cast<int>(perm[static_cast<std::size_t>(axis)]);
        } else {
          return std::nullopt;
        }
      }
    }
    source.use = {id, 0};
    source.value = turn.in[0];
    if (source.value == ValueId::kNone) return std::nullopt;
  }
  const auto rank = graph.value(source.value).constant.dims().size();
  if (source.axes.size() != rank) return std::nullopt;  // a shape that is unknown on the way
  return source;
}

}  // namespace pare::quant
