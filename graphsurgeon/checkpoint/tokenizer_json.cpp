#include "graphsurgeon/checkpoint/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"

namespace pare {
namespace {

constexpr const char* kDamaged = "download tokenizer.json again, or save it again with transformers";

using Step = TokenizerSpec::Step;
using Ids = std::unordered_map<std::string, std::int64_t>;

bool flag(const Json& json, const char* key, bool otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}
std::string text(const Json& json, const char* key, const std::string& otherwise = "") {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : otherwise;
}
std::int64_t whole(const Json& json, const char* key, std::int64_t otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

class Reader {
 public:
  Reader(const Json& json, const std::string& where) : json_(json) { spec_.where = where; }

  TokenizerSpec read() {
    if (!json_.is_object()) throw bad("it is no JSON object");
    read_model();
    read_added();
    steps("normalizer", "normalizers", spec_.normalizers, &Reader::normalizer);
    steps("pre_tokenizer", "pretokenizers", spec_.pre_tokenizers, &Reader::pre_tokenizer);
    steps("decoder", "decoders", spec_.decoders, &Reader::decoder);
    const auto post = json_.find("post_processor");
    if (post != json_.end() && !post->is_null()) read_post(*post);
    return std::move(spec_);
  }

 private:
  Error bad(const std::string& what) const {
    return make_error(ErrorCode::kBadFile, "{}", what).at(spec_.where).hint(kDamaged);
  }
  Error unknown(const char* part, const std::string& name, const char* known) const {
    return make_error(ErrorCode::kUnsupported, "the {} '{}' is not known", part, name)
        .at(spec_.where)
        .hint(std::string("known are ") + known);
  }

  // --- the model

  void set_piece(std::int64_t id, const std::string& piece) {
    if (id < 0 || id >= most_) throw bad(fmt::format("the id {} of '{}' is out of range", id, piece));
    const auto at = static_cast<std::size_t>(id);
    if (spec_.pieces.size() <= at) spec_.pieces.resize(at + 1);
    if (!spec_.pieces[at].empty() && spec_.pieces[at] != piece)
      throw bad(fmt::format("the id {} is that of '{}' and of '{}'", id, spec_.pieces[at], piece));
    spec_.pieces[at] = piece;
    ids_[piece] = id;
  }

  void read_model() {
    const Json& model = json_object(json_, "model", spec_.where);
    std::string type = text(model, "type");
    if (type.empty()) type = model.contains("merges") ? "BPE" : "WordPiece";  // older files leave it out
    if (type == "Unigram") return read_unigram(model);
    if (type != "BPE" && type != "WordPiece") throw unknown("model", type, "BPE, WordPiece and Unigram");
    const Json& vocab = json_object(model, "vocab", spec_.where);
    check_limit(vocab.size(), kMostPieces, "the number of tokens");
    most_ = kRoom + 4 * static_cast<std::int64_t>(vocab.size());
    for (const auto& [piece, id] : vocab.items()) {
      if (!id.is_number_integer()) throw bad(fmt::format("the id of '{}' is no number", piece));
      set_piece(id.get<std::int64_t>(), piece);
    }
    const std::string unk = text(model, "unk_token", type == "WordPiece" ? "[UNK]" : "");
    if (!unk.empty()) {
      const auto found = ids_.find(unk);
      if (found == ids_.end() && type == "WordPiece")
        throw bad(fmt::format("unk_token '{}' is no token", unk));
      if (found != ids_.end()) spec_.unknown = found->second;
    }
    spec_.word_prefix = text(model, "continuing_subword_prefix", type == "WordPiece" ? "##" : "");
    if (type == "WordPiece") {
      spec_.model = TokenizerSpec::Model::kWordPiece;
      spec_.longest_word = whole(model, "max_input_chars_per_word", 100);
      return;
    }
    spec_.word_suffix = text(model, "end_of_word_suffix");
    spec_.byte_fallback = flag(model, "byte_fallback", false);
    spec_.fuse_unknown = flag(model, "fuse_unk", false);
    spec_.ignore_merges = flag(model, "ignore_merges", false);
    if (const auto dropout = model.find("dropout");
        dropout != model.end() && dropout->is_number() && dropout->get<double>() != 0)
      throw make_error(ErrorCode::kUnsupported, "dropout makes tokens random")
          .at(spec_.where)
          .hint("set dropout to null in tokenizer.json: it is for training");
    for (const Json& merge : json_array(model, "merges", spec_.where)) read_merge(merge);
  }

  // ["a", "b"], or "a b" in older files.
  void read_merge(const Json& merge) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const std::string both = merge.get<std::string>();
      const std::size_t space = both.find(' ');
      if (space == std::string::npos) throw bad(fmt::format("the merge '{}' is not two pieces", both));
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else {
      throw bad("a merge is not two pieces");
    }
    const auto a = ids_.find(left), b = ids_.find(right);
    if (a == ids_.end() || b == ids_.end())
      throw bad(fmt::format("the merge of '{}' and '{}': '{}' is no token", left, right,
                            a == ids_.end() ? left : right));
    const std::string& prefix = spec_.word_prefix;
    const std::string tail =
        !prefix.empty() && right.rfind(prefix, 0) == 0 ? right.substr(prefix.size()) : right;
    if (ids_.find(left + tail) == ids_.end())
      throw bad(fmt::format("the merge of '{}' and '{}' makes no token", left, right));
    spec_.merges.emplace_back(a->second, b->second);
  }

  void read_unigram(const Json& model) {
    spec_.model = TokenizerSpec::Model::kUnigram;
    const Json& vocab = json_array(model, "vocab", spec_.where);
    check_limit(vocab.size(), kMostPieces, "the number of tokens");
    most_ = kRoom + 4 * static_cast<std::int64_t>(vocab.size());
    for (const Json& entry : vocab) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        throw bad("an entry of the vocabulary is not a piece and its score");
      spec_.scores.push_back(entry[1].get<double>());
      set_piece(static_cast<std::int64_t>(spec_.scores.size()) - 1, entry[0].get<std::string>());
    }
    spec_.unknown = std::max<std::int64_t>(-1, whole(model, "unk_id", -1));
    if (spec_.unknown >= static_cast<std::int64_t>(spec_.pieces.size())) throw bad("unk_id is no token");
    spec_.byte_fallback = flag(model, "byte_fallback", false);
    spec_.fuse_unknown = true;
  }

