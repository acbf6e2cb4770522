#include <algorithm>
#include <unordered_map>

#include "engine/base/error.h"
#include "graphsurgeon/gguf/gguf_model.h"

namespace pare {
namespace {

using Step = TokenizerSpec::Step;

// Kinds of tokens in tokenizer.ggml.token_type.
constexpr std::int64_t kControl = 3, kUserDefined = 4;

Step step(const char* type) {
  Step s;
  s.type = type;
  return s;
}

Step byte_level(bool use_regex) {
  Step s = step("ByteLevel");
  s.use_regex = use_regex;
  return s;
}

Step split(const char* expression) {
  Step s = step("Split");
  s.pattern = expression;
  s.regex = true;
  s.behavior = "Isolated";
  return s;
}

}  // namespace

std::vector<Step> gguf_pre_tokenizer(const std::string& pre, const std::string& path) {
  if (pre == "gpt-2" || pre == "default" || pre.empty()) return {byte_level(true)};
  if (pre == "smollm") {
    Step digits = step("Digits");
    digits.individual = true;
    return {digits, byte_level(true)};
  }
  if (pre == "llama-bpe")
    return {
        split(
            R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
        byte_level(false)};
  if (pre == "qwen2")
    return {
        split(
            R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
        byte_level(false)};
  throw make_error(ErrorCode::kUnsupported, "the pre-tokenizer '{}' is not known", pre)
      .at(path)
      .hint("known are gpt-2, default, smollm, llama-bpe and qwen2");
}

namespace {

class Builder {
 public:
  explicit Builder(const GgufFile& file) : file_(file) { spec_.where = file.path; }

  TokenizerSpec run() {
    const std::string model = file_.text("tokenizer.ggml.model", "");
    read_pieces();
    if (model == "gpt2") {
      read_merges();
      spec_.pre_tokenizers = gguf_pre_tokenizer(file_.text("tokenizer.ggml.pre", ""), file_.path);
      spec_.decoders = {step("ByteLevel")};
    } else if (model == "llama") {
      sentence_piece();
    } else {
      throw make_error(ErrorCode::kUnsupported, "the tokenizer model '{}' is not known", model)
          .at(file_.path)
          .hint("known are gpt2 and llama");
    }
    spec_.bos = token("tokenizer.ggml.bos_token_id");
    spec_.eos = token("tokenizer.ggml.eos_token_id");
    if (file_.integer("tokenizer.ggml.add_bos_token", model == "llama" ? 1 : 0) != 0 && spec_.bos >= 0)
      spec_.before.push_back(spec_.bos);
    if (file_.integer("tokenizer.ggml.add_eos_token", 0) != 0 && spec_.eos >= 0)
      spec_.after.push_back(spec_.eos);
    spec_.chat_template = file_.text("tokenizer.chat_template", "");
    for (const auto& [key, name] :
         {std::pair("bos_token_id", "bos_token"), std::pair("eos_token_id", "eos_token"),
          std::pair("unknown_token_id", "unk_token"), std::pair("seperator_token_id", "sep_token"),
          std::pair("padding_token_id", "pad_token"), std::pair("cls_token_id", "cls_token"),
          std::pair("mask_token_id", "mask_token")})
      if (const std::int64_t id = token((std::string("tokenizer.ggml.") + key).c_str()); id >= 0)
        spec_.special_names.emplace_back(name, spec_.pieces[static_cast<std::size_t>(id)]);
    return std::move(spec_);
  }

 private:
  Error bad(const std::string& what) const {
    return make_error(ErrorCode::kBadFile, "{}", what).at(file_.path);
  }

  std::int64_t token(const char* key) const {
    const std::int64_t id = file_.integer(key, -1);
    if (id >= static_cast<std::int64_t>(spec_.pieces.size()))
      throw bad(fmt::format("'{}' is {}: no token", key, id));
    return id;
  }

  void read_pieces() {
    const GgufValue* tokens = file_.find("tokenizer.ggml.tokens");
    if (tokens == nullptr || tokens->texts.empty())
      throw make_error(ErrorCode::kBadFile, "there is no tokenizer in it: 'tokenizer.ggml.tokens' is missing")
          .at(file_.path);
    spec_.pieces = tokens->texts;
    const GgufValue* types = file_.find("tokenizer.ggml.token_type");
    if (types != nullptr && types->ints.size() != spec_.pieces.size())
      throw bad("'tokenizer.ggml.token_type' has not one number a token");
    for (std::size_t i = 0; i < spec_.pieces.size(); ++i) {
      const std::int64_t type = types == nullptr ? 1 : types->ints[i];
      ids_.emplace(spec_.pieces[i], static_cast<std::int64_t>(i));
      if (type != kControl && type != kUserDefined) continue;
      TokenizerSpec::AddedToken added;
      added.id = static_cast<std::int64_t>(i);
      added.text = spec_.pieces[i];
      added.special = type == kControl;
      added.normalized = false;
      spec_.added.push_back(std::move(added));
    }
  }

  void read_merges() {
    const GgufValue* merges = file_.find("tokenizer.ggml.merges");
    if (merges == nullptr) throw bad("'tokenizer.ggml.merges' is missing");
    for (const std::string& merge : merges->texts) {
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos) throw bad(fmt::format("the merge '{}' is not two pieces", merge));
      const auto a = ids_.find(merge.substr(0, space)), b = ids_.find(merge.substr(space + 1));
      if (a == ids_.end() || b == ids_.end())
        throw bad(fmt::format("the merge '{}' is not of two tokens", merge));
      spec_.merges.emplace_back(a->second, b->second);
    }
  }

  // SentencePiece joins the pair whose result has the highest score: a rank for each piece, in every way that
  // it can be cut into two.
  void sentence_piece() {
    const GgufValue* scores = file_.find("tokenizer.ggml.scores");
    if (scores == nullptr || scores->floats.size() != spec_.pieces.size())
      throw bad("'tokenizer.ggml.scores' has not one number a token");
    std::vector<std::size_t> order(spec_.pieces.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores->floats[a] > scores->floats[b]; });
    for (const std::size_t i : order) {
      const std::string& piece = spec_.pieces[i];
      for (std::size_t cut = 1; cut < piece.size(); ++cut) {
        if ((static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) continue;
        const auto a = ids_.find(piece.substr(0, cut)), b = ids_.find(piece.substr(cut));
        if (a != ids_.end() && b != ids_.end()) spec_.merges.emplace_back(a->second, b->second);
      }
    }
    spec_.unknown = token("tokenizer.ggml.unknown_token_id");
    spec_.byte_fallback = spec_.fuse_unknown = true;
    if (file_.integer("tokenizer.ggml.add_space_prefix", 1) != 0) {
      spec_.normalizers.push_back(step("Prepend"));
      spec_.normalizers.back().text = "\u2581";
    }
    Step spaces = step("Replace");
    spaces.pattern = " ";
    spaces.text = "\u2581";
    spec_.normalizers.push_back(spaces);
    std::swap(spaces.pattern, spaces.text);
    Step strip = step("Strip");
    strip.text = " ";
    strip.start = 1;
    spec_.decoders = {spaces, step("ByteFallback"), step("Fuse"), strip};
  }

  const GgufFile& file_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace

TokenizerSpec gguf_tokenizer(const GgufFile& file) { return Builder(file).run(); }

}  // namespace pare
