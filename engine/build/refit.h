// New weights of the same graph in an engine that was tuned before: nothing is timed or compiled, no device
// is needed.
#pragma once

#include "engine/build/plan/engine_plan.h"

namespace pare {

// `fresh` is the plan of the new model with the options of the old one; it gets tactics, times, realized
// precision and kernels of `tuned`. Error kUnsupported naming the first layer or tensor that differs: sizes
// and types, or a constant that is part of a kernel's text (a scale of codes, the alpha of an activation).
// Call plan_memory afterwards.
void refit(EnginePlan& fresh, const EnginePlan& tuned);

}  // namespace pare
