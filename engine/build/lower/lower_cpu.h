// From the graph that people know to the one that the CPU runs fast.
//
//   - constants that follow from constants are computed (weight DequantizeLinear included)
//   - Conv, Gemm and MatMul take their bias, residual addition and activation with them (pare.Conv,
//     pare.MatMul); DequantizeLinear(QuantizeLinear(x)) becomes one pare.FakeQuant
//   - MatMul and Gemm keep weights of 2 to 8 bits as codes (pare.WMatMul), with the same bits
//   - convolution nets run channels-last; layouts change only where an operator needs the other one
//   - optionally Q/DQ around Conv, Gemm and MatMul become integer kernels (lower_integer.h)
//
// Subgraphs are lowered like the graph around them, which hands them plain values and gets plain ones back;
// constants that they capture become their own.
//
// The float function stays the same up to rounding of the same sums; nothing is approximated. A value in
// `keep` still exists afterwards (no fusion swallows it), perhaps channels-last.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/build/lower/realized.h"
#include "engine/ir/subgraph.h"

namespace pare {

struct LowerOptions {
  std::vector<ValueId> keep;                                 // of the source graph: what will be watched
  std::map<SubgraphPath, std::vector<ValueId>> keep_inside;  // the same of its subgraphs
  bool integer = false;                                      // true integer kernels where Q/DQ allow it
  bool tensor_cores = false;  // integer: those of a GPU instead (E4M3 too; lower_integer.h says what else)
  bool fuse = true;           // off: one node stays one kernel (for bisecting)
  bool channels_last = true;
};

struct Lowered {
  std::shared_ptr<const Graph> graph;
  std::vector<Realized> realized;  // one row a node that Q/DQ ask to run in low precision
  // The lowered value that holds what `source` held; its layout may be channels-last. kNone when gone.
  ValueId find(ValueId source) const;
  // The same inside a subgraph, whose path is that of the source.
  ValueId find(const SubgraphPath& path, ValueId source) const;

  std::vector<ValueId> twin;                            // by source ValueId
  std::map<SubgraphPath, std::vector<ValueId>> inside;  // the same for each subgraph
};

Lowered lower_for_cpu(const Graph& graph, const LowerOptions& options = {});

}  // namespace pare
