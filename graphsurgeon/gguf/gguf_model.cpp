#include "graphsurgeon/gguf/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/reader_hints.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/ggml_codes.h"

namespace pare {
namespace {

constexpr std::int64_t kMostExperts = 65536;

struct Architecture {
  const char* name;  // general.architecture
  const char* type;  // model_type of config.json
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama"},        {"qwen2", "qwen2"},        {"qwen3", "qwen3"},
    {"qwen2moe", "qwen2_moe"}, {"qwen3moe", "qwen3_moe"}, {"gemma", "gemma"},
    {"gemma2", "gemma2"},      {"gemma3", "gemma3_text"}, {"phi3", "phi3"}};

const Architecture& architecture(const GgufFile& file) {
  const std::string name = file.text("general.architecture", "");
  std::string known;
  for (const Architecture& one : kArchitectures) {
    if (name == one.name) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw make_error(ErrorCode::kUnsupported, "GGUF models of architecture '{}' are not read", name)
      .at(file.path)
      .hint("known are " + known + "; a safetensors checkpoint of the model may be");
}

bool is_gemma(const std::string& arch) { return arch.rfind("gemma", 0) == 0; }

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
  rope.attention_factor = file.number(arch + ".rope.scaling.attn_factor", 0);
  const auto factors = [&](const char* which, std::vector<double>& into) {
    const GgufTensor* tensor = find_tensor(file, which);
    if (tensor == nullptr) return false;
    const Tensor values = gguf_tensor(file, *tensor);
    if (values.dtype() != DType::kF32)
      throw make_error(ErrorCode::kBadFile, "{} is {}", which, name(values.dtype())).at(file.path);
    into.assign(values.as<float>(), values.as<float>() + values.size());
    return true;
  };
  // Phi-3: for texts within the original context, and for longer ones. Llama 3: what each frequency is
  // divided by.
  if (factors("rope_factors_short.weight", rope.short_factor) &&
      factors("rope_factors_long.weight", rope.long_factor))
    rope.type = "longrope";
  else if (factors("rope_freqs.weight", rope.short_factor))
    rope.type = "factors";
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight".
std::string family_name(const std::string& name, const std::string& arch) {
  static const std::map<std::string, std::string> kWhole = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"}};
  static const std::map<std::string, std::string> kParts = {
      {"attn_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"ffn_gate_inp", "mlp.gate"},
      {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
      {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
      {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
      {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};
  if (const auto whole = kWhole.find(name); whole != kWhole.end()) return whole->second;
  if (name.rfind("blk.", 0) != 0) return name;
  const std::size_t dot = name.find('.', 4), last = name.rfind('.');
  if (dot == std::string::npos || last <= dot) return name;
  const std::string part = name.substr(dot + 1, last - dot - 1);
  const auto found = kParts.find(part);
  if (found == kParts.end()) return name;
  std::string target = found->second;
  if (arch == "phi3" && part == "ffn_up") target = "mlp.gate_up_proj";
  if (arch == "llama" && part == "ffn_gate_inp") target = "block_sparse_moe.gate";
  if (arch != "gemma" && is_gemma(arch) && part == "ffn_norm") target = "pre_feedforward_layernorm";
  return "model.layers." + name.substr(4, dot - 4) + "." + target + name.substr(last);
}

// "blk.3.ffn_up_exps.weight": the front and the end of the names of its experts, "" when it is none.
std::pair<std::string, std::string> expert_names(const std::string& name, const std::string& arch) {
  const std::size_t dot = name.find('.', 4);
  if (name.rfind("blk.", 0) != 0 || dot == std::string::npos) return {};
  const std::string part = name.substr(dot + 1), layer = "model.layers." + name.substr(4, dot - 4);
  const bool mixtral = arch == "llama";
  const std::string front = layer + (mixtral ? ".block_sparse_moe.experts." : ".mlp.experts.");
  if (part == "ffn_gate_exps.weight") return {front, mixtral ? ".w1.weight" : ".gate_proj.weight"};
  if (part == "ffn_up_exps.weight") return {front, mixtral ? ".w3.weight" : ".up_proj.weight"};
  if (part == "ffn_down_exps.weight") return {front, mixtral ? ".w2.weight" : ".down_proj.weight"};
  return {};
}

class GgufWeights final : public WeightStore {
 public:
  explicit GgufWeights(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
    const std::string arch = file_->text("general.architecture", "");
    const std::size_t slash = file_->path.rfind('/');
    own_ = slash == std::string::npos ? file_->path : file_->path.substr(slash + 1);
    for (const GgufTensor& tensor : file_->tensors) {
      const auto [front, end] = expert_names(tensor.name, arch);
      if (!front.empty() && tensor.dims.size() == 3) {
        add_experts(tensor, front, end);
        continue;
      }
      GgufTensor one = tensor;
      if (tensor.dims.size() == 1 && tensor.name.find("ffn_gate_inp_shexp") != std::string::npos)
        one.dims.insert(one.dims.begin(), 1);
      const std::string name = family_name(tensor.name, arch);
      const bool norm =
          is_gemma(arch) && name.size() > 11 && name.compare(name.size() - 11, 11, "norm.weight") == 0;
      add(name, std::move(one), norm);
    }
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
  }

  Tensor get(const std::string& name) const override {
    const auto found = held_.find(name);
    if (found == held_.end())
      throw make_error(ErrorCode::kBadFile, "there is no tensor '{}'", name)
          .at(file_->path)
          .hint(kGgufHints.damaged);
    const Tensor values = gguf_tensor(*file_, found->second.tensor);
    if (!found->second.one_more) return values;
    Tensor less = Tensor::allocate(DType::kF32, values.dims());
    decode(values.dtype(), values.data(), less.mut<float>(), values.size());
    for (std::int64_t i = 0; i < less.size(); ++i) less.mut<float>()[i] -= 1;
    return less;
  }

  Tensor blocks(const std::string& name, const GgmlType*& type) const override {
    const auto found = held_.find(name);
    if (found == held_.end() || found->second.one_more || found->second.tensor.dims.size() != 2) return {};
    const GgufTensor& tensor = found->second.tensor;
    if (find_ggml_coding(*tensor.type) == nullptr || tensor.dims[1] % tensor.type->block != 0) return {};
    type = tensor.type;
    return Tensor::share(DType::kU8, {tensor.dims[0], tensor.dims[1] / type->block * type->bytes},
                         tensor.bytes.data(), file_->owner);
  }

 private:
  struct Held {
    GgufTensor tensor;
    bool one_more = false;  // Gemma's norms are stored as 1 + w, and meant are w
  };

  void add(const std::string& name, GgufTensor tensor, bool one_more) {
    const DType plain = tensor.type->plain;
    entries_.push_back(
        {name, plain == DType::kUndefined ? tensor.type->name : pare::name(one_more ? DType::kF32 : plain),
         tensor.dims, static_cast<std::int64_t>(tensor.bytes.size()), own_});
    if (!held_.emplace(name, Held{std::move(tensor), one_more}).second)
      throw make_error(ErrorCode::kBadFile, "two tensors are '{}'", name)
          .at(file_->path)
          .hint(kGgufHints.damaged);
  }

  // [experts, outs, ins]: each expert's matrix lies in one piece.
  void add_experts(const GgufTensor& all, const std::string& front, const std::string& end) {
    const std::int64_t count = all.dims[0];
    if (count > kMostExperts)
      throw make_error(ErrorCode::kBadFile, "'{}' is of {} experts", all.name, count)
          .at(file_->path)
          .hint(kGgufHints.damaged);
    for (std::int64_t e = 0; e < count; ++e) {
      GgufTensor one = all;
      one.dims.erase(one.dims.begin());
      const std::size_t bytes = all.bytes.size() / static_cast<std::size_t>(count);
      one.bytes = all.bytes.subspan(static_cast<std::size_t>(e) * bytes, bytes);
      add(front + std::to_string(e) + end, std::move(one), false);
    }
  }

  std::shared_ptr<const GgufFile> file_;
  std::string own_;
  std::map<std::string, Held> held_;
};

// Which layers see a window only, and how scores are scaled.
void read_gemma(const GgufFile& file, const std::string& arch, ModelConfig& c) {
  c.activation = "gelu_pytorch_tanh";
  if (arch == "gemma") return;
  c.attention_softcap = file.number(arch + ".attn_logit_softcapping", 0);
  c.final_softcap = file.number(arch + ".final_logit_softcapping", 0);
  // Not in the file: the largest models scale by the hidden size of a head, the others by a head's own.
  const bool largest = c.layers == (arch == "gemma2" ? 46 : 62);
  if (c.heads > 0 && c.head_size > 0)
    c.query_scale = 1 / std::sqrt(static_cast<double>(largest ? c.hidden / c.heads : c.head_size));
  if (arch == "gemma3") {
    c.local_rope = RopeConfig{};
    c.local_rope.theta = file.number("gemma3.rope.freq_base_swa", 10000);
  }
  const GgufValue* pattern = file.find(arch + ".attention.sliding_window_pattern");
  const auto layers = static_cast<std::size_t>(c.layers);
  if (pattern != nullptr && pattern->is_array) {
    if (pattern->ints.size() != layers)
      throw make_error(ErrorCode::kBadFile, "'attention.sliding_window_pattern' has not one value a layer")
          .at(file.path);
    for (const std::int64_t local : pattern->ints) c.local_layers.push_back(local != 0);
    return;
  }
  const std::int64_t period =
      file.integer(arch + ".attention.sliding_window_pattern", arch == "gemma2" ? 2 : 6);
  for (std::size_t i = 0; i < layers; ++i)
    c.local_layers.push_back(period < 1 || (static_cast<std::int64_t>(i) + 1) % period != 0);
}

void read_experts(const GgufFile& file, const std::string& arch, ModelConfig& c) {
  const auto count = [&](const char* key, std::int64_t otherwise, std::int64_t most) {
    const std::int64_t n = file.integer(arch + "." + key, otherwise);
    if (n < 0 || n > most) throw make_error(ErrorCode::kBadFile, "'{}.{}' is {}", arch, key, n).at(file.path);
    return n;
  };
  c.experts = count("expert_count", 0, kMostExperts);
  if (c.experts == 0) return;
  if (arch == "llama") c.model_type = "mixtral";
  c.experts_used = count("expert_used_count", 0, kMostExperts);
  c.expert_intermediate = count("expert_feed_forward_length", c.intermediate, std::int64_t{1} << 31);
  c.shared_intermediate = count("expert_shared_feed_forward_length", 0, std::int64_t{1} << 31);
  c.normalize_expert_weights = arch != "qwen2moe";
  std::set<std::string> names;
  for (const GgufTensor& tensor : file.tensors) names.insert(tensor.name);
  for (std::int64_t i = 0; i < c.layers; ++i)
    c.dense_layers.push_back(names.count(fmt::format("blk.{}.ffn_gate_inp.weight", i)) == 0);
}

ModelConfig config_of(const GgufFile& file) {
  const std::string arch = architecture(file).name;
  const auto size = [&](const char* key, std::int64_t otherwise) {
    const std::int64_t n = file.integer(arch + "." + key, otherwise);
    if (n < 0 || n > (std::int64_t{1} << 31))
      throw make_error(ErrorCode::kBadFile, "'{}.{}' is {}", arch, key, n).at(file.path);
    return n;
  };
  ModelConfig c;
  c.where = file.path;
  c.model_type = architecture(file).type;
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
  read_rope(file, arch, c.rope);
  const std::int64_t turning = size("rope.dimension_count", c.head_size);
  if (c.head_size > 0) c.rope.partial = static_cast<double>(turning) / static_cast<double>(c.head_size);
  c.local_rope = c.rope;
  c.window = size("attention.sliding_window", 0);
  if (c.layers > 4096)
    throw make_error(ErrorCode::kBadFile, "'{}.block_count' is {}", arch, c.layers).at(file.path);
  read_experts(file, arch, c);
  if (is_gemma(arch)) read_gemma(file, arch, c);
  // eot: the end of a turn, where a chat model stops.
  for (const auto& [key, list] :
       {std::pair("bos", &c.bos), std::pair("eos", &c.eos), std::pair("eot", &c.eos)})
    if (const std::int64_t id = file.integer(std::string("tokenizer.ggml.") + key + "_token_id", -1); id >= 0)
      list->push_back(id);
  return c;
}

}  // namespace

ModelConfig gguf_config(const GgufFile& file) {
  return with_hints(kGgufHints, [&] { return config_of(file); });
}

std::unique_ptr<WeightStore> gguf_weights(std::shared_ptr<const GgufFile> file) {
  return std::make_unique<GgufWeights>(std::move(file));
}

}  // namespace pare
