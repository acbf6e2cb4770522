// The layers of a finished plan as a checkpoint's: what quantize_model decided for the graph of a checkpoint,
// under the names of the checkpoint's tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

// Layers are found by the names of their MatMul nodes. Tensors that a transform changed (norms, biases) are
// written in float32 with the plan's values, all others as the checkpoint has them. Errors, kUnsupported with
// the node's name: a transform that added operators (a factor that could not be folded, a low-rank product),
// which no tensor of a checkpoint holds; codes for something that is no linear layer. `original`: the float
// graph that the plan began with, weights as views or not; nullptr: that of the checkpoint, simplified. All
// must outlive the source.
std::unique_ptr<QuantizedSource> plan_source(const Checkpoint& checkpoint, const QuantizeOutcome& outcome,
                                             const Graph* original = nullptr);

// The plan with global scales, of weights and of inputs, that files with divisors and files with factors both
// hold exactly (turnable_global, turnable_input), and the graph of it. Codes stay: the steps change by some
// 1e-7.
void make_globals_turnable(QuantizeOutcome& outcome);

}  // namespace pare
