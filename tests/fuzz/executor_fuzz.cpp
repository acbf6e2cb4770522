// Kernels against each other: a small graph (graph_maker.h) node by node with the last kernel that takes each
// call, the plain reference, and as a session runs it, for every instruction class of this processor, plain
// and lowered.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/evaluate.h"
#include "engine/run/session.h"
#include "tests/fuzz/graph_maker.h"

namespace {

using pare::Graph;
using pare::Tensor;
using pare::ValueId;

std::vector<Tensor> by_reference(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::map<ValueId, Tensor> known;
  for (std::size_t i = 0; i < inputs.size(); ++i) known[graph.inputs[i]] = inputs[i];
  for (const pare::NodeId id : graph.nodes()) {
    const pare::Node& node = graph.node(id);
    std::vector<Tensor> in;
    for (const ValueId value : node.in)
      in.push_back(value == ValueId::kNone    ? Tensor()
                   : graph.is_constant(value) ? graph.value(value).constant
                                              : known.at(value));
    std::vector<Tensor> out = pare::evaluate_node_by_reference(graph, node, in);
    for (std::size_t i = 0; i < node.out.size(); ++i)
      if (node.out[i] != ValueId::kNone) known[node.out[i]] = std::move(out[i]);
  }
  std::vector<Tensor> results;
  for (const ValueId value : graph.outputs) results.push_back(known.at(value));
  return results;
}

std::vector<Tensor> by_session(std::shared_ptr<const Graph> graph, const std::vector<Tensor>& inputs,
                               bool only_invariant) {
  static pare::ThreadPool pool(2);
  pare::SessionOptions options;
  options.pool = &pool;
  options.only_invariant = only_invariant;
  pare::Session session(std::move(graph), options);
  return session.run(inputs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pare::fuzz::Made made = pare::fuzz::make_graph(data, size);
  const auto graph = std::make_shared<const Graph>(std::move(made.graph));
  const std::vector<Tensor> want = by_reference(*graph, made.inputs);
  const auto check = [&](const std::vector<Tensor>& got, const char* what) {
    if (pare::fuzz::close(got, want)) return;
    std::fprintf(stderr, "%s differs from the reference kernels:\n%s\n", what, pare::to_text(*graph).c_str());
    std::abort();
  };
  const pare::Isa best = pare::best_isa();
  for (int isa = 0; isa <= static_cast<int>(best); ++isa) {
    pare::set_isa(static_cast<pare::Isa>(isa));
    check(by_session(graph, made.inputs, true), "a session");
    check(by_session(graph, made.inputs, false), "a session that need not be invariant");
    const pare::Lowered lowered = pare::lower_for_cpu(*graph);
    check(by_session(lowered.graph, made.inputs, true), "the lowered graph");
  }
  pare::set_isa(best);
  return 0;
}
