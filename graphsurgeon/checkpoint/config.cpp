#include "graphsurgeon/checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace pare {
namespace {

constexpr const char* kConfigHint = "mend the key, or download config.json again: it comes with the weights";
constexpr std::int64_t kMostSize = std::int64_t{1} << 31, kMostLayers = 4096, kMostExperts = 65536;

// Members by any of their spellings; null counts as absent.
class Keys {
 public:
  Keys(const Json& json, const std::string& where) : json_(json), where_(where) {
    if (!json.is_object())
      throw make_error(ErrorCode::kBadFile, "the config is no JSON object").at(where).hint(kConfigHint);
  }

  const Json* find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      const auto found = json_.find(key);
      if (found != json_.end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  bool has(const char* key) const { return json_.contains(key); }

  std::int64_t size(std::initializer_list<const char*> keys, std::int64_t otherwise,
                    std::int64_t most = kMostSize) const {
    const Json* value = find(keys);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer()) wrong(*keys.begin(), "a whole number");
    const std::int64_t n = value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX
                               ? INT64_MAX
                               : value->get<std::int64_t>();
    if (n < 0 || n > most) wrong(*keys.begin(), fmt::format("between 0 and {}", most));
    return n;
  }
  double number(std::initializer_list<const char*> keys, double otherwise) const {
    const Json* value = find(keys);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) wrong(*keys.begin(), "a number");
    return value->get<double>();
  }
  bool flag(std::initializer_list<const char*> keys, bool otherwise) const {
    const Json* value = find(keys);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) wrong(*keys.begin(), "true or false");
    return value->get<bool>();
  }
  std::string text(std::initializer_list<const char*> keys, const std::string& otherwise) const {
    const Json* value = find(keys);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(*keys.begin(), "text");
    return value->get<std::string>();
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> list;
    const Json* value = find({key});
    if (value == nullptr) return list;
    if (!value->is_array()) wrong(key, "a list of numbers");
    for (const Json& item : *value) {
      if (!item.is_number()) wrong(key, "a list of numbers");
      list.push_back(item.get<double>());
    }
    return list;
  }
  // One number or a list of them.
  std::vector<std::int64_t> ids(const char* key) const {
    std::vector<std::int64_t> list;
    const Json* value = find({key});
    if (value == nullptr) return list;
    for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
      if (!item.is_number_integer()) wrong(key, "a token number");
      list.push_back(item.get<std::int64_t>());
    }
    return list;
  }

  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const {
    throw make_error(ErrorCode::kBadFile, "'{}' is not {}", key, wanted).at(where_).hint(kConfigHint);
  }

 private:
  const Json& json_;
  const std::string& where_;
};

void read_rope(const Json& json, const std::string& where, RopeConfig& rope) {
  const Keys keys(json, where);
  rope.theta = keys.number({"rope_theta"}, rope.theta);
  rope.partial = keys.number({"partial_rotary_factor"}, rope.partial);
  rope.type = keys.text({"rope_type", "type"}, "default");
  if (rope.type == "su") rope.type = "longrope";
  if (rope.type == "dynamic") rope.type = "default";  // differs beyond the context only
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3" && rope.type != "yarn" &&
      rope.type != "longrope")
    throw make_error(ErrorCode::kUnsupported, "the rope scaling '{}' is not known", rope.type)
        .at(where)
        .hint("known are default, linear, dynamic, llama3, yarn and longrope");
  rope.factor = keys.number({"factor"}, 1);
  rope.low_frequency = keys.number({"low_freq_factor"}, 1);
  rope.high_frequency = keys.number({"high_freq_factor"}, 4);
  rope.beta_fast = keys.number({"beta_fast"}, 32);
  rope.beta_slow = keys.number({"beta_slow"}, 1);
  rope.attention_factor = keys.number({"attention_factor"}, 0);
  rope.original_context = keys.size({"original_max_position_embeddings"}, rope.original_context);
  rope.short_factor = keys.numbers("short_factor");
  rope.long_factor = keys.numbers("long_factor");
  if (!(rope.theta > 0) || !(rope.factor > 0) || !(rope.partial > 0 && rope.partial <= 1))
    keys.wrong("rope_theta, factor or partial_rotary_factor", "above 0");
}

