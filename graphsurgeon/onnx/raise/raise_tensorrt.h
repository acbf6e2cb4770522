// Rules for the operators of TensorRT's ONNX parser (domain "trt").
#pragma once

#include <string_view>

#include "graphsurgeon/onnx/raise/raise_rules.h"

namespace pare {

RaiseRule tensorrt_rule(std::string_view domain, std::string_view op);  // nullptr when there is none

}  // namespace pare
