#include "graphsurgeon/passes/recognize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graphsurgeon/passes/edit.h"

namespace pare {
namespace {

constexpr double kTolerance = 1e-4;  // constants are written with few digits, or rounded to half precision

bool near(double a, double b) { return std::fabs(a - b) <= std::max(kTolerance * std::fabs(b), 1e-9); }

}  // namespace

const Node* made_by(const Graph& graph, ValueId id, std::string_view op) {
  if (id == ValueId::kNone || graph.producer(id) == NodeId::kNone) return nullptr;
  const Node& node = graph.node(graph.producer(id));
  return node.is(op) && graph.value(id).producer_slot == 0 ? &node : nullptr;
}

std::optional<double> number(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id) || graph.value(id).constant.size() != 1) return std::nullopt;
  std::vector<double> values;
  if (!to_doubles(graph.value(id).constant, values)) return std::nullopt;
  return values[0];
}

bool is_number(const Graph& graph, ValueId id, double wanted) {
  const auto value = number(graph, id);
  return value && near(*value, wanted);
}

ValueId other_operand(const Node& node, ValueId id) {
  if (node.in.size() != 2) return ValueId::kNone;
  return node.in[0] == id ? node.in[1] : node.in[1] == id ? node.in[0] : ValueId::kNone;
}

ValueId plus_number(const Graph& graph, ValueId id, double wanted) {
  const Node* add = made_by(graph, id, "Add");
  if (add == nullptr) return ValueId::kNone;
  if (is_number(graph, add->in[1], wanted)) return add->in[0];
  return is_number(graph, add->in[0], wanted) ? add->in[1] : ValueId::kNone;
}

Factors factors(const Graph& graph, ValueId id, const std::vector<ValueId>& stop, int depth) {
  Factors all;
  if (const auto n = number(graph, id)) {
    all.number = *n;
    return all;
  }
  const bool open = depth > 0 && std::find(stop.begin(), stop.end(), id) == stop.end();
  const Node* mul = open ? made_by(graph, id, "Mul") : nullptr;
  const Node* div = open ? made_by(graph, id, "Div") : nullptr;
  if (mul != nullptr) {
    for (const ValueId in : mul->in) {
      const Factors part = factors(graph, in, stop, depth - 1);
      all.number *= part.number;
      all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    }
    return all;
  }
  if (div != nullptr) {
    if (const auto n = number(graph, div->in[1]); n && *n != 0) {
      all = factors(graph, div->in[0], stop, depth - 1);
      all.number /= *n;
      return all;
    }
  }
  all.values = {id};
  return all;
}

bool are(const Factors& found, const std::vector<ValueId>& values, double wanted) {
  return std::is_permutation(found.values.begin(), found.values.end(), values.begin(), values.end()) &&
         near(found.number, wanted);
}

ValueId mean_of_last_axes(const Graph& graph, ValueId id, int& k) {
  const Node* mean = made_by(graph, id, "ReduceMean");
  if (mean == nullptr || mean->attr("keepdims", std::int64_t{1}) == 0) return ValueId::kNone;
  const int rank = graph.value(mean->in[0]).shape.rank();
  const auto axes = constant_ints(graph, *mean, 1);
  if (!axes || axes->empty()) return ValueId::kNone;
  std::vector<std::int64_t> back;  // counted from the end: 1 is the last
  for (const std::int64_t axis : *axes) {
    if (axis >= 0 && rank < 0) return ValueId::kNone;
    back.push_back(axis < 0 ? -axis : rank - axis);
  }
  std::sort(back.begin(), back.end());
  for (std::size_t i = 0; i < back.size(); ++i)
    if (back[i] != static_cast<std::int64_t>(i) + 1) return ValueId::kNone;
  k = static_cast<int>(back.size());
  return mean->in[0];
}

ValueId square_of(const Graph& graph, ValueId id) {
  if (const Node* mul = made_by(graph, id, "Mul"); mul != nullptr && mul->in[0] == mul->in[1])
    return mul->in[0];
  const Node* pow = made_by(graph, id, "Pow");
  if (pow == nullptr) return ValueId::kNone;
  if (is_number(graph, pow->in[1], 2)) return pow->in[0];
  const auto whole = constant_ints(graph, *pow, 1);
  return whole && whole->size() == 1 && (*whole)[0] == 2 ? pow->in[0] : ValueId::kNone;
}

ValueId root_of(const Graph& graph, ValueId id, bool inverse, double& epsilon) {
  ValueId sum = ValueId::kNone;
  if (inverse) {
    if (const Node* reciprocal = made_by(graph, id, "Reciprocal"))
      return root_of(graph, reciprocal->in[0], false, epsilon);
    if (const Node* div = made_by(graph, id, "Div"); div != nullptr && is_number(graph, div->in[0], 1))
      return root_of(graph, div->in[1], false, epsilon);
    const Node* pow = made_by(graph, id, "Pow");
    if (pow == nullptr || !is_number(graph, pow->in[1], -0.5)) return ValueId::kNone;
    sum = pow->in[0];
  } else if (const Node* sqrt = made_by(graph, id, "Sqrt")) {
    sum = sqrt->in[0];
  } else {
    const Node* pow = made_by(graph, id, "Pow");
    if (pow == nullptr || !is_number(graph, pow->in[1], 0.5)) return ValueId::kNone;
    sum = pow->in[0];
  }
  const Node* add = made_by(graph, sum, "Add");
  if (add == nullptr) return ValueId::kNone;
  for (int slot = 0; slot < 2; ++slot) {
    const auto n = number(graph, add->in[static_cast<std::size_t>(slot)]);
    if (!n || *n < 0 || *n > 0.1) continue;
    epsilon = *n;
    return add->in[static_cast<std::size_t>(1 - slot)];
  }
  return ValueId::kNone;
}

std::optional<Tensor> weight_of_last_axes(const Graph& graph, ValueId constant, ValueId x, int k) {
  const Shape& shape = graph.value(x).shape;
  if (!graph.is_constant(constant) || shape.rank() < k || graph.value(constant).dtype != graph.value(x).dtype)
    return std::nullopt;
  const Dims& dims = graph.value(constant).constant.dims();
  if (dims.size() < static_cast<std::size_t>(k) || dims.size() > shape.dims.size()) return std::nullopt;
  Dims last(dims.end() - k, dims.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(k) < dims.size(); ++i)
    if (dims[i] != 1) return std::nullopt;
  for (int i = 0; i < k; ++i) {
    const Dim& dim = shape.dims[shape.dims.size() - static_cast<std::size_t>(k - i)];
    if (!dim.known() || dim.value != last[static_cast<std::size_t>(i)]) return std::nullopt;
  }
  return graph.value(constant).constant.reshaped(last);
}

void replace_node(Graph& graph, NodeId id, Node node) {
  const ValueId result = graph.node(id).out.at(0);
  if (node.name.empty()) node.name = graph.node(id).name;
  graph.set_output(id, 0, ValueId::kNone);
  node.out = {result};
  graph.insert_after(id, std::move(node));
  graph.remove_node(id);
}

}  // namespace pare
