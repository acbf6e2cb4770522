// If, Loop and Scan: when the subgraphs of a node run, and with what. Internal to engine/run.
//
//   If    the branch that the condition (one bool) names
//   Loop  for i = 0, 1, ... while i < M and the
//         condition holds. Carried values may change their shape; what is
//         scanned has one shape in all iterations and is stacked on a new first axis. More iterations than
//         SessionOptions::max_iterations: Error kUnsupported.
//   Scan  over slices of the scanned inputs
//         along their axes, forwards or backwards; outputs are stacked along
//         theirs. Source of all: the ONNX operator specification, opset 25.
//
// What a subgraph captures and gives out changes hands without a copy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/run/run_context.h"
#include "engine/run/slot.h"

namespace pare {

class GraphRun;

struct Body {
  std::string attribute;
  std::unique_ptr<GraphRun> run;
};

// A node with subgraphs, and the graph around it.
struct ControlCall {
  const Graph& graph;
  const Node& node;
  std::vector<Slot>& slots;  // of `graph`
  std::vector<Body>& bodies;
  RunContext& context;

  bool has(std::size_t i) const { return i < declared() && node.in[i] != ValueId::kNone; }
  Slot& in(std::size_t i) const;  // Error kBadFile when it is left out
  std::size_t declared() const {
    return node.declared_inputs < 0 ? node.in.size() : static_cast<std::size_t>(node.declared_inputs);
  }
  GraphRun& body(std::string_view attribute) const;
  void capture(GraphRun& body) const;               // sets what it captures
  void set_output(std::size_t i, Slot slot) const;  // takes over the reference; unwanted: released
};

// What the engine runs itself, without a kernel: these three, and sequences and optionals (sequence_ops.h).
bool is_control_flow(const Node& node);
void run_control_flow(ControlCall& call);

}  // namespace pare