  void read_added() {
    const auto list = json_.find("added_tokens");
    if (list == json_.end() || list->is_null()) return;
    if (!list->is_array()) throw bad("added_tokens is no list");
    for (const Json& entry : *list) {
      if (!entry.is_object()) throw bad("an added token is no object");
      TokenizerSpec::AddedToken token;
      token.text = json_string(entry, "content", spec_.where);
      token.id = json_int(entry, "id", spec_.where);
      token.special = flag(entry, "special", false);
      token.single_word = flag(entry, "single_word", false);
      token.lstrip = flag(entry, "lstrip", false);
      token.rstrip = flag(entry, "rstrip", false);
      token.normalized = flag(entry, "normalized", !token.special);
      set_piece(token.id, token.text);
      spec_.added.push_back(token);
    }
  }

  // --- steps

  using ReadStep = void (Reader::*)(const Json&, const std::string&, Step&);

  void steps(const char* part, const char* list, std::vector<Step>& out, ReadStep one) {
    const auto found = json_.find(part);
    if (found != json_.end() && !found->is_null()) add_step(*found, list, out, one);
  }

  void add_step(const Json& json, const char* list, std::vector<Step>& out, ReadStep one) {
    const std::string type = json_string(json, "type", spec_.where);
    if (type == "Sequence") {
      for (const Json& inner : json_array(json, list, spec_.where)) add_step(inner, list, out, one);
      return;
    }
    Step step;
    step.type = type;
    (this->*one)(json, type, step);
    out.push_back(std::move(step));
  }

  void pattern(const Json& json, Step& step) {
    const Json& p = json_member(json, "pattern", spec_.where);
    if (p.is_string()) {
      step.pattern = p.get<std::string>();
      return;
    }
    if (!p.is_object() || p.size() != 1 || !p.begin()->is_string())
      throw bad("a pattern is neither String nor Regex");
    step.regex = p.contains("Regex");
    if (!step.regex && !p.contains("String")) throw bad("a pattern is neither String nor Regex");
    step.pattern = p.begin()->get<std::string>();
  }

