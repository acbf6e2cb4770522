#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "graphsurgeon/passes/inline_graph.h"
#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

constexpr std::int64_t kMostTrips = 16;
constexpr std::int64_t kMostNodes = 256;  // that unrolling may make

struct Match {
  std::int64_t trips = 0;
  std::size_t carried = 0;
  std::shared_ptr<Graph> body;
};

// A constant bool; nullopt when it is computed. An input left out is true.
std::optional<bool> constant_condition(const Graph& graph, ValueId id) {
  if (id == ValueId::kNone) return true;
  if (!graph.is_constant(id) || graph.value(id).constant.size() != 1) return std::nullopt;
  return graph.value(id).constant.to_ints()[0] != 0;
}

// The body goes on for ever: its condition is a constant true, or the one that came in.
bool goes_on(const Graph& body) {
  ValueId condition = body.outputs.at(0);
  while (body.producer(condition) != NodeId::kNone && body.node(body.producer(condition)).is("Identity"))
    condition = body.node(body.producer(condition)).in[0];
  return condition == body.inputs.at(1) || constant_condition(body, condition).value_or(false);
}

// What goes in, comes out and goes in again has a shape that is declared alike everywhere.
bool shapes_agree(const Graph& graph, const Node& node, const Match& found) {
  const Graph& body = *found.body;
  for (std::size_t i = 0; i < found.carried; ++i) {
    const Value& first = graph.value(node.in[i + 2]);
    const Value& in = body.value(body.inputs[i + 2]);
    const Value& out = body.value(body.outputs[i + 1]);
    if (found.trips > 0 && !may_be_one(first, in)) return false;
    if (found.trips > 1 && !may_be_one(out, in)) return false;
    if (node.out[i] != ValueId::kNone && !may_be_one(found.trips > 0 ? out : first, graph.value(node.out[i])))
      return false;
  }
  return true;
}

bool match(const Graph& graph, NodeId id, Match& found) {
  const Node& node = graph.node(id);
  if (!node.is("Loop")) return false;
  const auto it = node.attrs.find("body");
  if (it == node.attrs.end()) return false;
  const auto* body = std::get_if<std::shared_ptr<Graph>>(&it->second);
  const std::size_t declared =
      node.declared_inputs < 0 ? node.in.size() : static_cast<std::size_t>(node.declared_inputs);
  if (body == nullptr || *body == nullptr || declared < 2 || (*body)->inputs.size() != declared ||
      (*body)->outputs.size() != node.out.size() + 1)
    return false;
  found.body = *body;
  found.carried = declared - 2;
  const auto trips = constant_ints(graph, node, 0);
  const auto condition = constant_condition(graph, node.in[1]);
  if (!condition) return false;
  const bool scans = node.out.size() > found.carried;
  if (*condition && (!trips || trips->size() != 1)) return false;
  found.trips = *condition ? (*trips)[0] : 0;
  if (found.trips <= 0) {
    found.trips = 0;
    return !scans && shapes_agree(graph, node, found);  // the shape of nothing is not known
  }
  if (found.trips > kMostTrips) return false;
  if (found.trips * static_cast<std::int64_t>(found.body->node_count()) > kMostNodes) return false;
  return goes_on(*found.body) && shapes_agree(graph, node, found);
}

ValueId new_value(Graph& graph, ValueId like, const char* suffix) {
  Value value;
  value.name = graph.value(like).name + suffix;
  value.dtype = graph.value(like).dtype;
  return graph.add_value(std::move(value));
}

// What the iterations gave, along a new first axis.
ValueId stack(Graph& graph, NodeId owner, const std::vector<ValueId>& parts) {
  const ValueId axes = graph.add_constant(graph.value(parts[0]).name + "_axes", Tensor::ints({0}));
  Node concat;
  concat.op = "Concat";
  concat.attrs["axis"] = std::int64_t{0};
  for (const ValueId part : parts) {
    Node unsqueeze;
    unsqueeze.op = "Unsqueeze";
    unsqueeze.in = {part, axes};
    unsqueeze.out = {new_value(graph, part, "_unsqueezed")};
    concat.in.push_back(unsqueeze.out[0]);
    graph.insert_before(owner, std::move(unsqueeze));
  }
  concat.out = {new_value(graph, parts[0], "_stacked")};
  const ValueId result = concat.out[0];
  graph.insert_before(owner, std::move(concat));
  return result;
}

void unroll(Graph& graph, NodeId id, const Match& found) {
  std::vector<ValueId> state;
  for (std::size_t i = 0; i < found.carried; ++i) state.push_back(graph.node(id).in[i + 2]);
  const std::size_t scans = found.body->outputs.size() - 1 - found.carried;
  std::vector<std::vector<ValueId>> stacked(scans);
  const std::string name = graph.node(id).name.empty() ? "loop" : graph.node(id).name;
  for (std::int64_t trip = 0; trip < found.trips; ++trip) {
    std::vector<ValueId> inputs = {
        graph.add_constant(name + "_iteration",
                           Tensor::from(DType::kI64, {}, std::vector<std::int64_t>{trip})),
        graph.add_constant(name + "_condition",
                           Tensor::from(DType::kBool, {}, std::vector<std::uint8_t>{1}))};
    inputs.insert(inputs.end(), state.begin(), state.end());
    const std::vector<ValueId> results = inline_graph(graph, id, *found.body, inputs);
    state.assign(results.begin() + 1, results.begin() + 1 + static_cast<std::ptrdiff_t>(found.carried));
    for (std::size_t i = 0; i < scans; ++i) stacked[i].push_back(results[1 + found.carried + i]);
  }
  for (const auto& parts : stacked) state.push_back(stack(graph, id, parts));
  replace_by_identities(graph, id, state);
}

int unroll_loop(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Match found;
    if (!match(graph, id, found)) continue;
    if (!context.may_change(graph, id)) break;
    unroll(graph, id, found);
    ++count;
  }
  return count;
}

}  // namespace

const Pass kUnrollLoop = {"unroll_loop",
                          "put the iterations of a Loop with a small constant number of trips in its place",
                          unroll_loop};

}  // namespace pare
