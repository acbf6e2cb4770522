// Gram matrices (gram.h) of the inputs of linear nodes, from a data set.
//
// Layers are taken in passes over the data, so that the matrices of one pass fit into `memory_bytes`; layers
// that read the same rows of the same value (q, k and v) share one matrix.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "calib/gram.h"
#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "engine/ir/subgraph.h"

namespace pare {

struct GramTarget {  // a MatMul, Gemm or Conv (gram_geometry.h)
  SubgraphPath path;
  NodeId node = NodeId::kNone;
};

struct GramOptions {
  ThreadPool* pool = nullptr;        // required
  std::int64_t begin = 0, end = -1;  // samples; -1: all that there are
  std::int64_t held_out = 0;         // the last so many of them make a matrix of their own
  std::int64_t batch = 0;            // samples at once; 0: the data set's own. Changes no bit
  std::int64_t memory_bytes = std::int64_t{1} << 30;  // of matrices; one layer's are always held
  Progress* progress = nullptr;                       // counts samples
};

struct GramPair {
  Gram fit, held_out;  // held_out is empty without held-out samples
  Gram outputs = {};   // of output gradients (gradient_grams.h); empty: outputs count alike
};

using GramsDone = std::function<void(std::size_t target, const std::shared_ptr<const GramPair>& pair)>;

// Calls done(index in targets, matrices) for each target, pass by pass; targets with the same rows get the
// same ones. A layer whose branch was never taken
// has count 0. Errors: kUsage for a node without a constant weight, or where the data set has not more than
// `held_out` samples; kInterrupted.
void collect_grams(const Graph& graph, const std::vector<GramTarget>& targets, Dataset& data,
                   const GramOptions& options, const GramsDone& done);

// Passes that it takes; bytes of all matrices, and the most at once beside the session, when who gets the
// matrices keeps them.
struct GramForecast {
  std::int64_t passes = 0, held = 0, most = 0;
};
GramForecast forecast_grams(const Graph& graph, const std::vector<GramTarget>& targets,
                            const GramOptions& options);

}  // namespace pare
