// Takes a constant a channel out of an activation and gives it to the layers behind, so that a range around
// zero fits: the exact form of the high-bias fold.
//
//   x_c  becomes  x_c - z_c        in the bias of what makes x: a
//                                  LayerNormalization, Conv, Gemm, or an Add of a
//                                  constant row
//   b    becomes  b + W z          in every layer that reads x
//
// Exact for all inputs, because nothing stands between: behind a Relu the fold of arXiv 1906.04721
// (section 4.1.2) holds only for inputs that stay above z. Layers that pad are left alone: their zeros are no
// x.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/subgraph.h"
#include "quant/transform/activation_rounding.h"

namespace pare::quant {

struct ShiftGroup {
  SubgraphPath path;
  ValueId value = ValueId::kNone;
  int channel_axis = 1;
  std::int64_t channels = 0;
  NodeId maker = NodeId::kNone;   // holds the bias; a node without one gains it
  int slot = 2;                   // of the bias
  std::vector<NodeId> consumers;  // all that read x
};

// In graph order, subgraphs included.
std::vector<ShiftGroup> find_shift_groups(const Graph& graph);

// The middle of each channel's range over the sample [rows, channels], or {} where codes of x - z are no
// better: sum over channels of E (Q(x - z) - (x - z))^2 times the squared weights that read the channel.
struct ShiftChoice {
  std::vector<float> z;
  double gain_db = 0;
};
ShiftChoice choose_shift(const Graph& graph, const ShiftGroup& group, const std::vector<float>& sample,
                         const ActivationRounding& round);

void apply_shift(Graph& graph, const ShiftGroup& group, const std::vector<float>& z);

}  // namespace pare::quant
