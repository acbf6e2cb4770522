// Reading .safetensors files: a length, a JSON header, then the bytes of all tensors.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "engine/base/tensor.h"

namespace pare {

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;        // by name; they point into the mapped file
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Nothing but the header is read; a tensor whose first byte is not aligned to its elements is copied. Errors,
// all kBadFile with the tensor's name: a header that is too long (limits::kMaxSafetensorsHeaderBytes) or no
// JSON, unknown types (kUnsupported, with the known ones), shapes whose bytes are not those of its offsets or
// overflow, offsets outside the file or overlapping, bytes that belong to no tensor.
// Source: github.com/huggingface/safetensors, README, "Format".
SafetensorsFile open_safetensors(const std::string& path);
// The same of bytes in memory, which `owner` keeps alive; `what` names them in errors.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                  const std::string& what);

std::map<std::string, Tensor> read_safetensors(const std::string& path);  // the tensors alone

}  // namespace pare
