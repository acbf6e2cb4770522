// Moves scale between an activation's channels and the weights that read it, so that one scale for the
// whole activation fits every channel. The float function stays the same up to rounding.
//
//   producer -> [Relu, MaxPool, ...] -> x -> linear nodes
//   x_c  becomes  x_c / s_c     folded into the producer: LayerNormalization's scale and bias, or the output
//                               channels of a Conv, Gemm or MatMul; what lies between is homogeneous
//   W_c  becomes  W_c * s_c     in every linear node that reads x
//
// Sources: SmoothQuant (arXiv 2211.10438) for norms, cross-layer equalization (arXiv 1906.04721) for
// convolutions. Here one rule serves both, and the strength is chosen by a predicted output error.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare::quant {

struct SmoothGroup {
  ValueId value = ValueId::kNone;  // x
  int channel_axis = 1;
  std::int64_t channels = 0;
  NodeId producer = NodeId::kNone;
  std::vector<NodeId> between;    // homogeneous nodes from the producer to x, in order
  std::vector<NodeId> consumers;  // each reads x as input 0
};

// Every place where the rule holds exactly. In graph order.
std::vector<SmoothGroup> find_smooth_groups(const Graph& graph);

// What calibration knows about one activation, by channel.
struct ChannelStats {
  std::vector<double> amax;         // largest magnitude
  std::vector<double> mean_square;  // E[x^2]
};

struct SmoothChoice {
  std::vector<float> scales;  // s_c > 0; empty: leave the group alone
  double strength = 0;        // the exponent chosen from kStrengths; 0 is "leave alone"
  double predicted_gain_db = 0;
};

// s_c = (a_c / mean a)^t / (w_c / mean w)^(1-t) for t in a fixed list, and s = 1; the one with the least
// predicted noise at the consumers' outputs, for symmetric codes of `levels` steps a side (127 for int8):
//   activation step^2 / 12 * sum of squared weights  +  weight step^2 / 12 * E[x^2], summed over outputs
SmoothChoice choose_smoothing(const Graph& graph, const SmoothGroup& group, const ChannelStats& stats,
                              double levels);

// Edits the constants (copies of their own for this group). s must have group.channels elements.
void apply_smoothing(Graph& graph, const SmoothGroup& group, const std::vector<float>& s);

}  // namespace pare::quant
