// Between quant's formats and plans and the layers that checkpoint formats hold (graphsurgeon/checkpoint/
// quantized.h).
#pragma once

#include <string>

#include "engine/base/thread_pool.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/families/linear_modules.h"
#include "quant/placement/spec.h"
#include "quant/plan.h"

namespace pare {

CodeFormat weight_code_format(const quant::Format& format);
CodeFormat input_code_format(const quant::Format& format);

// A format as the files of a dialect have it: scales in float16 (AutoAWQ, GPTQ, GGUF) or in the type of the
// model (compressed-tensors; float32 where that is), zero points unsigned, positive scales for Model
// Optimizer. `model` is the type of the checkpoint's weights. Formats with scales of their own (NVFP4, MX)
// stay as they are.
quant::Format fit_to_dialect(Dialect dialect, DType model, quant::Format format);
quant::Spec fit_to_dialect(Dialect dialect, DType model, quant::Spec spec);

// The layer of a module without numbers.
LinearFormat linear_format(const LinearModule& module, const quant::Format& weights,
                           const quant::Format& inputs);

// From a grid over rows [outs, ins], and codes in their order, one a byte (grid.h); `numbers`: signed
// integers fill the byte already.
void set_codes(QuantizedLinear& layer, const quant::Grid& grid, std::vector<std::uint8_t> codes,
               bool numbers = false);
// From what a plan has for a weight of a graph: [ins, outs] or [outs, ins] by the site's axes.
void set_codes(QuantizedLinear& layer, const quant::WeightSite& site, const quant::WeightPlan& plan);

}  // namespace pare