// rope_parameters {...} or {"full_attention": {...}, "sliding_attention": {...}}; else the old keys.
void read_ropes(const Json& json, const Keys& keys, ModelConfig& c) {
  c.rope.theta = keys.number({"rope_theta", "rotary_emb_base"}, c.rope.theta);
  c.rope.partial = keys.number({"partial_rotary_factor"}, 1);
  c.rope.original_context = keys.size({"original_max_position_embeddings"}, 0);
  c.local_rope = c.rope;
  c.local_rope.theta =
      keys.number({"rope_local_base_freq"}, c.model_type.rfind("gemma3", 0) == 0 ? 10000 : c.rope.theta);
  const Json* p = keys.find({"rope_parameters", "rope_scaling"});
  if (p == nullptr) return;
  if (!p->is_object()) keys.wrong("rope_parameters", "an object");
  if (p->contains("full_attention") || p->contains("sliding_attention")) {
    if (p->contains("full_attention")) read_rope((*p)["full_attention"], c.where, c.rope);
    if (p->contains("sliding_attention")) read_rope((*p)["sliding_attention"], c.where, c.local_rope);
    return;
  }
  read_rope(*p, c.where, c.rope);
  if (c.model_type.rfind("gemma3", 0) != 0) c.local_rope = c.rope;
  (void)json;
}

void read_windows(const Keys& keys, ModelConfig& c) {
  const bool gemma2 = c.model_type == "gemma2", gemma3 = c.model_type == "gemma3_text";
  const std::int64_t otherwise =
      (c.model_type == "mistral" && !keys.has("sliding_window")) || gemma2 || gemma3 ? 4096 : 0;
  c.window = keys.size({"sliding_window"}, otherwise);
  if (c.model_type.rfind("qwen", 0) == 0 && !keys.flag({"use_sliding_window"}, false)) c.window = 0;
  if (c.window == 0) return;
  const auto layers = static_cast<std::size_t>(c.layers);
  if (const Json* types = keys.find({"layer_types"})) {
    if (!types->is_array() || types->size() != layers) keys.wrong("layer_types", "one word a layer");
    for (const Json& type : *types) {
      if (type != "sliding_attention" && type != "full_attention")
        throw make_error(ErrorCode::kUnsupported, "layer_types has a kind of layer that is not known")
            .at(c.where)
            .hint("known are full_attention and sliding_attention");
      c.local_layers.push_back(type == "sliding_attention");
    }
  } else if (gemma2 || gemma3) {
    const auto period = static_cast<std::size_t>(
        gemma2
            ? 2
            : std::max<std::int64_t>(1, keys.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6)));
    for (std::size_t i = 0; i < layers; ++i) c.local_layers.push_back((i + 1) % period != 0);
  } else if (c.model_type.rfind("qwen", 0) == 0) {
    const auto from = static_cast<std::size_t>(keys.size({"max_window_layers"}, 28));
    for (std::size_t i = 0; i < layers; ++i) c.local_layers.push_back(i >= from);
  }
}

void read_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"num_local_experts", "num_experts"}, 0, kMostExperts);
  c.experts_used = keys.size({"num_experts_per_tok"}, 0, kMostExperts);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, c.intermediate);
  c.shared_intermediate = keys.size({"shared_expert_intermediate_size"}, 0);
  c.normalize_expert_weights = keys.flag({"norm_topk_prob"}, c.model_type == "mixtral");
  if (c.model_type != "qwen2_moe" && c.model_type != "qwen3_moe") return;
  const std::int64_t step = std::max<std::int64_t>(1, keys.size({"decoder_sparse_step"}, 1));
  std::vector<std::int64_t> dense;
  for (const std::int64_t id : keys.ids("mlp_only_layers")) dense.push_back(id);
  for (std::int64_t i = 0; i < c.layers; ++i)
    c.dense_layers.push_back((i + 1) % step != 0 || std::find(dense.begin(), dense.end(), i) != dense.end());
}

bool tied_by_default(const std::string& type) {
  return type.rfind("gemma", 0) == 0 || type == "gpt2" || type == "opt";
}

}  // namespace

