// Which element types ONNX lets an operator have, by its schemas.
#pragma once

#include <string>

#include "engine/base/dtype.h"

namespace pare {

// The first opset from `opset` on in which the standard operator may have that type in an input (or output);
// 0: in none. A slot behind the last is the last one's (variadic inputs).
int first_opset_of_type(const std::string& op, bool output, int slot, DType type, int opset);

}  // namespace pare
