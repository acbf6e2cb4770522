// One quantized linear module out of the tensors of a checkpoint, by the rules of its method
// (docs/checkpoints.md has the layouts). Shapes are checked against each other before anything is read.
#pragma once

#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/quantization_config.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/checkpoint/weights.h"

namespace pare {

// The last part of the name of a tensor that makes MODULE a quantized one ("weight_packed", "qweight",
// "weight_scale", "weight_scale_inv"), else nullptr.
const char* quantized_part(const std::string& tensor);
// Of all tensors that belong to a quantized module and are no weights of their own: "weight", "weight_scale",
// "qzeros", "g_idx", "pre_quant_scale" ...
bool is_part_of_linear(const std::string& last_name);

// `numbers` false: the formats and sizes alone, from headers (weight_shape and g_idx are read). Errors name
// the tensor, what it is and what it should be: kBadFile for shapes that do not fit together, a group size
// that does not divide, a tensor that is missing, a zero point or group index out of range, scales that are
// not finite; kUnsupported for what no rule is for.
QuantizedLinear read_linear(const WeightStore& stored, const QuantizationConfig& config,
                            const std::string& module, bool numbers);

}  // namespace pare
