// The file formats of quantized checkpoints, one row each: what a format can hold, which tensors a layer
// becomes, what the configuration says, and how all of it is read back. docs/checkpoints.md has the table.
//
//   compressed_tensors   vLLM, llm-compressor, transformers
//   autoawq, gptq, gptq_v2
//   modelopt             NVIDIA Model Optimizer: TensorRT-LLM, vLLM, SGLang
//   gguf                 one file: llama.cpp
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_fwd.h"
#include "graphsurgeon/checkpoint/quantized.h"

namespace pare {

// One tensor of a file. `data` is empty where only its place is asked for.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kUndefined;  // of safetensors
  Dims dims;
  Tensor data;
};

struct DialectInfo {
  Dialect dialect;
  const char* name;
  const char* readers;  // who reads it
  bool mixed;           // layers may differ in their formats
  // Why a layer cannot be held, in words that follow "layer 'x' "; "" when it can.
  std::string (*why_not)(const LinearFormat& layer);
  // The tensors of a layer. Without codes (a LinearFormat is enough) names, types and dims alone. Error
  // kUnsupported for numbers that the format cannot hold: a zero point of 0 in GPTQ's first version.
  std::vector<StoredTensor> (*tensors)(const QuantizedLinear& layer);
  // The tensors of the scales of a quantized KV cache.
  std::vector<StoredTensor> (*kv_tensors)(const KvScales& scales);
  // quantization_config of config.json, and the text of further files by name. Null for GGUF.
  Json (*config)(const QuantizedModel& model);
  std::vector<std::pair<std::string, std::string>> (*files)(const QuantizedModel& model);
};

const DialectInfo& dialect_info(Dialect dialect);
const std::vector<DialectInfo>& dialects();

// Error kUnsupported naming the first layer that does not fit, why, and the formats that could hold all.
void check_dialect(Dialect dialect, const QuantizedModel& model);

// A quantized checkpoint (folder, or GGUF file) as layers. Which format it is stands in config.json. Errors:
// kBadFile for tensors that do not fit together; kUnsupported for a scheme that is not known. (Readers:
// read_quantized.cpp.)
std::unique_ptr<QuantizedSource> open_quantized(const std::string& path);

}  // namespace pare
