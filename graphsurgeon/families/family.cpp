#include "graphsurgeon/families/family.h"

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/reader_hints.h"
#include "graphsurgeon/checkpoint/checkpoint.h"

namespace pare {

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"Llama", {"llama"}, "Llama 2 and 3, SmolLM2", build_llama},
      {"Mistral", {"mistral"}, "keys within a window", build_llama},
      {"Qwen 2", {"qwen2"}, "biases of queries, keys and values", build_llama},
      {"Qwen 3", {"qwen3"}, "queries and keys normalized by head", build_qwen3},
      {"Gemma", {"gemma"}, "scaled embeddings, norms by 1 + w", build_gemma},
      {"Gemma 2", {"gemma2"}, "norms around the parts, capped scores, windows", build_gemma2},
      {"Gemma 3", {"gemma3_text", "gemma3"}, "norms by head, two rotary bases", build_gemma3},
      {"Phi-3", {"phi3"}, "fused projections", build_phi3},
      {"Mixtral", {"mixtral"}, "a mixture of experts", build_mixtral},
      {"Qwen 2 MoE", {"qwen2_moe"}, "experts beside a shared one", build_qwen2_moe},
      {"Qwen 3 MoE", {"qwen3_moe"}, "experts, norms by head", build_qwen3_moe},
      {"GPT-2", {"gpt2"}, "learned positions, LayerNorm, mlp without a gate", build_gpt2},
      {"OPT", {"opt"}, "learned positions, LayerNorm, ReLU", build_opt},
      {"BERT", {"bert"}, "an encoder", build_bert},
  };
  return kFamilies;
}

const Family* find_family(const std::string& model_type) {
  for (const Family& family : families())
    for (const char* type : family.model_types)
      if (model_type == type) return &family;
  return nullptr;
}

namespace {

// "model.layers.3.mlp.up_proj.weight" -> is it of a layer behind the first (or an expert behind it)?
bool of_later_part(const std::string& name) {
  for (std::size_t at = 0; (at = name.find('.', at)) != std::string::npos; ++at) {
    const std::size_t end = name.find_first_not_of("0123456789", at + 1);
    if (end != std::string::npos && end > at + 1 && name[end] == '.' &&
        name.substr(at + 1, end - at - 1) != "0")
      return true;
  }
  return false;
}

std::set<std::string> needed_names(const Family& family, ModelConfig config, const WeightStore& store) {
  std::vector<std::string> names;
  BuildOptions options;
  options.views = true;
  options.context = 1;
  options.needed = &names;
  config.layers = 1;
  config.experts = std::min<std::int64_t>(config.experts, 1);
  config.experts_used = std::min<std::int64_t>(config.experts_used, 1);
  config.model_type = family.model_types[0];
  config.local_layers.resize(std::min<std::size_t>(config.local_layers.size(), 1));
  config.dense_layers.clear();
  try {
    NetBuilder net(config, store, options);
    family.build(net);
  } catch (const Error&) {
    return {};  // the config is no such model: not the nearest one
  }
  return {names.begin(), names.end()};
}

std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

}  // namespace

void refuse_family(const ModelConfig& config, const WeightStore& store) {
  std::set<std::string> here;
  for (const WeightStore::Entry& entry : store.entries())
    if (!of_later_part(entry.name)) here.insert(entry.name);
  const Family* nearest = nullptr;
  std::vector<std::string> missing, extra;
  double best = 0;
  for (const Family& family : families()) {
    const std::set<std::string> needed = needed_names(family, config, store);
    std::vector<std::string> lack, more;
    std::set_difference(needed.begin(), needed.end(), here.begin(), here.end(), std::back_inserter(lack));
    std::set_difference(here.begin(), here.end(), needed.begin(), needed.end(), std::back_inserter(more));
    const double common = static_cast<double>(needed.size() - lack.size());
    const double score = needed.empty() ? 0 : common / static_cast<double>(needed.size() + more.size());
    if (score <= best) continue;
    best = score;
    nearest = &family;
    missing = lack;
    extra = more;
  }
  std::string list;
  for (const Family& family : families()) list += (list.empty() ? "" : ", ") + std::string(family.name);
  std::string hint = "known families: " + list;
  if (nearest != nullptr) {
    hint += fmt::format("; the nearest by its weights is {}", nearest->name);
    hint +=
        missing.empty() ? ", which needs none that are missing" : ", which also needs " + first_of(missing);
    hint += extra.empty() ? ", and has a use for all" : ", and has no use for " + first_of(extra);
  }
  throw make_error(ErrorCode::kUnsupported, "the model type '{}' is of no known family", config.model_type)
      .at(config.where)
      .hint(hint);
}

const Family& require_family(const Checkpoint& checkpoint) {
  if (checkpoint.family == nullptr) refuse_family(checkpoint.config, *checkpoint.weights);
  return *checkpoint.family;
}

Graph build_graph(const Checkpoint& checkpoint, const BuildOptions& options) {
  const Family& family = require_family(checkpoint);
  check_model_config(checkpoint.config);
  constexpr ReaderHints kHints = {
      "config.json contradicts itself or the weights: download the checkpoint again, whole",
      "give a checkpoint of a family that is known in full: docs/checkpoints.md"};
  return with_context(fmt::format("building the graph of '{}'", checkpoint.path), kHints, [&] {
    NetBuilder net(checkpoint.config, *checkpoint.weights, options);
    return family.build(net);
  });
}

}  // namespace pare
