#include "cli/inspect_checkpoint.h"

#include <map>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/open_checkpoint.h"

namespace pare {
namespace {

void say_model(Context& context, const Checkpoint& checkpoint) {
  const Family& family = require_family(checkpoint);
  check_model_config(checkpoint.config);
  const ModelConfig& c = checkpoint.config;
  Json& json = context.document();
  json["family"] = family.name;
  json["model_type"] = c.model_type;
  json["architecture"] = c.architecture;
  json["layers"] = c.layers;
  json["hidden"] = c.hidden;
  json["heads"] = c.heads;
  json["kv_heads"] = c.kv_heads;
  json["vocabulary"] = c.vocabulary;
  json["context"] = c.context;
  json["experts"] = c.experts;
  context.print(fmt::format("{}: {} ({}), {} layers of width {}", checkpoint.path, family.name, c.model_type,
                            c.layers, c.hidden));
  context.print(fmt::format(
      "  {} heads of {}, {} for keys, {} tokens, context {}{}", c.heads, c.head_size, c.kv_heads,
      c.vocabulary, c.context,
      c.experts > 0 ? fmt::format(", {} experts, {} of them used", c.experts, c.experts_used) : ""));
}

// `parameters`: of the model; the elements of `weights` may be words of packed codes.
void say_weights(Context& context, const WeightStore& weights, std::int64_t parameters, bool list) {
  std::map<std::string, std::int64_t> types, files;
  for (const WeightStore::Entry& entry : weights.entries()) {
    ++types[entry.type];
    ++files[entry.file];
  }
  Json& json = context.document();
  json["tensors"] = weights.entries().size();
  json["types"] = types;
  json["files"] = files.size();
  json["parameters"] = parameters;
  json["weight_bytes"] = weights.bytes();
  std::string text;
  for (const auto& [type, count] : types)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  context.print(fmt::format("  {} tensors ({}) in {} file{}, {} parameters, {} of weights",
                            weights.entries().size(), text, files.size(), files.size() == 1 ? "" : "s",
                            parameters, bytes_text(static_cast<double>(weights.bytes()))));
  if (!list) return;
  json["tensor_list"] = Json::array();
  for (const WeightStore::Entry& entry : weights.entries()) {
    json["tensor_list"].push_back({{"name", entry.name},
                                   {"dtype", entry.type},
                                   {"shape", entry.dims},
                                   {"bytes", entry.bytes},
                                   {"file", entry.file}});
    context.print(fmt::format("    {} {} {}  {}", entry.name, entry.type, to_string(entry.dims), entry.file));
  }
}

// to_string() has the words of weights; a scale a row is one a token here.
std::string input_text(const CodeFormat& format) {
  if (!format.active()) return "float";
  std::string text = to_string(format);
  const std::string rows = "per channel";
  if (const std::size_t at = text.find(rows); at != std::string::npos)
    text.replace(at, rows.size(), "per token");
  return text;
}

// How the weights are coded: kinds with their layers and bits, and every layer when asked.
void say_quantization(Context& context, const Checkpoint& checkpoint, bool list) {
  if (checkpoint.quantized == nullptr) return;
  const QuantizedModel& model = checkpoint.quantized->model();
  struct Kind {
    std::int64_t layers = 0, parameters = 0, bytes = 0;
  };
  std::map<std::string, Kind> kinds;
  Kind all;
  Json layers = Json::array();
  for (const LinearFormat& layer : model.layers) {
    const std::int64_t bytes = checkpoint.weights->find(layer.module + ".weight")->bytes;
    const std::string inputs = input_text(layer.inputs);
    Kind& kind = kinds[to_string(layer.weights) + "; inputs " + inputs];
    for (Kind* sum : {&kind, &all}) {
      ++sum->layers;
      sum->parameters += layer.outs * layer.ins;
      sum->bytes += bytes;
    }
    layers.push_back(
        {{"name", layer.module},
         {"weights", to_string(layer.weights)},
         {"inputs", inputs},
         {"group", layer.weights.group},
         {"shape", {layer.outs, layer.ins}},
         {"act_order", layer.act_order},
         {"bits_per_weight", 8 * static_cast<double>(bytes) / static_cast<double>(layer.outs * layer.ins)}});
  }
  const auto bits_of = [](const Kind& kind) {
    return kind.parameters == 0 ? 0
                                : 8 * static_cast<double>(kind.bytes) / static_cast<double>(kind.parameters);
  };
  const std::string method = checkpoint.quantization.active() ? name(checkpoint.quantization.method) : "gguf";
  Json& json = context.document();
  json["quantization"] = {{"method", method},
                          {"layers", model.layers.size()},
                          {"bits_per_weight", bits_of(all)},
                          {"kv_cache", model.kv_cache == DType::kUndefined ? "float" : name(model.kv_cache)},
                          {"kinds", Json::array()}};
  context.print(fmt::format(
      "  quantized by {}: {} layers, {:.3f} bits per weight{}", method, model.layers.size(), bits_of(all),
      model.kv_cache == DType::kUndefined ? "" : fmt::format(", KV cache {}", name(model.kv_cache))));
  for (const auto& [text, kind] : kinds) {
    json["quantization"]["kinds"].push_back(
        {{"format", text}, {"layers", kind.layers}, {"bits_per_weight", bits_of(kind)}});
    context.print(fmt::format("    {:>4} layers, {:.3f} bits: {}", kind.layers, bits_of(kind), text));
  }
  if (!list) return;
  for (const Json& layer : layers)
    context.print(fmt::format("    {} {}x{}  {}; inputs {}", layer["name"].get<std::string>(),
                              layer["shape"][0].get<std::int64_t>(), layer["shape"][1].get<std::int64_t>(),
                              layer["weights"].get<std::string>(), layer["inputs"].get<std::string>()));
  json["quantization"]["layer_list"] = std::move(layers);
}

}  // namespace

int inspect_checkpoint(Context& context, const std::string& path, bool list, bool verify) {
  const ModelKind kind = model_kind(path);
  context.document()["format"] = model_kind_name(kind);
  std::shared_ptr<const WeightStore> weights, values;
  if (kind == ModelKind::kSafetensors) {
    weights = open_safetensors_weights(path);
    context.print(fmt::format("{}: safetensors", path));
  } else {
    const Checkpoint checkpoint = open_checkpoint(path);
    say_model(context, checkpoint);
    weights = checkpoint.stored;
    values = checkpoint.weights;
    say_quantization(context, checkpoint, list);
  }
  say_weights(context, *weights, (values != nullptr ? *values : *weights).parameters(), list);
  if (!verify) return 0;
  const std::vector<NonfiniteWeights> bad = find_nonfinite(values != nullptr ? *values : *weights);
  context.document()["nonfinite"] = Json::array();
  for (const NonfiniteWeights& tensor : bad) {
    context.document()["nonfinite"].push_back(
        {{"name", tensor.name}, {"nan", tensor.nan}, {"inf", tensor.inf}});
    context.print(fmt::format("  {}: {} NaN, {} infinite", tensor.name, tensor.nan, tensor.inf));
  }
  if (bad.empty()) {
    context.print("  all weights are finite");
    return 0;
  }
  throw make_error(ErrorCode::kBadFile,
                   "{} of {} weights have values that are not finite: '{}' has {} NaN and {} infinite",
                   bad.size(), weights->entries().size(), bad[0].name, bad[0].nan, bad[0].inf)
      .at(path)
      .hint("the file is damaged, or training diverged");
}

}  // namespace pare
