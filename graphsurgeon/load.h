// Opens a model, whatever it is: by what stands in the file, not by its name.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

enum class ModelKind { kOnnx, kCheckpoint, kSafetensors, kGguf, kEngine };

const char* model_kind_name(ModelKind kind);  // "onnx", "checkpoint", "safetensors", "gguf", "engine"

// A folder with config.json or *.safetensors is a checkpoint; files are told by their first bytes, and what
// has no mark of its own is taken for ONNX. Error kBadFile when there is nothing at `path`.
ModelKind model_kind(const std::string& path);

// `warnings` gets what was left out, in words; it may be null.
// Errors: as read_onnx; kUnsupported for the kinds that this build does not open as a graph.
Graph load_model(const std::string& path, std::vector<std::string>* warnings = nullptr);

// SHA-256 of the file; of a checkpoint folder, of the names and SHA-256 of config.json and the weights,
// sorted.
std::string model_sha256(const std::string& path);

}  // namespace pare
