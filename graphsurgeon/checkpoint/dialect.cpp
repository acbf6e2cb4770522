#include "graphsurgeon/checkpoint/dialect.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/checkpoint/awq_gptq.h"
#include "graphsurgeon/checkpoint/compressed_tensors.h"
#include "graphsurgeon/checkpoint/modelopt.h"

namespace pare {
namespace {

std::vector<std::pair<std::string, std::string>> no_files(const QuantizedModel&) { return {}; }

// Why the model does not fit, layer by layer; the first reason.
std::string why_not(const DialectInfo& info, const std::vector<LinearFormat>& layers, bool kv_cache) {
  for (const LinearFormat& layer : layers)
    if (const std::string why = info.why_not(layer); !why.empty())
      return fmt::format("layer '{}' {}", layer.module, why);
  if (kv_cache && info.kv_tensors == nullptr) return "the model has a quantized KV cache";
  if (info.mixed || layers.empty()) return "";
  for (const LinearFormat& layer : layers)
    if (!(layer.weights == layers.front().weights))
      return fmt::format("layers '{}' and '{}' differ: {} and {}", layers.front().module, layer.module,
                         to_string(layers.front().weights), to_string(layer.weights));
  return "";
}

std::string fitting(const std::vector<LinearFormat>& layers, bool kv_cache) {
  std::string list;
  for (const DialectInfo& info : dialects())
    if (why_not(info, layers, kv_cache).empty()) list += (list.empty() ? "" : ", ") + std::string(info.name);
  return list;
}

}  // namespace

const std::vector<DialectInfo>& dialects() {
  static const std::vector<DialectInfo> kTable = {
      {Dialect::kCompressedTensors, "compressed_tensors", "vLLM, SGLang, transformers, llm-compressor", true,
       ct_why_not, ct_tensors, ct_kv_tensors, ct_config, no_files},
      {Dialect::kAutoAwq, "autoawq", "vLLM, SGLang, AutoAWQ, transformers", false, awq_why_not, awq_tensors,
       nullptr, awq_config, awq_files},
      {Dialect::kGptq, "gptq", "vLLM, SGLang, AutoGPTQ, GPTQModel, transformers", true, gptq_why_not,
       gptq_tensors, nullptr, gptq_config, gptq_files},
      {Dialect::kGptqV2, "gptq_v2", "GPTQModel, vLLM", true, gptq_why_not, gptq_v2_tensors, nullptr,
       gptq_v2_config, gptq_v2_files},
      {Dialect::kModelOpt, "modelopt", "TensorRT-LLM, vLLM, SGLang", true, modelopt_why_not, modelopt_tensors,
       modelopt_kv_tensors, modelopt_config, modelopt_files},
  };
  return kTable;
}

const DialectInfo& dialect_info(Dialect dialect) {
  for (const DialectInfo& info : dialects())
    if (info.dialect == dialect) return info;
  throw make_error(ErrorCode::kUnsupported, "{} is not written layer by layer", name(dialect))
      .hint("pare convert writes whole checkpoints of it");
}

void check_dialect(Dialect dialect, const QuantizedModel& model) {
  const DialectInfo& info = dialect_info(dialect);
  const bool kv_cache = model.kv_cache != DType::kUndefined;
  const std::string why = why_not(info, model.layers, kv_cache);
  if (why.empty()) return;
  const std::string others = fitting(model.layers, kv_cache);
  throw make_error(ErrorCode::kUnsupported, "{} cannot hold this: {}", info.name, why)
      .at("export")
      .hint(others.empty() ? "no checkpoint format can; export qdq_onnx does" : "these can: " + others);
}

}  // namespace pare
