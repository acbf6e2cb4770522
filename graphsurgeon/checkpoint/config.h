// What a model's config.json says, in one form for all families and spellings. GGUF metadata fill the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json_fwd.h"

namespace pare {

// Rotary position embedding: angle of pair i at position p is p * f_i, f_i = theta^(-2i/dim), changed by
// `type`.
struct RopeConfig {
  double theta = 10000;
  std::string type = "default";  // default, linear, llama3, yarn, longrope, factors; dynamic is default
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;   // llama3
  double beta_fast = 32, beta_slow = 1;           // yarn
  double attention_factor = 0;                    // yarn, longrope: of cos and sin; 0: by the factor
  std::int64_t original_context = 0;              // 0: the model's
  std::vector<double> short_factor, long_factor;  // longrope, by pair; factors: short
  double partial = 1;                             // share of a head that turns
  bool interleaved = false;                       // pairs are neighbours (GGUF's order), not halves
};

struct ModelConfig {
  std::string where;         // the file, for messages
  std::string model_type;    // "llama"
  std::string architecture;  // "LlamaForCausalLM", "" when not said
  std::string dtype;         // "bfloat16", "" when not said
  std::int64_t vocabulary = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t intermediate = 0;
  std::int64_t context = 0;  // positions
  double norm_epsilon = 1e-6;
  std::string activation;  // "silu", "gelu_pytorch_tanh", ...
  bool tied = false;       // the head is the embedding
  bool attention_bias = false, output_bias = false, mlp_bias = false;
  RopeConfig rope, local_rope;     // local_rope: of layers with a window (Gemma 3)
  std::int64_t window = 0;         // 0: none. Keys that a query of a local layer sees, itself included
  std::vector<bool> local_layers;  // [layers]; empty: all, when there is a window
  double attention_softcap = 0, final_softcap = 0;
  double query_scale = 0;  // factor of the scores; 0: 1 / sqrt(head_size)
  // Mixtures of experts.
  std::int64_t experts = 0, experts_used = 0, expert_intermediate = 0, shared_intermediate = 0;
  bool normalize_expert_weights = true;
  std::vector<bool> dense_layers;  // [layers]; empty: none
  // Older decoders and encoders.
  std::int64_t token_types = 0, embedding_size = 0;  // embedding_size: OPT's, when not `hidden`
  bool norm_first = true;
  std::vector<std::int64_t> bos, eos;

  bool is_local(std::int64_t layer) const {
    return window > 0 && (local_layers.empty() || local_layers[static_cast<std::size_t>(layer)]);
  }
  bool is_dense(std::int64_t layer) const {
    return !dense_layers.empty() && dense_layers[static_cast<std::size_t>(layer)];
  }
};

// Old and new spellings: torch_dtype and dtype; rope_theta, rope_scaling and rope_parameters (also one by
// kind of layer); n_embd, n_layer ... of GPT-2; a text_config inside. Sizes are checked to be positive and
// below 2^31. Error kBadFile naming file and key; kUnsupported for a kind of rope scaling that is not known.
ModelConfig read_model_config(const std::string& path);
ModelConfig parse_model_config(const Json& json, const std::string& where);

// Does what the family's builder relies on: heads divide, sizes are there. Error kBadFile.
void check_model_config(const ModelConfig& config);

}  // namespace pare
