// Runs a session batch after batch, and hands the outputs of a stateful model back to its inputs.
//
//   StateFeed feed(data, graph);
//   for each batch in order:  results = feed.run(session, batch)
//
// Without `feedback` in the data set it is session.run and nothing else. A state begins with zeros: at the
// first batch, and, with `reset: per_file`, at the first frame of each file. Batches end where a file ends,
// so results do not depend on their size as long as the model's state is of one stream ([1,1,128]); a state
// of one row a sample makes the batch one sample (Dataset::fixed_batch).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "datasets/dataset.h"
#include "engine/run/session.h"

namespace pare {

class StateFeed {
 public:
  // `graph`: the one whose outputs the session gives, in their order. Error kUsage, with a suggestion, when
  // it lacks an output that is to be fed back.
  StateFeed(const Dataset& data, const Graph& graph);

  // The outputs that are results: those that are fed back are left out, in the order of graph.outputs.
  // Error kUsage when a state comes back in another shape or type than it went in.
  std::vector<Tensor> run(Session& session, const Batch& batch);

  // The places in graph.outputs of what run() returns.
  const std::vector<std::size_t>& results() const { return results_; }

 private:
  struct Pair {
    std::size_t input, output;
    std::string name;  // of the input
    Tensor state;      // empty: the batch's own
  };
  std::vector<Pair> pairs_;
  std::vector<std::size_t> results_;
};

}  // namespace pare
