#include "recipes/export_model.h"

#include <algorithm>

#include "calib/trt_cache.h"
#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/forms/matmul_nbits.h"
#include "graphsurgeon/forms/qoperator.h"
#include "graphsurgeon/forms/tensorrt_forms.h"
#include "graphsurgeon/load.h"
#include "recipes/checkpoint/export_checkpoint.h"

namespace pare {
namespace {

constexpr const char* kForms[] = {"qdq_onnx", "trt_onnx", "matmul_nbits", "qoperator", "trt_cache"};

[[noreturn]] void refuse(const std::string& form, const std::string& what, const std::string& hint) {
  throw make_error(ErrorCode::kUsage, "{} {}", form, what).hint(hint);
}

bool is_int8(const quant::Format& f) { return f.dtype == DType::kI8 || f.dtype == DType::kU8; }

TrtCache cache_of(const QuantizeOutcome& outcome) {
  TrtCache cache;
  for (std::size_t i = 0; i < outcome.plan.activations.size(); ++i) {
    const quant::ActivationSite& site = outcome.plan.placement.activations[i];
    if (!site.path.empty()) continue;  // a cache has no names for subgraphs
    cache.entries.push_back({outcome.source.value(site.value).name, outcome.plan.activations[i].scale});
  }
  return cache;
}

void note_left(const QuantizedFormReport& report, const char* form, std::vector<std::string>& notes) {
  for (const QuantizedFormReport::Left& left : report.left)
    notes.push_back(fmt::format("'{}' is not written as {}: {}", left.node, form, left.why));
}

// What other tools and people call a form.
struct OtherName {
  const char *word, *form;
};
constexpr OtherName kOtherNames[] = {{"vllm", "compressed_tensors"},
                                     {"sglang", "compressed_tensors"},
                                     {"safetensors", "compressed_tensors"},
                                     {"llm_compressor", "compressed_tensors"},
                                     {"awq", "autoawq"},
                                     {"gptqmodel", "gptq"},
                                     {"autogptq", "gptq"},
                                     {"llama.cpp", "gguf"},
                                     {"llama_cpp", "gguf"},
                                     {"onnx", "qdq_onnx"},
                                     {"qdq", "qdq_onnx"},
                                     {"onnxruntime", "qdq_onnx"},
                                     {"tensorrt", "trt_onnx"},
                                     {"trt", "trt_onnx"},
                                     {"tensorrt_llm", "modelopt"}};

[[noreturn]] void refuse_unknown(const std::string& form) {
  const std::string known =
      "qdq_onnx, trt_onnx, matmul_nbits, qoperator, trt_cache; of checkpoints " + checkpoint_forms();
  const std::string near = export_meant(form);
  throw make_error(ErrorCode::kUsage, "there is no export '{}'", form)
      .hint(near.empty() ? "one of " + known : fmt::format("did you mean '{}'? One of {}", near, known));
}

}  // namespace

std::string export_meant(const std::string& word) {
  std::vector<const char*> words = {"compressed_tensors", "autoawq", "gptq", "gptq_v2", "modelopt", "gguf"};
  words.insert(words.end(), std::begin(kForms), std::end(kForms));
  std::string near = nearest_word(word, words.data(), words.size());
  std::vector<const char*> others;
  for (const OtherName& other : kOtherNames) others.push_back(other.word);
  const std::string other = nearest_word(word, others.data(), others.size());
  for (const OtherName& name : kOtherNames)
    if (other == name.word && (near.empty() || word == other)) near = name.form;
  return near;
}

void check_export(const std::string& form, const quant::Spec& spec) {
  if (is_checkpoint_form(form)) {  // the rest is known layer by layer
    if (spec.activations.active() && form != "compressed_tensors" && form != "modelopt")
      refuse(form, "holds weights beside float activations",
             "compressed_tensors or modelopt, or a scheme for weights alone");
    const auto fitted = [](const quant::Rule& rule) { return rule.activations && rule.activations->fitted; };
    if (spec.activations.fitted || std::any_of(spec.rules.begin(), spec.rules.end(), fitted))
      refuse(form, "has no word for scales of inputs by least error",
             "leave quantize.activations.search out, or export qdq_onnx");
    return;
  }
  if (std::none_of(std::begin(kForms), std::end(kForms), [&](const char* known) { return form == known; }))
    refuse_unknown(form);
  const quant::Format &w = spec.weights, &a = spec.activations;
  if (form == "trt_onnx" && spec.target != quant::Target::kTensorRT)
    refuse(form, "is for target tensorrt", "target: tensorrt");
  if (form == "matmul_nbits" && (a.active() || !w.active() || !format_info(w.dtype).is_integer()))
    refuse(form, "holds weights of 2, 4 or 8 bits beside float activations",
           "a scheme such as int4, uint4 or int8_weights");
  if (form == "qoperator" &&
      (spec.target != quant::Target::kOnnxRuntime || !is_int8(w) || !is_int8(a) || a.dynamic))
    refuse(form, "holds 8-bit integers with quantized outputs", "scheme int8 or uint8, target: onnxruntime");
  if (form == "trt_cache" &&
      (a.dtype != DType::kI8 || a.granularity != quant::Granularity::kTensor || a.dynamic || !a.symmetric))
    refuse(form, "holds scales of symmetric INT8 activations", "scheme int8");
}

Exported export_model(const QuantizeOutcome& outcome, const std::string& form, const std::string& path,
                      const WriteOptions& options) {
  Exported exported;
  if (form == "trt_cache") {
    save_trt_cache(cache_of(outcome), path);
    exported.is_model = false;
    return exported;
  }
  if (form == "qdq_onnx") {
    exported.written = write_onnx(outcome.quantized, path, options);
  } else {
    Graph graph = outcome.quantized;
    if (form == "trt_onnx") note_left(to_tensorrt_forms(graph), "TensorRT's operator", exported.notes);
    if (form == "matmul_nbits") note_left(to_matmul_nbits(graph), "MatMulNBits", exported.notes);
    if (form == "qoperator") note_left(to_qoperator(graph), "QOperator", exported.notes);
    exported.written = write_onnx(graph, path, options);
  }
  for (const std::string& why : exported.written.why) exported.notes.push_back(why);
  return exported;
}

quant::AuditResult audit_export(const QuantizeOutcome& outcome, const std::string& form,
                                const std::string& path) {
  if (form == "qoperator") return quant::audit_constants(outcome.source, outcome.plan, load_model(path));
  if (form != "trt_cache") return quant::audit(outcome.source, outcome.plan, load_model(path));
  quant::AuditResult result;
  const TrtCache wanted = cache_of(outcome), found = load_trt_cache(path);
  result.tensors = static_cast<std::int64_t>(wanted.entries.size());
  if (!(wanted == found)) result.mismatches.push_back({path, "the cache differs from what was decided"});
  return result;
}

}  // namespace pare
