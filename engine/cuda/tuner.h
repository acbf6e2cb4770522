// Choosing a tactic for each layer of a plan: kernels are compiled, candidates timed on the device, the
// winner noted.
//
// Layers that are equal (layer_key) are timed once. A candidate is timed in a captured graph of several
// launches, on random data, over as many copies of its weights as pass the L2 cache when the model's weights
// do; in rounds: what is slower than twice the best after the first goes, then medians of more launches
// decide. Within 2 % the smaller workspace wins.
#pragma once

#include <memory>
#include <string>

#include "engine/build/backend.h"
#include "engine/cuda/tactic.h"

namespace pare::cuda {

// What makes two layers the same to every tactic: kind, sizes, strides, types, epilogue, program. Names and
// weights' values are no part of it.
std::string layer_key(const EnginePlan& plan, const PlanLayer& layer);

TuneReport tune(EnginePlan& plan, const TuneOptions& options);
CompileReport compile_portable(EnginePlan& plan, const std::vector<std::string>& architectures, int jobs);
void adopt(EnginePlan& plan, const EnginePlan& tuned);  // EngineBackend::adopt

// The tactic that the layer names; its machine code comes from the plan, or is compiled. Error kUnsupported
// when the library or this version does not know it any more.
std::unique_ptr<Tactic> chosen_tactic(const EnginePlan& plan, const PlanLayer& layer);

// EngineBackend::check_tactics.
std::vector<TacticCheck> check_tactics(const EnginePlan& plan);

}  // namespace pare::cuda
