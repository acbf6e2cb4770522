// simplify on generated graphs: seconds for n / 8 and n nodes, and whether the time grows as the nodes do.
//
//   simplify_bench [NODES]      default 100000
//
// Three graphs, each with a known number of nodes left: a chain (every second node an Identity, pairs of
// equal nodes), a wide one (all nodes read one value; equal nodes and equal constants; a tree sums them up),
// and one of equal names (thousands of constants made from one name). Exit 1 when a wrong number of nodes is
// left, when the large graph takes 5 s or more of processor time, or more than 16 times the small one (8
// times the nodes).
#include <fmt/core.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

struct Made {
  Graph graph;
  std::int64_t left = 0;
};

ValueId add(Graph& graph, const char* op, std::vector<ValueId> in, const std::string& name) {
  Value value;
  value.name = name;
  const ValueId out = graph.add_value(std::move(value));
  Node node;
  node.op = op;
  node.name = name;
  node.in = std::move(in);
  node.out = {out};
  graph.add_node(std::move(node));
  return out;
}

ValueId input(Graph& graph) {
  Value value;
  value.name = "x";
  value.dtype = DType::kF32;
  value.shape = Shape(Dims{4});
  graph.inputs = {graph.add_value(std::move(value))};
  return graph.inputs[0];
}

// x -> Identity -> Relu, x -> Relu, Add, Neg ...: of five nodes three stay.
Made chain(std::int64_t nodes) {
  Made made;
  ValueId x = input(made.graph);
  for (std::int64_t i = 0; i < nodes / 5; ++i) {
    const std::string n = std::to_string(i);
    const ValueId a = add(made.graph, "Identity", {x}, "a" + n), b = add(made.graph, "Relu", {a}, "b" + n);
    const ValueId c = add(made.graph, "Relu", {x}, "c" + n), d = add(made.graph, "Add", {b, c}, "d" + n);
    x = add(made.graph, "Neg", {d}, "e" + n);
    made.left += 3;
  }
  made.graph.outputs = {x};
  return made;
}

// Mul(x, k) with 100 kinds of k, each a constant of its own; a tree adds them up.
Made wide(std::int64_t nodes) {
  Made made;
  const ValueId x = input(made.graph);
  std::vector<ValueId> row;
  for (std::int64_t i = 0; i < nodes / 2; ++i) {
    const float k = static_cast<float>(i % 100 + 2);
    const ValueId constant =
        made.graph.add_constant("k", Tensor::from(DType::kF32, {1}, std::vector<float>{k}));
    row.push_back(add(made.graph, "Mul", {x, constant}, "m"));
  }
  for (int level = 0; row.size() > 1; ++level) {
    std::vector<ValueId> next;
    for (std::size_t i = 0; i + 1 < row.size(); i += 2)
      next.push_back(add(made.graph, level % 2 == 0 ? "Sub" : "Add", {row[i], row[i + 1]}, "s"));
    if (row.size() % 2 == 1) next.push_back(row.back());
    row = std::move(next);
  }
  made.graph.outputs = {row[0]};
  made.left = -1;  // equal subtrees merge: only that it is few
  return made;
}

// Constants computed from one another: what folding makes gets names, all from one.
Made constants(std::int64_t nodes) {
  Made made;
  const ValueId x = input(made.graph);
  ValueId sum = x;
  for (std::int64_t i = 0; i < nodes / 2; ++i) {
    const auto number = [&](std::int64_t v) {
      return made.graph.add_constant(
          "c", Tensor::from(DType::kF32, {1}, std::vector<float>{static_cast<float>(v)}));
    };
    const ValueId folded = add(made.graph, "Add", {number(i), number(2 * i + 1)}, "f");
    sum = add(made.graph, "Max", {sum, folded}, "m");
    ++made.left;
  }
  made.graph.outputs = {sum};
  return made;
}

// Processor time of the passes; -1 when the result is wrong.
double seconds(const char* name, Made (*make)(std::int64_t), std::int64_t nodes) {
  Made made = make(nodes);
  const auto before = static_cast<std::int64_t>(made.graph.node_count());
  SimplifyOptions options;
  options.self_check = false;
  const std::clock_t start = std::clock();
  simplify(made.graph, options);
  const double taken = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const auto after = static_cast<std::int64_t>(made.graph.node_count());
  const bool right = made.left >= 0 ? after == made.left : after < before / 4;
  fmt::print("{{\"graph\":\"{}\",\"nodes\":{},\"left\":{},\"seconds\":{:.3f}{}}}\n", name, before, after,
             taken, right ? "" : ",\"error\":\"wrong result\"");
  return right ? taken : -1;
}

bool measure(const char* name, Made (*make)(std::int64_t), std::int64_t nodes) {
  const double small = seconds(name, make, nodes / 8), large = seconds(name, make, nodes);
  return small >= 0 && large >= 0 && large < 5 && large < 24 * small + 0.1;
}

}  // namespace
}  // namespace pare

int main(int argc, char** argv) {
  const std::int64_t nodes = argc > 1 ? std::atoll(argv[1]) : 100000;
  bool good = pare::measure("chain", pare::chain, nodes);
  good = pare::measure("wide", pare::wide, nodes) && good;
  good = pare::measure("constants", pare::constants, nodes) && good;
  return good ? 0 : 1;
}
