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
// obeyed; checksum and unknown keys are ignored. Error kBadFile as read_tensor says.
// Source: onnx/docs/ExternalData.md.
ExternalBytes open_external(const onnx::TensorProto& proto, TensorSource& source, std::int64_t needed);

// Why a location may not be opened, "" when it may: it must be a relative POSIX path without "..".
std::string why_bad_location(const std::string& location);

}  // namespace pare
