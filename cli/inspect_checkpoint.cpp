#include "cli/inspect_checkpoint.h"

#include <map>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"
#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/load.h"

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

void say_weights(Context& context, const WeightStore& weights, bool list) {
  std::map<std::string, std::int64_t> types, files;
  for (const WeightStore::Entry& entry : weights.entries()) {
    ++types[entry.type];
    ++files[entry.file];
  }
  Json& json = context.document();
  json["tensors"] = weights.entries().size();
  json["types"] = types;
  json["files"] = files.size();
  json["parameters"] = weights.parameters();
  json["weight_bytes"] = weights.bytes();
  std::string text;
  for (const auto& [type, count] : types)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  context.print(fmt::format("  {} tensors ({}) in {} file{}, {} parameters, {} of weights",
                            weights.entries().size(), text, files.size(), files.size() == 1 ? "" : "s",
                            weights.parameters(), bytes_text(static_cast<double>(weights.bytes()))));
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

}  // namespace

int inspect_checkpoint(Context& context, const std::string& path, bool list, bool verify) {
  const ModelKind kind = model_kind(path);
  context.document()["format"] = model_kind_name(kind);
  std::shared_ptr<const WeightStore> weights;
  if (kind == ModelKind::kSafetensors) {
    weights = open_safetensors_weights(path);
    context.print(fmt::format("{}: safetensors", path));
  } else {
    const Checkpoint checkpoint = open_checkpoint(path);
    say_model(context, checkpoint);
    weights = checkpoint.weights;
  }
  say_weights(context, *weights, list);
  if (!verify) return 0;
  const std::vector<NonfiniteWeights> bad = find_nonfinite(*weights);
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
