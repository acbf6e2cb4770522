// What `pare build` and `pare inspect` say about an engine.
#pragma once

#include "cli/command.h"
#include "engine/build/engine_file.h"
#include "engine/build/plan/memory_plan.h"

namespace pare {

// The layers as docs/json.md has them: name, kind, requested, realized, kernel, why, median_us.
Json engine_layers(const EngineFile& engine);
// One line a layer: time, share of the whole, kind, precision, kernel, name.
void print_layers(Context& context, const EngineFile& engine);
double layers_microseconds(const EngineFile& engine);

// "memory: weights ... predicted peak ..." and `memory` of the document; measured < 0: not yet.
void report_memory(Context& context, const PlannedMemory& predicted, std::int64_t measured);
// `kernels`, `layers`, `realized` of the document; a warning for each layer that runs otherwise than asked
// for.
void report_precision(Context& context, const EngineFile& engine);

}  // namespace pare
