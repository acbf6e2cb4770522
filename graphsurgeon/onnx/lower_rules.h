// What older opsets write differently, an operator a rule (lower.h).
#pragma once

#include <string>
#include <string_view>

#include "graphsurgeon/onnx/lower.h"

namespace pare {

// Rewrites call.proto; "" or why the opset cannot say it. The schema is not asked.
std::string lower_by_rules(LowerCall& call);

void drop_attribute(LowerCall& call, std::string_view key);

}  // namespace pare
