// Quantized checkpoints as models: what open_quantized() (dialect.h) is made of, and weights that families
// build graphs from.
#pragma once

#include <memory>
#include <string>

#include "graphsurgeon/checkpoint/dialect.h"
#include "graphsurgeon/checkpoint/quantization_config.h"
#include "graphsurgeon/checkpoint/weights.h"

namespace pare {

// The layers among the tensors of a folder. Headers are read, and the formats of all layers checked; numbers
// come layer by layer. Errors: those of read_linear.h, with the folder; kUnsupported for tensors that are
// quantized where the config does not say so.
std::unique_ptr<QuantizedSource> make_quantized_source(const std::string& folder,
                                                       std::shared_ptr<const WeightStore> stored,
                                                       const QuantizationConfig& config);
// Names as a float checkpoint has them: MODULE.weight of every layer ([outs, ins]; get() dequantizes), and
// the floats. coded() says which are codes.
std::unique_ptr<WeightStore> make_dequantizing_weights(std::shared_ptr<const QuantizedSource> source,
                                                       std::shared_ptr<const WeightStore> stored);

}  // namespace pare
