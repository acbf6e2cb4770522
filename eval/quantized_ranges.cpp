// What the codes of each activation can hold, read from the candidate itself: the judge takes nobody's word.
#include <set>

#include "engine/ir/subgraph.h"
#include "engine/numeric/table.h"
#include "eval/evaluate.h"

namespace pare {
namespace {

// A scalar (or one-element) constant as double; false otherwise.
bool scalar_of(const Graph& graph, const Node& node, std::size_t slot, double& value, DType* type) {
  if (slot >= node.in.size() || !graph.is_constant(node.in[slot])) return false;
  const Tensor& constant = graph.value(node.in[slot]).constant;
  if (constant.size() != 1) return false;
  value = to_float32(constant.view()).as<float>()[0];
  if (type != nullptr) *type = constant.dtype();
  return true;
}

}  // namespace

std::vector<ClipRange> quantized_ranges(const Graph& whole) {
  std::vector<ClipRange> ranges;
  std::set<std::string> seen;
  walk_graphs(whole, [&](const SubgraphPath& path, const Graph& graph) {
    const std::string scope = path.empty() ? std::string() : to_string(whole, path) + "/";
    for (const NodeId id : graph.nodes()) {
      const Node& node = graph.node(id);
      if (!node.is("QuantizeLinear") || graph.is_constant(node.in[0])) continue;
      double scale = 0, zero = 0;
      DType type = node.out[0] == ValueId::kNone ? DType::kU8 : graph.value(node.out[0]).dtype;
      if (!scalar_of(graph, node, 1, scale, nullptr)) continue;
      if (node.in.size() > 2 && node.in[2] != ValueId::kNone && !scalar_of(graph, node, 2, zero, &type))
        continue;
      const FormatInfo* format = find_format(type);
      if (format == nullptr || format->encode == nullptr) continue;
      const Value& value = graph.value(node.in[0]);
      const std::string key = scope + (value.origin.empty() ? value.name : value.origin);
      if (!seen.insert(key).second) continue;
      ranges.push_back({key, (format->lowest() - zero) * scale, (format->largest - zero) * scale});
    }
  });
  return ranges;
}

}  // namespace pare
