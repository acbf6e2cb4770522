#include "graphsurgeon/checkpoint/quantization_config.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/name_pattern.h"
#include "engine/base/paths.h"
#include "graphsurgeon/checkpoint/quantization_formats.h"

namespace pare {
namespace {

using Method = QuantizationConfig::Method;

constexpr std::size_t kLongestPattern = 512;

// As Python's re.match.
bool matches_start(const std::string& pattern, const std::string& module, const std::string& where) {
  try {
    return NamePattern("re:(?:" + pattern + ")[^]*").fits(module);
  } catch (const Error& error) {
    throw make_error(ErrorCode::kBadFile, "the quantization config has a pattern that is none: {}",
                     error.what())
        .at(where)
        .hint(kQuantizationHint);
  }
}

}  // namespace

const char* name(Method method) {
  constexpr const char* kNames[] = {"none", "compressed-tensors", "awq", "gptq", "modelopt", "fp8"};
  return kNames[static_cast<int>(method)];
}

const QuantizationScheme* QuantizationConfig::scheme_of(const std::string& module) const {
  const QuantizationScheme *pattern = nullptr, *by_class = nullptr;
  const bool choice = schemes.size() > 1;  // patterns are not run where they decide nothing
  for (const QuantizationScheme& scheme : schemes) {
    if (scheme.targets.empty() && by_class == nullptr) by_class = &scheme;
    for (const std::string& target : scheme.targets) {
      if (target == module) return &scheme;
      if (target.rfind("re:", 0) != 0) {
        // A class name; every quantized tensor that is read is of a linear layer.
        if (by_class == nullptr && target.find('.') == std::string::npos) by_class = &scheme;
      } else if (pattern == nullptr) {
        if (target.size() > kLongestPattern)
          throw make_error(ErrorCode::kBadFile, "a pattern of {} characters among the targets", target.size())
              .at(where)
              .hint(kQuantizationHint);
        if (!choice || matches_start(target.substr(3), module, where)) pattern = &scheme;
      }
    }
  }
  return pattern != nullptr ? pattern : by_class;
}

QuantizationConfig parse_quantization_config(const Json& config, const Json& model_optimizer,
                                             const std::string& where) {
  QuantizationConfig out;
  out.where = where;
  if (!model_optimizer.is_null()) {
    const Json* inner = QuantizationSection(model_optimizer, out.where).find("quantization");
    if (inner == nullptr) QuantizationSection(model_optimizer, out.where).wrong("quantization", "an object");
    out.method = Method::kModelOpt;
    read_model_optimizer(QuantizationSection(*inner, out.where), out);
    return out;
  }
  const QuantizationSection whole(config, out.where);
  const Json* found = whole.find("quantization_config");
  if (found == nullptr) found = whole.find("compression_config");  // older compressed-tensors
  if (found == nullptr)
    if (const Json* text = whole.find("text_config"); text != nullptr && text->is_object())
      found = whole.inner(*text).find("quantization_config");
  if (found == nullptr) return out;
  const QuantizationSection at(*found, out.where);
  const std::string method = at.text("quant_method", "");
  if (method == "compressed-tensors") {
    out.method = Method::kCompressedTensors;
    read_compressed_tensors(at, out);
  } else if (method == "awq") {
    out.method = Method::kAwq;
    read_awq(at, out);
  } else if (method == "gptq") {
    out.method = Method::kGptq;
    read_gptq(at, out);
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    out.method = Method::kModelOpt;
    read_model_optimizer(at, out);
  } else if (method == "fp8") {
    out.method = Method::kFp8;
    read_fp8(at, out);
  } else {
    at.refuse(method.empty() ? std::string("there is no quant_method")
                             : "the quant_method '" + method + "' is not read",
              "read are compressed-tensors, awq, gptq, modelopt and fp8");
  }
  return out;
}

QuantizationConfig read_quantization_config(const std::string& folder) {
  const std::string own = join_path(folder, "hf_quant_config.json");
  if (is_regular_file(own)) return parse_quantization_config(Json(), read_json_file(own), own);
  const std::string path = join_path(folder, "config.json");
  Json config = read_json_file(path);
  if (config.is_object() && !config.contains("quantization_config") &&
      !config.contains("compression_config")) {
    // AutoGPTQ's and AutoAWQ's own files, of models saved without transformers.
    for (const char* file : {"quantize_config.json", "quant_config.json"}) {
      const std::string beside = join_path(folder, file);
      if (!is_regular_file(beside)) continue;
      Json inner = read_json_file(beside);
      if (inner.is_object() && !inner.contains("quant_method"))
        inner["quant_method"] = inner.contains("zero_point") ? "awq" : "gptq";
      Json wrapped = Json::object();
      wrapped["quantization_config"] = std::move(inner);
      return parse_quantization_config(wrapped, Json(), beside);
    }
  }
  return parse_quantization_config(config, Json(), path);
}

}  // namespace pare
