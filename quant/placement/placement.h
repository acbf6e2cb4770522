// Where Q/DQ go, and why not elsewhere. Decides places only; numbers come from calibration and search.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/subgraph.h"
#include "quant/placement/spec.h"

namespace pare::quant {

// One activation value and the inputs that will read its quantized form: one Q/DQ pair for all of them.
struct ActivationSite {
  ValueId value = ValueId::kNone;
  std::vector<Use> uses;
  bool graph_output = false;  // the model's output too reads the dequantized value (onnxruntime)
  Format format;
  std::string rule;         // the placement rule behind it: "input of Conv", "residual of Add"
  bool unit_range = false;  // a Softmax output: (0,1) whatever calibration saw
  SubgraphPath path = {};   // of the graph that value and uses belong to
  int group = -1;  // sites of one group have one range, so one scale (that of all of them); -1: alone
};

// Rules of the values that a quantized KV cache holds: inputs 1 and 2 of Attention.
inline constexpr const char* kKeyRule = "key of Attention";
inline constexpr const char* kValueRule = "value of Attention";

struct WeightSite {
  ValueId value = ValueId::kNone;  // the constant
  std::vector<Use> uses;           // several when nodes share it: one set of codes for all
  int axis = 0;                    // of the output channels, in the constant's own dims
  Format format;
  SubgraphPath path = {};
  std::string method = "auto";  // how its codes are chosen (spec.h)
  int reduce_axis = -1;         // that the product sums over, in the constant's own dims: blocks lie along it
  int fused = -1;               // index in Placement::fused; -1: alone
};

// Layers that read one activation and that runtimes fuse into one product (q/k/v, gate/up). A scale for the
// whole tensor, and the tensor-wide scale of two-level formats, is one for all of their weights.
struct FusedLayers {
  std::string kind;                  // "qkv", "gate_up"
  std::vector<std::size_t> weights;  // indices in Placement::weights
};

// Bias of a quantized linear node kept as int32 codes with scale sx*sw (target onnxruntime).
struct BiasSite {
  NodeId node = NodeId::kNone;
  int slot = 2;
  SubgraphPath path = {};
};

struct Skipped {
  std::string tensor;  // or the node's name when the whole node is left alone
  std::string why;
};

struct Placement {
  std::vector<ActivationSite> activations;
  std::vector<WeightSite> weights;
  std::vector<BiasSite> biases;
  std::vector<FusedLayers> fused;
  std::vector<Skipped> skipped;
  std::vector<std::string> unmatched;  // sentences about rules that match nothing (rules.h)
  std::vector<std::string> notes;      // what else people should know: a weight that is stored twice
};

// The graph must have shapes. Q/DQ that are in it already are kept and not doubled, also where operators that
// only move values stand between them and the reader (value_moving.h). Error kUnsupported for formats that
// the target cannot hold, and for Q/DQ of the model that it refuses (target_rules.h). A constant that several
// nodes read, also through Transpose, has one set of codes, which all of them read: the embedding and the
// head of a language model. A node whose output channels lie along another axis of it, or that a rule gives
// another format, stays float; with float activations the axis does not matter and it reads along. A weight
// and an activation are only quantized together: a node whose activations are left alone keeps its float
// weights, unless spec.activations is off (weight-only). Subgraphs are placed like the graph around them;
// their rows carry their path.
Placement place(const Graph& graph, const Spec& spec);

// Leaves float every node that reads one of these activations (by index), with its weights: they go out of
// the placement, and each node gets a row in `skipped` with the reason.
void leave_float(const Graph& graph, Placement& placement, const std::vector<std::size_t>& activations,
                 const std::string& why);

}  // namespace pare::quant
