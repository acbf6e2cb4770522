// Sessions on a backend's device (engine/run/session_device.h): calibration and evaluation on a GPU by the
// interfaces they have on the CPU.
//
// A lowered graph becomes a plan in float32 whose outputs are the graph's and what is watched. Only generated
// kernels run, the first that can of each layer: nothing is timed and no library is asked, so a sample's
// numbers depend neither on its place in the batch, nor on the batch, nor on the run. Against the CPU they
// differ by the order of float32 sums: by at most (n + 2) 2^-24 of the sum of magnitudes for n terms.
#pragma once

#include <functional>
#include <list>
#include <string>

#include "engine/build/backend.h"
#include "engine/run/session_device.h"

namespace pare {

class EngineSessions final : public SessionDevice {
 public:
  explicit EngineSessions(EngineBackend& backend) : backend_(backend) {}

  // Declined: graphs with subgraphs, integer kernels of the CPU, or an operator that no layer computes.
  bool run(const std::shared_ptr<const Graph>& graph, const std::vector<Tensor>& inputs,
           const std::vector<ValueId>& watched, Results& results) override;

  std::int64_t runs() const { return runs_; }
  const std::vector<std::string>& declined() const { return declined_; }  // a reason for each graph

 private:
  struct Ready {
    std::shared_ptr<const Graph> graph;
    std::vector<ValueId> watched;
    std::vector<Dims> dims;
    std::vector<ValueId> outputs;  // of the plan
    std::unique_ptr<EngineRunner> runner;
  };
  Ready& ready(const std::shared_ptr<const Graph>& graph, const std::vector<Tensor>& inputs,
               const std::vector<ValueId>& watched);

  EngineBackend& backend_;
  std::list<Ready> ready_;  // used last first
  std::vector<const Graph*> refused_;
  std::vector<std::string> declined_;
  std::int64_t runs_ = 0;
};

}  // namespace pare
