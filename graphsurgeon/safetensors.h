// Reading .safetensors files: a length, a JSON header, then the bytes of all tensors.
#pragma once

#include <map>
#include <string>

#include "engine/base/tensor.h"

namespace pare {

// All tensors by name; they point into the mapped file. "__metadata__" is skipped. Errors, all kBadFile with
// the tensor's name: a header that is too long or no JSON, unknown types (kUnsupported), shapes whose bytes
// are not those of its offsets, offsets outside the file or overlapping, bytes that belong to no tensor.
// Source: github.com/huggingface/safetensors, README, "Format".
std::map<std::string, Tensor> read_safetensors(const std::string& path);

}  // namespace pare
