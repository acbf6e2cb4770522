// A GGUF file: metadata, then names and places of tensors, then their bytes.
// Source: github.com/ggml-org/ggml, docs/gguf.md; versions 2 and 3, little-endian.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/reader_hints.h"
#include "engine/base/tensor.h"
#include "engine/numeric/ggml_blocks.h"

namespace pare {

// What a user can do about a file that these readers refuse.
inline constexpr ReaderHints kGgufHints = {
    "the file is cut short, damaged, or of a tool that writes GGUF otherwise: download it again, or make it "
    "with "
    "convert_hf_to_gguf.py of llama.cpp",
    "give the safetensors checkpoint that the file was made from"};

// One value, or an array of one kind: whichever list is not empty (an empty array has none).
struct GgufValue {
  bool is_array = false;
  std::vector<std::int64_t> ints;  // integers and bools; uint64 beyond int64 is refused
  std::vector<double> floats;
  std::vector<std::string> texts;
};

struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;
  Dims dims;  // outermost first (the file has them the other way round)
  std::span<const std::byte> bytes;
};

struct GgufFile {
  std::string path;
  int version = 0;
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;  // in the order of the file
  std::shared_ptr<const void> owner;

  // A member by its key. Error kBadFile when it is there and of another kind.
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  double number(const std::string& key, double otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  const GgufValue* find(const std::string& key) const;
};

// Errors, all kBadFile with the field or tensor: another mark or version (kUnsupported), lengths and counts
// beyond the file, a key or tensor twice, types that are not known (kUnsupported, with the known ones), rows
// that are no whole blocks, bytes outside of the file, unaligned, or of two tensors.
GgufFile open_gguf(const std::string& path);
GgufFile parse_gguf(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                    const std::string& path);

// The elements as they are stored; of block formats their values in float32.
Tensor gguf_tensor(const GgufFile& file, const GgufTensor& tensor);

}  // namespace pare
