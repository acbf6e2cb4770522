// The families of language models that a checkpoint can be of: one small file each, which calls the parts of
// NetBuilder in the order of the layers.
#pragma once

#include <string>
#include <vector>

#include "graphsurgeon/families/builder.h"

namespace pare {

struct Checkpoint;  // checkpoint/checkpoint.h

struct Family {
  const char* name;                      // "Llama"
  std::vector<const char*> model_types;  // of config.json
  const char* what;                      // one line: how it differs from Llama
  Graph (*build)(NetBuilder& net);
};

const std::vector<Family>& families();
const Family* find_family(const std::string& model_type);  // nullptr: none

// Error kUnsupported for a model of no known family: lists the families, names the one whose weights have
// most names in common with `store`, and says which of its weights are missing here and which are left over.
[[noreturn]] void refuse_family(const ModelConfig& config, const WeightStore& store);

const Family& require_family(const Checkpoint& checkpoint);
// Errors: an unknown family; weights that are not those of the config; NaN in them (builder.h).
Graph build_graph(const Checkpoint& checkpoint, const BuildOptions& options = {});

// --- parts that several families share

// A decoder of blocks: x += attention(norm(x)); x += mlp(norm(x)).
struct DecoderParts {
  bool head_norms = false;     // queries and keys are normalized by head (Qwen 3, Gemma 3)
  bool outer_norms = false;    // the results of attention and mlp are normalized too (Gemma 2, 3)
  bool fused = false;          // qkv_proj and gate_up_proj hold several matrices (Phi-3)
  float norm_offset = 0;       // weights of norms count from here (Gemma: 1)
  double embedding_scale = 1;  // factor of the embeddings
  ValueId (*mlp)(NetBuilder& net, ValueId x, std::int64_t layer, const std::string& block) = nullptr;
};
Graph build_decoder(NetBuilder& net, const DecoderParts& parts);

// Of each token the `experts_used` experts of the largest probabilities, weighted by those: the tokens of one
// expert are gathered, go through its matrices alone, and are added back, expert after expert. An expert
// without tokens computes nothing.
struct ExpertNames {
  const char *gate, *up, *down;  // "w1", "w3", "w2"
};
ValueId mix_experts(NetBuilder& net, ValueId x, const std::string& module, const ExpertNames& names);

// c * tanh(x / c); x itself when c is 0.
ValueId soft_cap(NetBuilder& net, ValueId x, double cap, const std::string& name);

// --- the families, each in its file
Graph build_llama(NetBuilder& net);
Graph build_qwen3(NetBuilder& net);
Graph build_gemma(NetBuilder& net);
Graph build_gemma2(NetBuilder& net);
Graph build_gemma3(NetBuilder& net);
Graph build_phi3(NetBuilder& net);
Graph build_mixtral(NetBuilder& net);
Graph build_qwen2_moe(NetBuilder& net);
Graph build_qwen3_moe(NetBuilder& net);
Graph build_gpt2(NetBuilder& net);
Graph build_opt(NetBuilder& net);
Graph build_bert(NetBuilder& net);

}  // namespace pare
