#include "quant/placement/placement_text.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"

namespace pare::quant {
namespace {

// Why a pair stands where it does.
struct PlacementRule {
  const char* id;
  const char* says;
  const char* source;  // onnx.md is the project's collection of ONNX facts
};

constexpr PlacementRule kInput = {"P1", "all inputs of Conv, ConvTranspose, Gemm and MatMul are quantized",
                                  "onnx.md section 4, TensorRT's advice; section 5, anchored partitions"};
constexpr PlacementRule kResidual = {"P2", "the residual input of a skip Add is quantized",
                                     "onnx.md section 4, TensorRT's advice; section 5, residual Add"};
constexpr PlacementRule kShared = {
    "P3",
    "where codes pass through operators that only move values, one scale serves "
    "both sides; the inputs of a Concat have one",
    "onnx.md section 4, Q moves backward and DQ forward; section 5, Concat"};
constexpr PlacementRule kSoftmax = {"P4", "a Softmax output has the range (0,1)", "onnx.md section 3"};
constexpr PlacementRule kWeight = {"P5",
                                   "weights are codes with a scale a channel, behind a DequantizeLinear",
                                   "onnx.md section 4, per channel only on weights; section 3"};
constexpr PlacementRule kOutput = {"P6", "outputs of operators with QDQ fusions are quantized",
                                   "onnx.md section 3, ONNX Runtime"};
constexpr PlacementRule kCarried = {
    "P7", "what only moves quantized values gets a pair behind it, on its input's codes",
    "onnx.md section 3, output shares the input's scale"};
constexpr PlacementRule kOther = {"P8", "another operator's input, where the target has a kernel for it",
                                  "onnx.md section 3, other listed operators"};

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

// An Add among the readers of a pair that an input of a product asked for is there by the rule of residuals.
std::string readers(const Graph& scope, const std::vector<Use>& uses, bool graph_output,
                    const PlacementRule* rule) {
  std::string text;
  for (const Use& use : uses) {
    const Node& node = scope.node(use.node);
    text +=
        fmt::format("{}{} {}:{}", text.empty() ? "" : ", ", node.op, scope.value(node.out[0]).name, use.slot);
    if (rule == &kInput && node.is("Add")) text += fmt::format(" ({})", kResidual.id);
  }
  if (graph_output) text += text.empty() ? "the model's output" : ", the model's output";
  return text;
}

// Values by their place in the graph, so that the text does not depend on how the placer walked.
std::vector<std::size_t> in_graph_order(const Graph& graph, const std::vector<ActivationSite>& sites) {
  std::map<std::pair<SubgraphPath, ValueId>, int> place;
  int next = 0;
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& scope) {
    for (const ValueId in : scope.inputs) place.emplace(std::make_pair(path, in), next++);
    for (const NodeId id : scope.nodes()) {
      for (const ValueId in : scope.node(id).in)
        if (in != ValueId::kNone) place.emplace(std::make_pair(path, in), next++);
      for (const ValueId out : scope.node(id).out)
        if (out != ValueId::kNone) place.emplace(std::make_pair(path, out), next++);
    }
  });
  std::vector<std::size_t> order(sites.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return place[{sites[a].path, sites[a].value}] < place[{sites[b].path, sites[b].value}];
  });
  return order;
}

const PlacementRule& rule_behind(const ActivationSite& site) {
  if (begins(site.rule, "residual")) return kResidual;
  if (begins(site.rule, "output of"))
    return site.rule.find("on its input's codes") != std::string::npos ? kCarried : kOutput;
  for (const char* op : {"Conv", "ConvTranspose", "Gemm", "MatMul"})
    if (site.rule == std::string("input of ") + op) return site.unit_range ? kSoftmax : kInput;
  return kOther;
}

}  // namespace

std::string placement_text(const Graph& graph, const Placement& placement) {
  std::map<std::string, const PlacementRule*> used;
  std::map<int, int> numbers;  // groups, by their first appearance
  std::string lines;
  for (const std::size_t i : in_graph_order(graph, placement.activations)) {
    const ActivationSite& site = placement.activations[i];
    const PlacementRule& rule = rule_behind(site);
    used[rule.id] = &rule;
    if (site.unit_range) used[kInput.id] = &kInput;
    for (const Use& use : site.uses)
      if (subgraph_at(graph, site.path).node(use.node).is("Add") && &rule == &kInput)
        used[kResidual.id] = &kResidual;
    std::string group;
    if (site.group >= 0) {
      used[kShared.id] = &kShared;
      group = fmt::format("  {} group {}", kShared.id,
                          numbers.emplace(site.group, static_cast<int>(numbers.size()) + 1).first->second);
    }
    const Graph& scope = subgraph_at(graph, site.path);
    lines += fmt::format("Q  {}  {}  {} {}{}  <- {}\n", value_label(graph, site.path, site.value),
                         to_string(site.format), rule.id, site.rule, group,
                         readers(scope, site.uses, site.graph_output, &rule));
  }
  if (!placement.weights.empty()) used[kWeight.id] = &kWeight;
  for (const WeightSite& site : placement.weights) {
    const std::string axis =
        site.format.granularity == Granularity::kTensor ? "" : fmt::format("  axis {}", site.axis);
    lines += fmt::format("W  {}  {}{}  {}  <- {}\n", value_label(graph, site.path, site.value),
                         to_string(site.format), axis, kWeight.id,
                         readers(subgraph_at(graph, site.path), site.uses, false, nullptr));
  }
  for (const BiasSite& site : placement.biases) {
    const Graph& scope = subgraph_at(graph, site.path);
    lines += fmt::format("B  {}\n", value_label(graph, site.path, scope.node(site.node).out[0]));
  }
  for (const Skipped& row : placement.skipped) lines += fmt::format("-  {}  {}\n", row.tensor, row.why);
  std::string text;
  for (const auto& [id, rule] : used) text += fmt::format("{}  {} ({})\n", id, rule->says, rule->source);
  return text + "\n" + lines;
}

}  // namespace pare::quant
