// Tensor payloads in files beside the model ("external data").
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "graphsurgeon/onnx/tensor_proto.h"

namespace pare {

struct ExternalBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// The `needed` bytes of a tensor stored externally, mapped once a file. Keys location, offset, length are
// obeyed; checksum is put into source.checksums, unknown keys are ignored. Error kBadFile as read_tensor
// says. Source: onnx/docs/ExternalData.md.
ExternalBytes open_external(const onnx::TensorProto& proto, TensorSource& source, std::int64_t needed);

// Reads every file that tensors of `source` point to from end to end. Error kBadFile when its SHA-1 is not
// the one that its tensors name, or its SHA-256 not the one in `sha256` (by location).
void verify_external(const TensorSource& source, const std::map<std::string, std::string>& sha256);

// Why a location may not be opened, "" when it may: it must be a relative POSIX path without "..".
std::string why_bad_location(const std::string& location);

}  // namespace pare
