// Which tensors of a checkpoint are weights of linear layers: what its family multiplies by.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "graphsurgeon/checkpoint/checkpoint.h"

namespace pare {

struct LinearModule {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  std::string weight;  // the tensor: MODULE.weight, or the embedding where the head shares it
  std::int64_t outs = 0, ins = 0;
  bool in_first = false;  // stored [ins, outs]
  bool tied = false;      // the tensor has another name
  // Too small to be worth it, and what routes tokens to experts: left in float by every tool.
  bool router = false;
  std::string input;  // the value that it multiplies: modules with the same one are fused by runtimes
  NodeId node = NodeId::kNone;  // its MatMul in the graph below
};

// In the order of the model; `graph` gets the graph that they were found in, weights as views. Nothing of
// large weights is read. Errors: those of build_graph.
std::vector<LinearModule> linear_modules(const Checkpoint& checkpoint, Graph& graph);
std::vector<LinearModule> linear_modules(const Checkpoint& checkpoint);

}  // namespace pare
