#include <algorithm>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/base/reader_hints.h"
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

// Names of pre-tokenizers that split alike; the expressions are those of the models' own tokenizer.json.
enum class Words { kGpt2, kDigits, kLlama3, kQwen2, kTekken, kGpt4o };
struct PreTokenizer {
  const char* name;
  Words words;
};
constexpr PreTokenizer kPreTokenizers[] = {{"", Words::kGpt2},
                                           {"default", Words::kGpt2},
                                           {"gpt-2", Words::kGpt2},
                                           {"phi-2", Words::kGpt2},
                                           {"mpt", Words::kGpt2},
                                           {"olmo", Words::kGpt2},
                                           {"jais", Words::kGpt2},
                                           {"smollm", Words::kDigits},
                                           {"starcoder", Words::kDigits},
                                           {"refact", Words::kDigits},
                                           {"codeshell", Words::kDigits},
                                           {"command-r", Words::kDigits},
                                           {"exaone", Words::kDigits},
                                           {"llama-bpe", Words::kLlama3},
                                           {"llama3", Words::kLlama3},
                                           {"llama-v3", Words::kLlama3},
                                           {"falcon3", Words::kLlama3},
                                           {"dbrx", Words::kLlama3},
                                           {"smaug-bpe", Words::kLlama3},
                                           {"qwen2", Words::kQwen2},
                                           {"deepseek-r1-qwen", Words::kQwen2},
                                           {"stablelm2", Words::kQwen2},
                                           {"megrez", Words::kQwen2},
                                           {"tekken", Words::kTekken},
                                           {"gpt-4o", Words::kGpt4o}};

}  // namespace

std::vector<Step> gguf_pre_tokenizer(const std::string& pre, const std::string& path) {
  const PreTokenizer* found = nullptr;
  std::string known;
  for (const PreTokenizer& one : kPreTokenizers) {
    if (pre == one.name) found = &one;
    if (one.name[0] != '\0') known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  if (found == nullptr)
    throw make_error(ErrorCode::kUnsupported, "the pre-tokenizer '{}' is not known", pre)
        .at(path)
        .hint("known are " + known);
  switch (found->words) {
    case Words::kGpt2:
      return {byte_level(true)};
    case Words::kDigits: {
      Step digits = step("Digits");
      digits.individual = true;
      return {digits, byte_level(true)};
    }
    case Words::kLlama3:
      return {
          split(
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
          byte_level(false)};
    case Words::kQwen2:
      return {
          split(
              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
          byte_level(false)};
    case Words::kTekken:
      return {
          split(
              R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
          byte_level(false)};
    case Words::kGpt4o:
      break;
  }
  return {
      split(
          R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      byte_level(false)};
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
      const std::string pre = file_.text("tokenizer.ggml.pre", "");
      spec_.pre_tokenizers = gguf_pre_tokenizer(pre, file_.path);
      // What these models' own tokenizers have beside, and the file does not say.
      for (const char* name : {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})
        if (pre == name) spec_.ignore_merges = true;
      if (pre == "qwen2" || pre == "deepseek-r1-qwen") spec_.normalizers = {step("NFC")};
      spec_.decoders = {step("ByteLevel")};
    } else if (model == "llama") {
      sentence_piece();
    } else if (model == "bert") {
      word_piece();
    } else if (model == "t5") {
      unigram();
    } else {
      throw make_error(ErrorCode::kUnsupported, "the tokenizer model '{}' is not known", model)
          .at(file_.path)
          .hint("known are gpt2, llama, bert and t5");
    }
    spec_.bos = token("tokenizer.ggml.bos_token_id");
    spec_.eos = token("tokenizer.ggml.eos_token_id");
    // BERT's [CLS] and [SEP] go by names of their own.
    std::int64_t front = spec_.bos, back = spec_.eos;
    if (model == "bert") {
      if (const std::int64_t id = token("tokenizer.ggml.cls_token_id"); id >= 0) front = id;
      if (const std::int64_t id = token("tokenizer.ggml.seperator_token_id"); id >= 0) back = id;
    }
    if (file_.integer("tokenizer.ggml.add_bos_token", model == "llama" || model == "bert" ? 1 : 0) != 0 &&
        front >= 0)
      spec_.before.push_back(front);
    if (file_.integer("tokenizer.ggml.add_eos_token", model == "bert" || model == "t5" ? 1 : 0) != 0 &&
        back >= 0)
      spec_.after.push_back(back);
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

  // Begins of words are marked in the file, as SentencePiece does it, where WordPiece marks what goes on.
  void word_piece() {
    spec_.model = TokenizerSpec::Model::kWordPiece;
    spec_.word_prefix = "##";
    const std::string mark = "\u2581";
    for (std::string& piece : spec_.pieces) {
      if (piece.empty() || (piece.front() == '[' && piece.back() == ']')) continue;
      piece = piece.rfind(mark, 0) == 0 ? piece.substr(mark.size()) : "##" + piece;
    }
    spec_.unknown = token("tokenizer.ggml.unknown_token_id");
    if (spec_.unknown < 0) {
      const auto at = std::find(spec_.pieces.begin(), spec_.pieces.end(), "[UNK]");
      if (at == spec_.pieces.end()) throw bad("'tokenizer.ggml.unknown_token_id' is missing");
      spec_.unknown = at - spec_.pieces.begin();
    }
    spec_.normalizers = {step("BertNormalizer")};
    spec_.pre_tokenizers = {step("BertPreTokenizer")};
    Step decoder = step("WordPiece");
    decoder.text = "##";
    spec_.decoders = {decoder};
  }

  void unigram() {
    if (file_.find("tokenizer.ggml.precompiled_charsmap") != nullptr)
      throw make_error(ErrorCode::kUnsupported, "the normalizer 'precompiled_charsmap' is not known")
          .at(file_.path);
    spec_.model = TokenizerSpec::Model::kUnigram;
    const GgufValue* scores = file_.find("tokenizer.ggml.scores");
    if (scores == nullptr || scores->floats.size() != spec_.pieces.size())
      throw bad("'tokenizer.ggml.scores' has not one number a token");
    spec_.scores = scores->floats;
    spec_.unknown = token("tokenizer.ggml.unknown_token_id");
    spec_.fuse_unknown = true;
    if (file_.integer("tokenizer.ggml.remove_extra_whitespaces", 0) != 0) {
      Step spaces = step("Replace");
      spaces.pattern = " {2,}";
      spaces.regex = true;
      spaces.text = " ";
      spec_.normalizers = {spaces};
    }
    Step words = step("Metaspace");
    words.text = "\u2581";
    words.behavior = file_.integer("tokenizer.ggml.add_space_prefix", 1) != 0 ? "always" : "never";
    spec_.pre_tokenizers = spec_.decoders = {words};
  }

  const GgufFile& file_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace

TokenizerSpec gguf_tokenizer(const GgufFile& file) {
  return with_hints(kGgufHints, [&] { return Builder(file).run(); });
}

}  // namespace pare
