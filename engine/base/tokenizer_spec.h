// A tokenizer as data: what a tokenizer.json, or the metadata of a GGUF file, says. graphsurgeon reads it
// from files, datasets/text/tokenizer.h runs it. Names and meaning of the steps are those of the tokenizers
// library (github.com/huggingface/tokenizers).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pare {

struct TokenizerSpec {
  // One step of a normalizer, pre-tokenizer or decoder; sequences are flattened. What a field means depends
  // on `type`; those that a type does not have keep their defaults.
  struct Step {
    std::string type;      // "NFC", "Replace", "ByteLevel", "Split", "Metaspace", ...
    std::string pattern;   // Replace, Split: what is looked for
    bool regex = false;    // `pattern` is a regular expression
    std::string text;      // Replace: content; Prepend; Metaspace: replacement; WordPiece: prefix
    std::string behavior;  // Split, Punctuation: Removed, Isolated, MergedWithPrevious, ...; Metaspace:
                           // prepend_scheme
    bool invert = false;   // Split
    bool add_prefix_space = false, use_regex = true;  // ByteLevel
    bool split = true;                                // Metaspace
    bool individual = false;                          // Digits
    bool left = true, right = true;                   // Strip (normalizer)
    std::int64_t start = 0, stop = 0;                 // Strip (decoder): how many at either end
    bool clean = true, chinese = true, lower = true, accents = true;  // BertNormalizer; accents: stripped
    bool cleanup = true;                                              // decoder WordPiece
  };
  struct AddedToken {
    std::int64_t id = 0;
    std::string text;
    bool special = false, single_word = false, lstrip = false, rstrip = false, normalized = true;
  };
  enum class Model { kBpe, kWordPiece, kUnigram };

  std::string where;  // the file, for messages
  Model model = Model::kBpe;
  std::vector<std::string> pieces;                            // by id; "" where there is none
  std::vector<std::pair<std::int64_t, std::int64_t>> merges;  // BPE, the first first
  std::vector<double> scores;                                 // Unigram, by id
  std::int64_t unknown = -1;                                  // id, -1: none
  bool byte_fallback = false, fuse_unknown = false, ignore_merges = false;
  std::string word_prefix, word_suffix;  // BPE, WordPiece: continuing_subword_prefix, end_of_word_suffix
  std::int64_t longest_word = 100;       // WordPiece: characters
  std::vector<AddedToken> added;
  std::vector<Step> normalizers, pre_tokenizers, decoders;
  std::vector<std::int64_t> before, after;  // special tokens around one text
  std::int64_t bos = -1, eos = -1;          // -1: not said
  // Special tokens by the names that templates know them by: ("bos_token", "<s>").
  std::vector<std::pair<std::string, std::string>> special_names;
  std::string chat_template;        // "" when there is none
  std::string chat_template_where;  // its file, for messages; "": the tokenizer's
};

}  // namespace pare
