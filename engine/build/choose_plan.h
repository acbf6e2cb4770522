// Which plan of a network an engine gets, by time: normalizations and shortcuts inside of the products around
// them or apart, layers in the precision that Q/DQ ask for or float where that is faster
// (precision_choice.h). Each is tuned, and where kernels differ the whole graphs are measured; their times
// stand in the timing cache, so that the same choice is made again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/build/backend.h"
#include "engine/build/engine_file.h"
#include "engine/build/plan/make_plan.h"

namespace pare {

// The device that `asked` means: nullptr for "cpu"; the CUDA backend for "cuda" and "cuda:N", error kDevice
// without one that works; for "auto" that, or nullptr and a sentence of why in `note`.
EngineBackend* choose_device(const std::string& asked, std::string& note);

// How float values are stored, and whether layers keep the precision that they ask for.
struct PrecisionChoice {
  std::string stored;     // EnginePlan::precision
  bool as_asked = false;  // also where float is faster
};
// "fp16", "bf16", "fp32", "tf32"; "int8" and "fp8" mean fp16 with layers as asked; "": fp16, on the CPU fp32,
// which is all that it has. Errors at `where`: kUsage for another word, kUnsupported on the CPU.
PrecisionChoice precision_choice(const std::string& word, bool cpu, const std::string& where);

struct ChooseOptions {
  PlanOptions plan;
  TuneOptions tune;
  bool as_asked = false;
  bool open_sizes = false;  // the engine has a profile: layers stay as they are asked for
  std::function<std::vector<Tensor>(const EnginePlan&)> inputs;  // generated, to time whole graphs on
  std::function<void(const std::string&)> say;                   // what was compared in precision
};

// `plan`: of `graph` by options.plan; it is the chosen one afterwards, tuned, its memory planned.
TuneReport choose_plan(EngineBackend& backend, const Graph& graph, const ChooseOptions& options,
                       EnginePlan& plan);

// engine.plan chosen so, and the ends of engine.profile prepared as well, so that no kernel of theirs is
// compiled later. `clean`: what the builder did to a graph once its sizes were known. Error kDevice, before
// anything is timed, when one of them does not fit the device's free memory.
TuneReport tune_engine(EngineBackend& backend, const Graph& graph, const ChooseOptions& options,
                       const std::function<void(Graph&)>& clean, EngineFile& engine);

std::int64_t batch_of(const EnginePlan& plan);  // first size of the first input that has one; 1

}  // namespace pare
