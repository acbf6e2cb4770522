// Keys and values of a GGUF file that is written, as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/tokenizer_spec.h"

namespace pare {

class GgufMetadata {
 public:
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, std::uint32_t value);
  void number(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void ints(std::string_view key, const std::vector<std::int32_t>& values);
  void floats(std::string_view key, const std::vector<float>& values);

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

  // Pieces of the file's syntax, also for what stands behind the keys.
  template <typename T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_text(std::string& to, std::string_view text);

 private:
  void key(std::string_view name, std::uint32_t kind);

  std::string bytes_;
  std::uint64_t count_ = 0;
};

// tokenizer.ggml.* of a tokenizer; tokens are filled up to `vocabulary`. Error kUnsupported for one that GGUF
// has no name for.
void add_tokenizer(const TokenizerSpec& spec, std::int64_t vocabulary, GgufMetadata& out);

}  // namespace pare