  void normalizer(const Json& json, const std::string& type, Step& step) {
    if (type == "Replace") {
      pattern(json, step);
      step.text = json_string(json, "content", spec_.where);
    } else if (type == "Prepend") {
      step.text = json_string(json, "prepend", spec_.where);
    } else if (type == "Strip") {
      step.left = flag(json, "strip_left", true);
      step.right = flag(json, "strip_right", true);
    } else if (type == "BertNormalizer") {
      step.clean = flag(json, "clean_text", true);
      step.chinese = flag(json, "handle_chinese_chars", true);
      step.lower = flag(json, "lowercase", true);
      step.accents = flag(json, "strip_accents", step.lower);
    } else if (type != "NFC" && type != "NFD" && type != "NFKC" && type != "NFKD" && type != "Lowercase" &&
               type != "StripAccents") {
      throw unknown("normalizer", type,
                    "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend and "
                    "BertNormalizer");
    }
  }

  void pre_tokenizer(const Json& json, const std::string& type, Step& step) {
    if (type == "ByteLevel") {
      step.add_prefix_space = flag(json, "add_prefix_space", true);
      step.use_regex = flag(json, "use_regex", true);
    } else if (type == "Split") {
      pattern(json, step);
      step.behavior = behavior(json);
      step.invert = flag(json, "invert", false);
    } else if (type == "Metaspace") {
      step.text = text(json, "replacement", "\u2581");
      step.behavior = text(json, "prepend_scheme", flag(json, "add_prefix_space", true) ? "always" : "never");
      step.split = flag(json, "split", true);
    } else if (type == "Digits") {
      step.individual = flag(json, "individual_digits", false);
    } else if (type == "Punctuation") {
      step.behavior = json.contains("behavior") ? behavior(json) : "Isolated";
    } else if (type == "CharDelimiterSplit") {
      step.pattern = json_string(json, "delimiter", spec_.where);
    } else if (type != "Whitespace" && type != "WhitespaceSplit" && type != "BertPreTokenizer") {
      throw unknown("pre-tokenizer", type,
                    "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
                    "WhitespaceSplit, BertPreTokenizer and CharDelimiterSplit");
    }
  }