ModelConfig parse_model_config(const Json& whole, const std::string& where) {
  const Keys outer(whole, where);
  const Json* text = outer.find({"text_config"});
  const Json& json = text != nullptr && text->is_object() ? *text : whole;
  const Keys keys(json, where);
  ModelConfig c;
  c.where = where;
  c.model_type = keys.text({"model_type"}, "");
  if (const Json* list = outer.find({"architectures"}))
    if (list->is_array() && !list->empty() && (*list)[0].is_string())
      c.architecture = (*list)[0].get<std::string>();
  c.dtype = outer.text({"dtype", "torch_dtype"}, keys.text({"dtype", "torch_dtype"}, ""));
  c.vocabulary = keys.size({"vocab_size"}, 0);
  c.hidden = keys.size({"hidden_size", "n_embd", "d_model"}, 0);
  c.layers = keys.size({"num_hidden_layers", "n_layer"}, 0, kMostLayers);
  c.heads = keys.size({"num_attention_heads", "n_head"}, 0);
  // Older families have as many keys as queries, whatever else stands in the file.
  const bool older = c.model_type == "gpt2" || c.model_type == "opt" || c.model_type == "bert";
  c.kv_heads = older ? c.heads : keys.size({"num_key_value_heads"}, c.heads);
  const bool wide_heads = c.model_type.rfind("gemma", 0) == 0;
  const std::int64_t usual = c.model_type.rfind("qwen3", 0) == 0 ? 128
                             : wide_heads                        ? 256
                             : c.heads == 0                      ? 0
                                                                 : c.hidden / c.heads;
  c.head_size = keys.size({"head_dim"}, usual);
  c.intermediate =
      keys.size({"intermediate_size", "n_inner", "ffn_dim"}, c.model_type == "gpt2" ? 4 * c.hidden : 0);
  c.context = keys.size({"max_position_embeddings", "n_positions", "n_ctx"}, 2048);
  const double epsilon = c.model_type == "bert"                            ? 1e-12
                         : c.model_type == "gpt2" || c.model_type == "opt" ? 1e-5
                                                                           : 1e-6;
  c.norm_epsilon = keys.number({"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"}, epsilon);
  c.activation = keys.text({"hidden_activation", "hidden_act", "activation_function"},
                           wide_heads               ? "gelu_pytorch_tanh"
                           : c.model_type == "gpt2" ? "gelu_new"
                           : c.model_type == "opt"  ? "relu"
                           : c.model_type == "bert" ? "gelu"
                                                    : "silu");
  c.tied =
      outer.flag({"tie_word_embeddings"}, keys.flag({"tie_word_embeddings"}, tied_by_default(c.model_type)));
  const bool qwen2 = c.model_type == "qwen2" || c.model_type == "qwen2_moe";
  c.attention_bias = keys.flag({"attention_bias", "qkv_bias"}, qwen2);
  c.output_bias = !qwen2 && c.attention_bias;
  c.mlp_bias = keys.flag({"mlp_bias"}, false);
  read_ropes(json, keys, c);
  read_windows(keys, c);
  read_experts(keys, c);
  c.attention_softcap = keys.number({"attn_logit_softcapping"},
                                    c.model_type == "gemma2" && !keys.has("attn_logit_softcapping") ? 50 : 0);
  c.final_softcap = keys.number({"final_logit_softcapping"},
                                c.model_type == "gemma2" && !keys.has("final_logit_softcapping") ? 30 : 0);
  if (c.model_type == "gemma2" || c.model_type == "gemma3_text") {
    const double scalar = keys.number({"query_pre_attn_scalar"}, 256);
    if (!(scalar > 0)) keys.wrong("query_pre_attn_scalar", "above 0");
    c.query_scale = 1 / std::sqrt(scalar);
  }
  c.token_types = keys.size({"type_vocab_size"}, 0);
  c.embedding_size = keys.size({"word_embed_proj_dim"}, c.hidden);
  c.norm_first = keys.flag({"do_layer_norm_before"}, true);
  c.bos = keys.ids("bos_token_id");
  c.eos = keys.ids("eos_token_id");
  if (c.bos.empty()) c.bos = outer.ids("bos_token_id");
  if (c.eos.empty()) c.eos = outer.ids("eos_token_id");
  return c;
}

ModelConfig read_model_config(const std::string& path) {
  return parse_model_config(read_json_file(path), path);
}

void check_model_config(const ModelConfig& c) {
  const auto need = [&](bool holds, const char* what) {
    if (!holds)
      throw make_error(ErrorCode::kBadFile, "the config makes no model: {}", what)
          .at(c.where)
          .hint(kConfigHint);
  };
  need(c.vocabulary > 0, "vocab_size is missing or 0");
  need(c.hidden > 0, "hidden_size is missing or 0");
  need(c.layers > 0, "num_hidden_layers is missing or 0");
  need(c.heads > 0 && c.kv_heads > 0 && c.heads % c.kv_heads == 0,
       "num_attention_heads is no multiple of num_key_value_heads");
  need(c.head_size > 0 && c.heads <= kMostSize / c.head_size, "head_dim is 0, or too large");
  need(c.intermediate > 0 || c.experts > 0, "intermediate_size is missing or 0");
  need(c.context > 0, "max_position_embeddings is 0");
  need(c.norm_epsilon >= 0 && c.norm_epsilon < 1, "the epsilon of the normalizations is not in [0, 1)");
  need(c.experts == 0 || (c.experts_used > 0 && c.experts_used <= c.experts),
       "num_experts_per_tok is 0, or above the number of experts");
}

}  // namespace pare
