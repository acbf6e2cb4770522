#include "graphsurgeon/load.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/open_checkpoint.h"

namespace pare {
namespace {

ModelKind kind_of_folder(const std::string& path) {
  for (const std::string& name : list_directory(path))
    if (name == "config.json" || file_extension(name) == ".safetensors") return ModelKind::kCheckpoint;
  throw make_error(ErrorCode::kBadFile, "the folder '{}' holds no model", path)
      .at(path)
      .hint("name an .onnx file, or a checkpoint folder with config.json and *.safetensors");
}

bool looks_like_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 10) return false;
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header >= 2 && header <= bytes.size() - 8 && std::to_integer<char>(bytes[8]) == '{';
}

}  // namespace

const char* model_kind_name(ModelKind kind) {
  constexpr const char* kNames[] = {"onnx", "checkpoint", "safetensors", "gguf", "engine"};
  return kNames[static_cast<int>(kind)];
}

ModelKind model_kind(const std::string& path) {
  if (is_directory(path)) return kind_of_folder(path);
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<std::size_t>(bytes.size(), 8));
  if (start.substr(0, 4) == "GGUF") return ModelKind::kGguf;
  if (start.substr(0, 4) == "PARE") return ModelKind::kEngine;
  if (looks_like_safetensors(bytes)) return ModelKind::kSafetensors;
  return ModelKind::kOnnx;
}

std::string model_sha256(const std::string& path) {
  if (!is_directory(path)) return sha256_of_file(path);
  Sha256 hash;
  for (const std::string& name : list_directory(path))
    if (name == "config.json" || file_extension(name) == ".safetensors")
      hash.update(name + " " + sha256_of_file(join_path(path, name)) + "\n");
  return hex(hash.finish());
}

Graph load_model(const std::string& path, std::vector<std::string>* warnings) {
  const ModelKind kind = model_kind(path);
  ReadOptions options;
  options.warnings = warnings;
  if (kind == ModelKind::kOnnx) return read_onnx(path, options);
  if (kind == ModelKind::kCheckpoint || kind == ModelKind::kGguf) return build_graph(open_checkpoint(path));
  if (kind == ModelKind::kEngine)
    throw make_error(ErrorCode::kUnsupported, "'{}' is an engine, no model", path)
        .at(path)
        .hint("give the model that it was built from; pare verify ENGINE --reference MODEL compares the two");
  throw make_error(ErrorCode::kUnsupported, "'{}' is a {} model, which this build cannot open as a graph",
                   path, model_kind_name(kind))
      .at(path)
      .hint("give an ONNX file, a checkpoint folder or a GGUF file");
}

}  // namespace pare
