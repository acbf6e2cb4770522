// The blocks of a network: stretches of nodes between values through which everything that the weights have
// touched must pass. A decoder layer is one: what comes in and what goes out is one tensor.
//
//   main nodes   those with a constant weight that is multiplied (MatMul, Gemm, Conv), and all that depend on
//                one. What does not (positions, masks, embeddings) is computed from the model's inputs by
//                every block that needs it
//   cut          a place in the order of the main nodes behind which a single float32 value of rank 2 or more
//                is still needed
//
// Cuts are taken where names say that another layer begins ("model.layers.3.", "/encoder/layer.3/"), and in
// front of what follows the last one. Where names say nothing: in front of every stretch between cuts with a
// Softmax or an Attention in it, and at the last cut.
#pragma once

#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare {

struct GraphBlock {
  std::string name;              // "model.layers.3", "block 3"; "head" for what follows the layers
  std::vector<NodeId> nodes;     // main ones, in order
  ValueId in = ValueId::kNone;   // kNone: the first block, which reads the model's inputs alone
  ValueId out = ValueId::kNone;  // kNone: the last one, whose outputs are those of the model
};

// In order; empty where the graph has not two blocks at least.
std::vector<GraphBlock> find_blocks(const Graph& graph);

// What becomes of weights that the graph has as views with Transpose and Cast behind them
// (BuildOptions::views).
enum class BlockWeights {
  kFloats,  // float32 constants under the name of the view, as quantizers want them
  kSizes,   // the same without their numbers (engine/base/absent_tensor.h): no memory
  kViews    // they stay what they are
};

// The block as a graph of its own. Inputs: `in` first, then those of the model that it needs, all with their
// names; output: `out`, or the model's. Error kBadFile for NaN or infinities in a weight that becomes float32
// or stays a view, named and counted.
Graph extract_block(const Graph& graph, const GraphBlock& block, ThreadPool& pool,
                    BlockWeights weights = BlockWeights::kFloats);

// Bytes that extract_block() will allocate for float32 constants.
std::int64_t block_weight_bytes(const Graph& graph, const GraphBlock& block);

}  // namespace pare
