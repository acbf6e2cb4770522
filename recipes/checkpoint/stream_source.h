// A checkpoint quantized tensor by tensor, straight from its mapped files: plain rounding or scale search,
// which need no activations. Memory is that of the largest layer, whatever the model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/families/linear_modules.h"
#include "quant/placement/spec.h"
#include "recipes/checkpoint/planned_layers.h"

namespace pare {

struct StreamOptions {
  Dialect dialect = Dialect::kCompressedTensors;
  bool quantize_head = false;  // lm_head too; tied to the embedding, it gets codes of its own
  // Codes and scales as the tools of the format compute them, bit by bit (quant/grid/ct_arithmetic.h): for
  // compressed-tensors' W4A16, FP8_DYNAMIC, NVFP4 and MXFP4. Error kUnsupported for others.
  bool parity = false;
  ThreadPool* pool = nullptr;  // required
};

// `spec` by rules for module names; formats are fitted to the dialect here. `left` (may be null) gets the
// linear layers that stay float. Errors: kUsage for a spec with fixed activation scales or a method that
// looks at activations; kBadFile for NaN in a weight, when its layer is asked for. `checkpoint` and the pool
// must outlive the source.
std::unique_ptr<QuantizedSource> stream_source(const Checkpoint& checkpoint, const quant::Spec& spec,
                                               const StreamOptions& options,
                                               std::vector<LeftFloat>* left = nullptr);

// Can it be done so: no method that needs data, no activation scales but those of run time.
bool can_stream(const quant::Spec& spec);

// The DType of a checkpoint's float weights, for scales of the model's type.
DType float_type_of(const Checkpoint& checkpoint);

}  // namespace pare
