#include "graphsurgeon/gguf/gguf_model.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/numeric/ggml_codes.h"

namespace pare {
namespace {

std::string architecture(const GgufFile& file) {
  const std::string name = file.text("general.architecture", "");
  for (const char* known : {"llama", "qwen2", "qwen3", "phi3"})
    if (name == known) return name;
  throw make_error(ErrorCode::kUnsupported, "GGUF models of architecture '{}' are not read", name)
      .at(file.path)
      .hint("known are llama, qwen2, qwen3 and phi3; a safetensors checkpoint of the model may be");
}

const GgufTensor* find_tensor(const GgufFile& file, const char* name) {
  for (const GgufTensor& tensor : file.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

void read_rope(const GgufFile& file, const std::string& arch, RopeConfig& rope) {
  rope.theta = file.number(arch + ".rope.freq_base", 10000);
  rope.interleaved = arch == "llama";
  const std::string scaling = file.text(arch + ".rope.scaling.type", "none");
  rope.factor = file.number(arch + ".rope.scaling.factor", 1);
  rope.original_context = file.integer(arch + ".rope.scaling.original_context_length", 0);
  if (scaling == "linear" || scaling == "yarn")
    rope.type = scaling;
  else if (scaling != "none")
    throw make_error(ErrorCode::kUnsupported, "the rope scaling '{}' is not known", scaling).at(file.path);
  if (!(rope.theta > 0) || !(rope.factor > 0))
    throw make_error(ErrorCode::kBadFile, "the rope base or factor is not above 0").at(file.path);
  // Llama 3: what each frequency is divided by.
  const GgufTensor* factors = find_tensor(file, "rope_freqs.weight");
  if (factors == nullptr) return;
  const Tensor values = gguf_tensor(file, *factors);
  if (values.dtype() != DType::kF32)
    throw make_error(ErrorCode::kBadFile, "rope_freqs.weight is {}", name(values.dtype())).at(file.path);
  rope.type = "factors";
  rope.short_factor.assign(values.as<float>(), values.as<float>() + values.size());
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight".
std::string family_name(const std::string& name, bool fused) {
  static const std::map<std::string, std::string> kWhole = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"}};
  static const std::map<std::string, std::string> kParts = {
      {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
      {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
      {"attn_qkv", "self_attn.qkv_proj"},  {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
  if (const auto whole = kWhole.find(name); whole != kWhole.end()) return whole->second;
  if (name.rfind("blk.", 0) != 0) return name;
  const std::size_t dot = name.find('.', 4), last = name.rfind('.');
  if (dot == std::string::npos || last <= dot) return name;
  const std::string part = name.substr(dot + 1, last - dot - 1);
  const auto found = kParts.find(part);
  if (found == kParts.end()) return name;
  const std::string target = fused && part == "ffn_up" ? "mlp.gate_up_proj" : found->second;
  return "model.layers." + name.substr(4, dot - 4) + "." + target + name.substr(last);
}

class GgufWeights final : public WeightStore {
 public:
  explicit GgufWeights(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
    const bool fused = file_->text("general.architecture", "") == "phi3";
    const std::size_t slash = file_->path.rfind('/');
    const std::string own = slash == std::string::npos ? file_->path : file_->path.substr(slash + 1);
    for (const GgufTensor& tensor : file_->tensors) {
      const std::string name = family_name(tensor.name, fused);
      if (!by_name_.emplace(name, &tensor).second)
        throw make_error(ErrorCode::kBadFile, "two tensors are '{}'", name).at(file_->path);
      entries_.push_back(
          {name, tensor.type->plain == DType::kUndefined ? tensor.type->name : pare::name(tensor.type->plain),
           tensor.dims, static_cast<std::int64_t>(tensor.bytes.size()), own});
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
  }

  Tensor get(const std::string& name) const override {
    const auto found = by_name_.find(name);
    if (found == by_name_.end())
      throw make_error(ErrorCode::kBadFile, "there is no tensor '{}'", name).at(file_->path);
    return gguf_tensor(*file_, *found->second);
  }

  Tensor blocks(const std::string& name, const GgmlType*& type) const override {
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || found->second->dims.size() != 2) return {};
    const GgufTensor& tensor = *found->second;
    if (find_ggml_coding(*tensor.type) == nullptr || tensor.dims[1] % tensor.type->block != 0) return {};
    type = tensor.type;
    return Tensor::share(DType::kU8, {tensor.dims[0], tensor.dims[1] / type->block * type->bytes},
                         tensor.bytes.data(), file_->owner);
  }

 private:
  std::shared_ptr<const GgufFile> file_;
  std::map<std::string, const GgufTensor*> by_name_;
};

}  // namespace

ModelConfig gguf_config(const GgufFile& file) {
  const std::string arch = architecture(file);
  const auto size = [&](const char* key, std::int64_t otherwise) {
    const std::int64_t n = file.integer(arch + "." + key, otherwise);
    if (n < 0 || n > (std::int64_t{1} << 31))
      throw make_error(ErrorCode::kBadFile, "'{}.{}' is {}", arch, key, n).at(file.path);
    return n;
  };
  ModelConfig c;
  c.where = file.path;
  c.model_type = arch;
  c.architecture = file.text("general.name", "");
  c.layers = size("block_count", 0);
  c.hidden = size("embedding_length", 0);
  c.intermediate = size("feed_forward_length", 0);
  c.heads = size("attention.head_count", 0);
  c.kv_heads = size("attention.head_count_kv", c.heads);
  c.head_size = size("attention.key_length", c.heads == 0 ? 0 : c.hidden / c.heads);
  c.context = size("context_length", 2048);
  c.norm_epsilon = file.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5);
  c.activation = "silu";
  c.tied = find_tensor(file, "output.weight") == nullptr;
  c.attention_bias = find_tensor(file, "blk.0.attn_q.bias") != nullptr;
  c.output_bias = find_tensor(file, "blk.0.attn_output.bias") != nullptr;
  c.mlp_bias = find_tensor(file, "blk.0.ffn_up.bias") != nullptr;
  const GgufTensor* embedding = find_tensor(file, "token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2)
    throw make_error(ErrorCode::kBadFile, "there is no token_embd.weight").at(file.path);
  c.vocabulary = embedding->dims[0];
  if (file.integer(arch + ".expert_count", 0) != 0)
    throw make_error(ErrorCode::kUnsupported, "GGUF models with experts are not read")
        .at(file.path)
        .hint("a safetensors checkpoint of the model is");
  read_rope(file, arch, c.rope);
  const std::int64_t turning = size("rope.dimension_count", c.head_size);
  if (c.head_size > 0) c.rope.partial = static_cast<double>(turning) / static_cast<double>(c.head_size);
  c.local_rope = c.rope;
  c.window = arch == "phi3" ? 0 : size("attention.sliding_window", 0);
  // eot: the end of a turn, where a chat model stops.
  for (const auto& [key, list] :
       {std::pair("bos", &c.bos), std::pair("eos", &c.eos), std::pair("eot", &c.eos)})
    if (const std::int64_t id = file.integer(std::string("tokenizer.ggml.") + key + "_token_id", -1); id >= 0)
      list->push_back(id);
  return c;
}

std::unique_ptr<WeightStore> gguf_weights(std::shared_ptr<const GgufFile> file) {
  return std::make_unique<GgufWeights>(std::move(file));
}

}  // namespace pare
