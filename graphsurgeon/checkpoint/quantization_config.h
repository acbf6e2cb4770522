// What a checkpoint says of its quantization: quantization_config in config.json, or hf_quant_config.json
// (Model Optimizer) and quantize_config.json (AutoGPTQ, AutoAWQ) beside it. Numbers are in quantized_read.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json_fwd.h"

namespace pare {

// How weights or inputs of some modules are coded, in the words of compressed-tensors.
struct QuantizationArgs {
  enum class Strategy { kUnset, kTensor, kChannel, kGroup, kBlock, kToken };
  int bits = 0;  // 0: not quantized
  bool is_float = false;
  bool symmetric = true;
  Strategy strategy = Strategy::kUnset;  // unset: what the scales' shape says. tensor_group is kGroup
  std::int64_t group = 0;                // kGroup; 0 not said
  std::int64_t block_rows = 0, block_columns = 0;
  bool dynamic = false;
  bool two_levels = false;    // tensor_group: E4M3 scales below a float32
  bool power_scales = false;  // scales are exponents (MX)

  bool active() const { return bits > 0; }
};

struct QuantizationScheme {
  std::string format;  // compressed-tensors: "pack-quantized"; Model Optimizer: the quant_algo
  std::vector<std::string>
      targets;  // names, "re:..." (matched at the start), class names ("Linear"); {}: all
  QuantizationArgs weights, inputs;
};

struct QuantizationConfig {
  enum class Method { kNone, kCompressedTensors, kAwq, kGptq, kModelOpt, kFp8 };
  Method method = Method::kNone;
  std::string where;  // the file
  std::vector<QuantizationScheme> schemes;
  std::vector<std::string> ignore;  // names and patterns as the method has them; for people
  bool gptq_v2 = false;             // zero points as they are; else less one
  QuantizationArgs kv_cache;

  bool active() const { return method != Method::kNone; }
  // Of compressed-tensors the most exact target wins: name, pattern, class. Null: no scheme is for it.
  const QuantizationScheme* scheme_of(const std::string& module) const;
};

const char* name(QuantizationConfig::Method method);  // "compressed-tensors", "awq", ...

// Of a folder. Errors: kUnsupported for a method, format, version or number of bits that is not read (with
// those that are); kBadFile for keys that are missing or of another kind.
QuantizationConfig read_quantization_config(const std::string& folder);
// `config`: config.json; `model_optimizer`: hf_quant_config.json, or null.
QuantizationConfig parse_quantization_config(const Json& config, const Json& model_optimizer,
                                             const std::string& where);

}  // namespace pare
