// Sessions on another device than this processor: the same Session, the same watchers.
//
// While a device is set, sessions that are made hand it each run of their main graph. It gives outputs and
// watched values back as host tensors, or declines the graph, which then runs here as ever.
#pragma once

#include <memory>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

class SessionDevice {
 public:
  struct Results {
    std::vector<Tensor> outputs, watched;  // in the order of graph.outputs, of `watched`
  };
  virtual ~SessionDevice() = default;
  // Inputs are checked. False: it cannot run this graph (and keeps the reason for who set it).
  virtual bool run(const std::shared_ptr<const Graph>& graph, const std::vector<Tensor>& inputs,
                   const std::vector<ValueId>& watched, Results& results) = 0;
};

// For the whole process; nullptr ends it. The device must outlive the sessions made meanwhile.
void set_session_device(SessionDevice* device);
SessionDevice* session_device();

}  // namespace pare
