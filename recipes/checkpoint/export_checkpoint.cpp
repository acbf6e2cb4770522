#include "recipes/checkpoint/export_checkpoint.h"

#include <map>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/numeric/convert.h"
#include "graphsurgeon/gguf/gguf_write.h"
#include "graphsurgeon/open_checkpoint.h"
#include "quant/placement/share.h"
#include "recipes/checkpoint/plan_source.h"
#include "recipes/checkpoint/quantized_layers.h"

namespace pare {

bool is_checkpoint_form(const std::string& form) {
  Dialect dialect;
  return dialect_from_name(form, dialect);
}

std::string checkpoint_forms() {
  std::string list;
  for (const DialectInfo& info : dialects()) list += (list.empty() ? "" : ", ") + std::string(info.name);
  return list + ", gguf";
}

quant::Spec checkpoint_spec(const Checkpoint& checkpoint, Dialect dialect, quant::Spec spec,
                            bool quantize_head) {
  spec = fit_to_dialect(dialect, float_type_of(checkpoint), std::move(spec));
  if (spec.share.empty()) spec.share = quant::fused_kinds();
  spec.ops = {"MatMul"};
  for (const LinearModule& module : linear_modules(checkpoint)) {
    const std::string why = why_float(module, quantize_head);
    if (why.empty()) continue;
    quant::Rule left;
    left.match.name.push_back(module.module);
    left.quantize = false;
    left.why = why;
    spec.rules.push_back(std::move(left));
  }
  return spec;
}

void choose_for_checkpoint(const Checkpoint& checkpoint, Dialect dialect, bool quantize_head,
                           QuantizeChoices& choices) {
  choices.spec = checkpoint_spec(checkpoint, dialect, choices.spec, quantize_head);
  choices.folded_only = true;
  if (choices.spec.kv_cache.active() && dialect != Dialect::kCompressedTensors &&
      dialect != Dialect::kModelOpt)
    throw make_error(ErrorCode::kUnsupported, "{} has no scales for a KV cache", pare::name(dialect))
        .at("quantize.kv_cache")
        .hint("export compressed_tensors or modelopt, or leave the cache float");
  bool low_rank = choices.spec.method == "low_rank";
  for (const quant::Rule& rule : choices.spec.rules) low_rank = low_rank || rule.method == "low_rank";
  if (low_rank)
    throw make_error(ErrorCode::kUsage, "method low_rank adds products, which {} has no tensors for",
                     pare::name(dialect))
        .at("quantize.method")
        .hint("export qdq_onnx, or another method");
  check_held(checkpoint, dialect, planned_layers(checkpoint, choices.spec, quantize_head),
             choices.spec.kv_cache.active() ? choices.spec.kv_cache.dtype : DType::kUndefined);
}

ExportedCheckpoint export_plan(const Checkpoint& checkpoint, QuantizeOutcome& outcome, Dialect dialect,
                               const std::string& path, const WriteQuantizedOptions& options,
                               ThreadPool& pool, const Graph* original) {
  make_globals_turnable(outcome);
  const std::unique_ptr<QuantizedSource> source = plan_source(checkpoint, outcome, original);
  if (dialect == Dialect::kGguf) return export_gguf(checkpoint, source.get(), "F16", path, pool);
  return export_checkpoint(checkpoint, *source, dialect, path, options);
}

ExportedCheckpoint export_checkpoint(const Checkpoint& checkpoint, const QuantizedSource& source,
                                     Dialect dialect, const std::string& path,
                                     const WriteQuantizedOptions& options) {
  ExportedCheckpoint result;
  result.written = write_quantized(source, dialect, path, options);
  result.weight_bytes_before = checkpoint.weights->bytes();
  result.weight_bytes_after = result.written.bytes;
  result.parameters = checkpoint.weights->parameters();
  const std::unique_ptr<QuantizedSource> read = open_quantized(path);
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < read->model().layers.size(); ++i) by_name[read->model().layers[i].module] = i;
  const QuantizedModel& model = source.model();
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::string& module = model.layers[i].module;
    ++result.audit.tensors;
    result.audit.codes += model.layers[i].outs * model.layers[i].ins;
    const auto found = by_name.find(module);
    if (found == by_name.end()) {
      result.audit.mismatches.push_back({module, "is not in the files"});
      continue;
    }
    const QuantizedLinear layer = read->layer(found->second);
    if (layer.outs != model.layers[i].outs || layer.ins != model.layers[i].ins)
      result.audit.mismatches.push_back({module, "has other sizes in the files"});
    else if (hash_of_values(layer) != result.written.values[i])
      result.audit.mismatches.push_back({module, "means other values in the files"});
  }
  if (by_name.size() != model.layers.size())
    result.audit.mismatches.push_back(
        {path, fmt::format("holds {} layers, not {}", by_name.size(), model.layers.size())});
  return result;
}

ExportedCheckpoint export_gguf(const Checkpoint& checkpoint, const QuantizedSource* source,
                               const std::string& type, const std::string& path, ThreadPool& pool) {
  GgufWriteOptions options;
  options.type = source != nullptr ? "F16" : type;  // layers without codes
  options.layers = source;
  options.pool = &pool;
  const WrittenGguf written = write_gguf(checkpoint, path, options);
  ExportedCheckpoint result;
  result.written.files = {file_name(path)};
  result.written.bytes = written.bytes;
  result.written.tensors = written.tensors;
  result.weight_bytes_before = checkpoint.weights->bytes();
  result.weight_bytes_after = written.bytes;
  result.parameters = checkpoint.weights->parameters();
  const Checkpoint back = open_checkpoint(path);
  const auto compare = [&](const std::string& tensor, const std::vector<float>& want, std::int64_t rows,
                           bool exact) {
    ++result.audit.tensors;
    result.audit.codes += static_cast<std::int64_t>(want.size());
    const Tensor got = back.weights->get(tensor);
    std::vector<float> values(want.size());
    if (got.size() != static_cast<std::int64_t>(want.size())) {
      result.audit.mismatches.push_back({tensor, "has another size in the file"});
      return;
    }
    decode(got.dtype(), got.data(), values.data(), got.size());
    const std::int64_t columns = static_cast<std::int64_t>(want.size()) / rows;
    double error = 0, power = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t from = gguf_source_row(checkpoint, tensor, r, rows);
      for (std::int64_t c = 0; c < columns; ++c) {
        const double v = want[static_cast<std::size_t>(from * columns + c)];
        const double d = v - static_cast<double>(values[static_cast<std::size_t>(r * columns + c)]);
        error += d * d;
        power += v * v;
      }
    }
    constexpr double kWorst = 0.1;  // 10 dB
    if (!(error <= (exact ? 0 : kWorst * power)))
      result.audit.mismatches.push_back({tensor, "means other values in the file"});
  };
  if (source != nullptr) {
    for (std::size_t i = 0; i < source->model().layers.size(); ++i) {
      const QuantizedLinear layer = source->layer(i);
      std::vector<float> values(layer.codes.size());
      dequantize_linear(layer, values.data());
      compare(layer.module + ".weight", values, layer.outs, true);
    }
    return result;
  }
  for (const LinearModule& module : linear_modules(checkpoint)) {
    if (module.tied) continue;
    const Tensor stored = checkpoint.weights->get(module.weight);
    std::vector<float> values(static_cast<std::size_t>(stored.size()));
    decode(stored.dtype(), stored.data(), values.data(), stored.size());
    compare(module.weight, values, module.outs, false);
  }
  return result;
}

}  // namespace pare
