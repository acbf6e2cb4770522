// How the weight of a linear node is indexed, whatever the operator: (output channel, input channel, tap).
#pragma once

#include <cstdint>

#include "engine/ir/graph.h"

namespace pare::quant {

struct WeightView {
  std::int64_t ins = 0, outs = 0, taps = 1, groups = 1;  // ins: within one group
  std::int64_t in_stride = 0, out_stride = 0, tap_stride = 1;

  std::int64_t at(std::int64_t out, std::int64_t in, std::int64_t tap) const {
    return out * out_stride + in * in_stride + tap * tap_stride;
  }
  std::int64_t group_of(std::int64_t out) const { return out / (outs / groups); }
  // The channel of the activation that input channel `in` of output `out` reads.
  std::int64_t channel(std::int64_t out, std::int64_t in) const { return group_of(out) * ins + in; }
};

// A constant whose axis `out` counts outputs and whose axis `in` the product sums over; -1: the neighbour of
// `out`. All other axes, which lie beside each other, are taps (kernel taps; matrices of a batch). One group.
WeightView view_weight(const Dims& dims, int out, int in);

// Conv [M, C/g, taps...], Gemm [K, N] or [N, K] with transB, MatMul [K, N], all float32 constants.
// False for anything else.
bool view_weight(const Graph& graph, const Node& node, WeightView& view);

}  // namespace pare::quant
