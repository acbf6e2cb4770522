// Low precision is kept where it is faster: a network that asks for int8 or fp8 layers is tuned as it asks,
// and once more with these layers as float; layers that lost are left float. Which of the three plans (as
// asked, all float, mixed) is taken is measured on their whole graphs.
//
// Q/DQ around a layer say what may be rounded, so leaving an activation unrounded is never less accurate;
// weights stay the dequantized ones.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/build/backend.h"
#include "engine/build/plan/engine_plan.h"
#include "engine/ir/graph.h"

namespace pare {

// Nodes (Conv, Gemm, MatMul) whose Q/DQ are taken from their activations, and sums that read the result of
// one of them alone, whose other side loses its Q/DQ too. Returns how many inputs changed.
int drop_quantization(Graph& graph, const std::set<std::string>& nodes);

// The nodes of a plan that run in a low precision as they were asked to.
std::set<std::string> low_precision_nodes(const EnginePlan& plan);

struct FloatIsFaster {
  double low_us = 0, float_us = 0;  // of the layers that hold the node
};
// After both are tuned: which of `low`'s low precision nodes are in layers that take no longer in `as_float`.
// Layers are compared with those of the other plan that hold the same nodes.
std::map<std::string, FloatIsFaster> faster_as_float(const EnginePlan& low, const EnginePlan& as_float);

// Rows of `plan.realized` for nodes that were left float although `low` ran them as asked.
void explain_float(EnginePlan& plan, const EnginePlan& low, const std::map<std::string, FloatIsFaster>& left);

// The nodes that explain_float has explained: for building the same plan again.
std::set<std::string> left_float(const EnginePlan& plan);

// Median time of a launch of each plan's captured graph, on the device, after plan_memory: in three rounds of
// all. Sums of layers leave out what lies between kernels and what one leaves in the caches for the next.
std::vector<double> measured_milliseconds(EngineBackend& backend, const std::vector<const EnginePlan*>& plans,
                                          const std::vector<Tensor>& inputs);

// Layers' times, and 0.35 us between kernels of a captured graph (seen on an H200).
double planned_microseconds(const EnginePlan& plan);

}  // namespace pare
