// A quantized checkpoint in the format of another tool, where that is exact: the same codes, the same steps
// in every bit, the same meaning of inputs and cache. Nothing is rounded anew; what another format cannot
// hold is refused, with the layer and the reason.
#pragma once

#include <memory>
#include <string>

#include "engine/base/thread_pool.h"
#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/checkpoint/dialect.h"
#include "graphsurgeon/checkpoint/write_quantized.h"

namespace pare {

// `source` with the changes of form that `dialect` needs and that keep every value:
//   scales    float16 for AutoAWQ, GPTQ and GGUF, float32 for Model Optimizer's FP8, where each one is such a
//             number
//   globals   of two-level inputs are inverted where the format divides by them (rounded once, as the peers'
//             converters do); those of weights are turned by the writers, which refuse where no number does
//   groups    one group of a whole row is a scale a row
// Numbers are looked at before anything is written: Error kUnsupported naming the layer and the scale.
std::unique_ptr<QuantizedSource> adapt_to(std::shared_ptr<const QuantizedSource> source, Dialect dialect);

struct ConvertedCheckpoint {
  WrittenCheckpoint written;
  std::int64_t layers = 0;  // read back and compared, all equal
};
// `output`: a folder, or a .gguf file. Errors: of adapt_to() and the writers; kFailedGate when a layer that
// is read back differs (a bug of this program).
ConvertedCheckpoint convert_quantized(const Checkpoint& checkpoint, Dialect dialect,
                                      const std::string& output, ThreadPool& pool);

// Weights dequantized: float32 under the names of the float checkpoint, and config.json without a
// quantization. What the config says of inputs and cache is lost.
WrittenCheckpoint write_dequantized(const Checkpoint& checkpoint, const std::string& output);

}  // namespace pare
