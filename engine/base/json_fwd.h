// The name Json for headers that only declare functions taking or returning it. To use one, include
// engine/base/json.h in the .cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pare {

using Json = nlohmann::ordered_json;  // objects keep the order in which keys were added

}  // namespace pare
