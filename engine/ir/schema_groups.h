// The tables that make up the schema list, one a file schemas_NAME.cpp. schema.cpp joins them.
#pragma once

#include <span>

#include "engine/ir/schema.h"

namespace pare {

std::span<const OpSchema> elementwise_schemas();  // one output element from one element of each input
std::span<const OpSchema> nn_schemas();           // convolution, pooling, normalization, recurrent, attention
std::span<const OpSchema> vision_schemas();       // sampling, boxes, blocks, spectra
std::span<const OpSchema> tensor_schemas();       // data movement: Reshape, Slice, Gather, ...
std::span<const OpSchema> size_schemas();         // Shape, Range, ConstantOfShape, ...
std::span<const OpSchema> select_schemas();       // NonZero, Compress, Unique: sizes follow from the data
std::span<const OpSchema> reduce_schemas();       // Reduce*, ArgMax, ArgMin, TopK, CumSum
std::span<const OpSchema> quant_schemas();        // QuantizeLinear, DequantizeLinear, integer arithmetic
std::span<const OpSchema> string_schemas();       // text
std::span<const OpSchema> ml_schemas();           // ai.onnx.ml
std::span<const OpSchema> microsoft_schemas();    // com.microsoft, as far as it has no standard form
std::span<const OpSchema> pare_schemas();         // what lowering makes: fused, channels-last, integer
std::span<const OpSchema> sequence_schemas();     // sequences and optionals
std::span<const OpSchema> control_schemas();      // If, Loop, Scan: infer.cpp does their work

}  // namespace pare
