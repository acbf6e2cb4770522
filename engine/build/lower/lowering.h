// The steps of lower_cpu, in their order. Each edits a graph that is not verified in between: after
// fuse_linear, pare.Conv nodes still have plain [N,C,H,W] values until assign_layout has run.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace pare::lowering {

// kept[id]: a value that must stay (watched or a graph output). By ValueId; values added later are not kept.
struct Kept {
  std::vector<bool> flags;
  bool operator()(ValueId id) const {
    const auto i = static_cast<std::size_t>(id);
    return i < flags.size() && flags[i];
  }
};

void expand_qlinear(Graph& graph);  // QLinearConv, QLinearMatMul -> Q/DQ around the float operator
// Products with weights of constant codes -> pare.WMatMul (lower_weight_only.cpp). What is left is folded.
void lower_weight_only(Graph& graph, const Kept& kept);
void fold_constants(Graph& graph);  // nodes whose inputs are all constants, kept values too
void fuse_fake_quant(Graph& graph,
                     const Kept& kept);  // DequantizeLinear(QuantizeLinear(x)) -> pare.FakeQuant
// Convolutions, products, pools and the like of float16 and bfloat16: in float32 between Casts
// (widen_halves.cpp).
void widen_halves(Graph& graph);
// x * Sigmoid(x) and the like -> Swish, HardSwish (fuse_pointwise.cpp lists them).
void fuse_pointwise(Graph& graph, const Kept& kept);
// Conv, Gemm, MatMul (+ bias Add) (+ residual Add) (+ activation) -> pare.Conv, pare.MatMul.
void fuse_linear(Graph& graph, const Kept& kept);
// Gives every pare.Conv, pool and what lies between them channels-last values, and inserts ToChannelsLast
// and ToPlain where the layout changes. `twin[id]` becomes the channels-last value that replaced `id`.
void assign_layout(Graph& graph, std::vector<ValueId>& twin);

}  // namespace pare::lowering
