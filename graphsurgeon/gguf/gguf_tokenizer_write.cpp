// The other direction of gguf_tokenizer.cpp.
#include <algorithm>
#include <unordered_map>

#include "engine/base/error.h"
#include "graphsurgeon/gguf/gguf_metadata.h"
#include "graphsurgeon/gguf/gguf_model.h"

namespace pare {
namespace {

using Step = TokenizerSpec::Step;

// Kinds of tokens in tokenizer.ggml.token_type.
constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

bool same(const Step& a, const Step& b) {
  return a.type == b.type && a.pattern == b.pattern && a.regex == b.regex && a.behavior == b.behavior &&
         a.invert == b.invert && a.add_prefix_space == b.add_prefix_space && a.use_regex == b.use_regex &&
         a.individual == b.individual;
}

bool has_step(const std::vector<Step>& steps, const char* type) {
  return std::any_of(steps.begin(), steps.end(), [&](const Step& step) { return step.type == type; });
}

// The name under which llama.cpp splits as these steps do.
std::string pre_tokenizer_name(const TokenizerSpec& spec) {
  std::string known;
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const std::vector<Step> steps = gguf_pre_tokenizer(name, spec.where);
    if (std::equal(steps.begin(), steps.end(), spec.pre_tokenizers.begin(), spec.pre_tokenizers.end(), same))
      return name;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw make_error(ErrorCode::kUnsupported, "GGUF has no name for how this tokenizer splits text")
      .at(spec.where)
      .hint("those of " + known + " are known");
}

bool is_byte_piece(const std::string& piece) {
  return piece.size() == 6 && piece.compare(0, 3, "<0x") == 0 && piece.back() == '>';
}

std::vector<std::int32_t> token_types(const TokenizerSpec& spec, bool byte_pieces) {
  std::vector<std::int32_t> types(spec.pieces.size(), kNormal);
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (spec.pieces[i].empty()) types[i] = kUnused;
    if (byte_pieces && is_byte_piece(spec.pieces[i])) types[i] = kByte;
  }
  for (const TokenizerSpec::AddedToken& added : spec.added)
    if (added.id >= 0 && added.id < static_cast<std::int64_t>(types.size()))
      types[static_cast<std::size_t>(added.id)] = added.special ? kControl : kUserDefined;
  return types;
}

}  // namespace

void add_tokenizer(const TokenizerSpec& spec, std::int64_t vocabulary, GgufMetadata& out) {
  if (spec.model != TokenizerSpec::Model::kBpe)
    throw make_error(ErrorCode::kUnsupported, "GGUF files are written with BPE tokenizers alone")
        .at(spec.where)
        .hint("the checkpoint formats of folders copy tokenizer.json as it is");
  const bool by_bytes = has_step(spec.pre_tokenizers, "ByteLevel");
  if (!by_bytes && !spec.byte_fallback)
    throw make_error(ErrorCode::kUnsupported, "this tokenizer works neither on bytes nor falls back to them")
        .at(spec.where)
        .hint("export compressed_tensors: GGUF has no such tokenizer");
  std::vector<std::string> pieces = spec.pieces;
  std::vector<std::int32_t> types = token_types(spec, !by_bytes);
  // An embedding may have more rows than there are tokens.
  for (auto i = static_cast<std::int64_t>(pieces.size()); i < vocabulary; ++i) {
    pieces.push_back("[PAD" + std::to_string(i) + "]");
    types.push_back(kUnused);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].empty()) pieces[i] = "[PAD" + std::to_string(i) + "]";
  out.text("tokenizer.ggml.model", by_bytes ? "gpt2" : "llama");
  out.text("tokenizer.ggml.pre", by_bytes ? pre_tokenizer_name(spec) : "default");
  out.texts("tokenizer.ggml.tokens", pieces);
  if (!by_bytes) {
    // Pairs join in the order of their results' scores: that of the merges.
    std::unordered_map<std::string, float> scores;
    for (std::size_t i = 0; i < spec.merges.size(); ++i) {
      const auto [a, b] = spec.merges[i];
      scores.insert({spec.pieces[static_cast<std::size_t>(a)] + spec.pieces[static_cast<std::size_t>(b)],
                     -static_cast<float>(i)});
    }
    std::vector<float> values;
    for (const std::string& piece : pieces) {
      const auto found = scores.find(piece);
      values.push_back(found == scores.end() ? -1e6f : found->second);
    }
    out.floats("tokenizer.ggml.scores", values);
    out.flag("tokenizer.ggml.add_space_prefix", has_step(spec.normalizers, "Prepend"));
  }
  out.ints("tokenizer.ggml.token_type", types);
  if (by_bytes) {
    std::vector<std::string> merges;
    for (const auto& [a, b] : spec.merges)
      merges.push_back(spec.pieces[static_cast<std::size_t>(a)] + " " +
                       spec.pieces[static_cast<std::size_t>(b)]);
    out.texts("tokenizer.ggml.merges", merges);
  }
  const auto token = [&](const char* key, std::int64_t id) {
    if (id >= 0) out.number(key, static_cast<std::uint32_t>(id));
  };
  token("tokenizer.ggml.bos_token_id", spec.bos);
  token("tokenizer.ggml.eos_token_id", spec.eos);
  token("tokenizer.ggml.unknown_token_id", spec.unknown);
  out.flag("tokenizer.ggml.add_bos_token",
           std::find(spec.before.begin(), spec.before.end(), spec.bos) != spec.before.end() && spec.bos >= 0);
  out.flag("tokenizer.ggml.add_eos_token",
           std::find(spec.after.begin(), spec.after.end(), spec.eos) != spec.after.end() && spec.eos >= 0);
  if (!spec.chat_template.empty()) out.text("tokenizer.chat_template", spec.chat_template);
}

}  // namespace pare