  std::string behavior(const Json& json) const {
    const std::string name = json_string(json, "behavior", spec_.where);
    for (const char* known : {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"})
      if (name == known) return name;
    throw unknown("behavior", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
  }

  void decoder(const Json& json, const std::string& type, Step& step) {
    if (type == "Replace") {
      pattern(json, step);
      step.text = json_string(json, "content", spec_.where);
    } else if (type == "Strip") {
      step.text = json_string(json, "content", spec_.where);
      step.start = whole(json, "start", 0);
      step.stop = whole(json, "stop", 0);
    } else if (type == "Metaspace") {
      step.text = text(json, "replacement", "\u2581");
      step.behavior = text(json, "prepend_scheme", flag(json, "add_prefix_space", true) ? "always" : "never");
    } else if (type == "WordPiece") {
      step.text = text(json, "prefix", "##");
      step.cleanup = flag(json, "cleanup", true);
    } else if (type == "BPEDecoder") {
      step.text = text(json, "suffix", "</w>");
    } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
      throw unknown("decoder", type,
                    "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece and BPEDecoder");
    }
  }

  // --- special tokens around a text

  std::int64_t checked(std::int64_t id) const {
    if (id < 0 || id >= static_cast<std::int64_t>(spec_.pieces.size()))
      throw bad(fmt::format("the special token {} is none of the {} tokens", id, spec_.pieces.size()));
    return id;
  }

  std::int64_t special(const Json& pair) const {
    if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer())
      throw bad("a special token is no [text, id]");
    return checked(pair[1].get<std::int64_t>());
  }

  void read_post(const Json& json) {
    const std::string type = json_string(json, "type", spec_.where);
    if (type == "Sequence") {
      for (const Json& inner : json_array(json, "processors", spec_.where)) read_post(inner);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      spec_.before.push_back(special(json_member(json, "cls", spec_.where)));
      spec_.after.push_back(special(json_member(json, "sep", spec_.where)));
    } else if (type == "TemplateProcessing") {
      bool behind = false;
      for (const Json& part : json_array(json, "single", spec_.where)) {
        if (part.contains("Sequence")) {
          behind = true;
          continue;
        }
        const std::string name =
            json_string(json_object(part, "SpecialToken", spec_.where), "id", spec_.where);
        const Json& tokens = json_object(json, "special_tokens", spec_.where);
        for (const Json& id :
             json_array(json_object(tokens, name.c_str(), spec_.where), "ids", spec_.where)) {
          if (!id.is_number_integer()) throw bad("a special token's id is no number");
          (behind ? spec_.after : spec_.before).push_back(checked(id.get<std::int64_t>()));
        }
      }
    } else if (type != "ByteLevel") {
      throw unknown("post-processor", type,
                    "TemplateProcessing, BertProcessing, RobertaProcessing and ByteLevel");
    }
  }

  static constexpr std::int64_t kMostPieces = 8'000'000, kRoom = 1 << 16;
  std::int64_t most_ = kRoom;  // ids are below: few numbers are left out, or a small file would fill memory
  const Json& json_;
  TokenizerSpec spec_;
  Ids ids_;
};

// "<s>" or {"content": "<s>", ...}; "" when it is neither.
std::string token_text(const Json& value) {
  return value.is_object() ? text(value, "content") : value.is_string() ? value.get<std::string>() : "";
}

// -1 when it is none of the pieces.
std::int64_t named_token(const Json& config, const char* key, const TokenizerSpec& spec) {
  const auto found = config.find(key);
  if (found == config.end()) return -1;
  const std::string name = token_text(*found);
  const auto at = std::find(spec.pieces.begin(), spec.pieces.end(), name);
  return name.empty() || at == spec.pieces.end() ? -1 : at - spec.pieces.begin();
}

// Every "..._token" of a config that has a text, unless it is known already.
void add_special_names(const Json& config, TokenizerSpec& spec) {
  for (const auto& [key, value] : config.items()) {
    const std::string name = key, token = token_text(value);
    if (token.empty() || name.size() < 6 || name.compare(name.size() - 6, 6, "_token") != 0) continue;
    const auto same = [&](const auto& known) { return known.first == name; };
    if (std::none_of(spec.special_names.begin(), spec.special_names.end(), same))
      spec.special_names.emplace_back(name, token);
  }
}

// A text, or a list of {"name", "template"}, of which that named "default" counts.
std::string chat_template(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end() || !found->is_array()) return text(config, "chat_template");
  for (const Json& one : *found)
    if (one.is_object() && text(one, "name") == "default") return text(one, "template");
  return "";
}

}  // namespace

TokenizerSpec parse_tokenizer(std::string_view json, const std::string& where) {
  return Reader(parse_json(json, where), where).read();
}

TokenizerSpec read_tokenizer(const std::string& folder) {
  const std::string path = join_path(folder, "tokenizer.json");
  if (!is_regular_file(path))
    throw make_error(ErrorCode::kBadFile, "there is no tokenizer.json, which says how text becomes tokens")
        .at(folder)
        .hint("download it with the weights, or save the tokenizer with a current transformers");
  TokenizerSpec spec = parse_tokenizer(read_text_file(path, limits::kMaxJsonBytes), path);
  const std::string config_path = join_path(folder, "tokenizer_config.json");
  if (is_regular_file(config_path)) {
    const Json config = read_json_file(config_path);
    if (config.is_object()) {
      spec.bos = named_token(config, "bos_token", spec);
      spec.eos = named_token(config, "eos_token", spec);
      spec.chat_template = chat_template(config);
      spec.chat_template_where = config_path;
      add_special_names(config, spec);
    }
  }
  const std::string map_path = join_path(folder, "special_tokens_map.json");
  if (is_regular_file(map_path)) {
    const Json map = read_json_file(map_path);
    if (map.is_object()) add_special_names(map, spec);
  }
  const std::string jinja = join_path(folder, "chat_template.jinja");
  if (is_regular_file(jinja)) {
    spec.chat_template = read_text_file(jinja, limits::kMaxRecipeBytes);
    spec.chat_template_where = jinja;
  }
  return spec;
}

}  // namespace pare
