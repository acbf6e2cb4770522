// How each tool writes what it quantized: the readers behind quantization_config.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/json_fwd.h"
#include "graphsurgeon/checkpoint/quantization_config.h"

namespace pare {

// An object of the file; null counts as absent. Errors kBadFile name the key and the file.
class QuantizationSection {
 public:
  QuantizationSection(const Json& json, const std::string& where);

  const Json* find(const char* key) const;
  // -1 and more; a value beyond 2^24 is none that any tool writes.
  std::int64_t integer(const char* key, std::int64_t otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  std::vector<std::string> texts(const char* key) const;
  QuantizationSection inner(const Json& json) const { return {json, where_}; }
  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }

  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const;  // kUnsupported

 private:
  const Json& json_;
  const std::string& where_;
};

void read_compressed_tensors(const QuantizationSection& at, QuantizationConfig& out);
void read_awq(const QuantizationSection& at, QuantizationConfig& out);
void read_gptq(const QuantizationSection& at, QuantizationConfig& out);
void read_fp8(const QuantizationSection& at, QuantizationConfig& out);
void read_model_optimizer(const QuantizationSection& at, QuantizationConfig& out);

// What to do about a file that contradicts itself.
extern const char* const kQuantizationHint;

}  // namespace pare
