// Stage `build` of a run: the quantized model as an engine, model.engine in the run folder.
#pragma once

#include <string>
#include <vector>

#include "engine/build/plan/engine_plan.h"
#include "engine/build/profile.h"
#include "recipes/stages.h"

namespace pare {

// By recipe key `build`: for the GPU at hand or for the CPU, at the batch 1 or the sizes of its profiles. The
// file is read back and run once; the report says what each layer runs as, and the memory foreseen and taken.
// Without `quantize` it is an engine of the model after surgery. Returns the files. Errors: kDevice without
// the GPU that is asked for, kUsage for sizes that stay open, kUnsupported as make_plan() says.
std::vector<std::string> run_build(RunState& state);

// What the stage will take beside all that is held: `model` is the graph that it will build. For the CPU the
// graph is lowered and run twice, and the rest counted from there; for a device a count of layers, since what
// is timed there depends on what the timing cache has.
struct BuildForecast {
  double seconds = 0, bytes = 0;
};
BuildForecast forecast_build(RunState& state, const Graph& model);

// build.profiles; error kUsage.
ShapeProfile build_profile(const BuildSpec& spec);

// What builders want of a graph: simplified, without a self-check.
void clean_graph(Graph& graph);

// Generated inputs of `open` (open_sizes()) at a point of its profile.
std::vector<Tensor> random_inputs_at(const Graph& open, const ShapeProfile& profile, ProfilePoint point,
                                     std::int64_t batch, std::uint64_t seed);

// Generated inputs of the plan's shapes.
std::vector<Tensor> random_engine_inputs(const EnginePlan& plan, std::uint64_t seed);

}  // namespace pare
