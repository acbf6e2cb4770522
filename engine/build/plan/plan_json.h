// A plan as JSON and back, without its data. Private to the engine file.
#pragma once

#include <string>

#include "engine/base/json_fwd.h"
#include "engine/build/plan/engine_plan.h"

namespace pare {

Json plan_to_json(const EnginePlan& plan);
// Errors kBadFile; what stands in it is not checked against itself yet (check_plan).
EnginePlan plan_from_json(const Json& json, const std::string& what);

}  // namespace pare
