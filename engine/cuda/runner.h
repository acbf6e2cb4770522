// Puts a tuned plan on the device (engine/build/backend.h says what a runner does).
#pragma once

#include <memory>

#include "engine/build/backend.h"

namespace pare::cuda {

// After plan_memory. `like` (of this module, or nullptr) lends the weights that both have. Errors: kDevice
// when memory is short, kUnsupported when a tactic is not to be had.
std::unique_ptr<EngineRunner> make_runner(const EnginePlan& plan, EngineRunner* like);

}  // namespace pare::cuda
