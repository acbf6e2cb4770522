// The files of weights beside a model that is being written ("external data").
//
// Payloads of at least `threshold` bytes leave the model; each begins at a multiple of 4,096, as
// onnx/docs/ExternalData.md asks for mapping. One memory is stored once. Each tensor's `checksum` is the
// SHA-1 of its file, as ONNX defines it; metadata_props "pare.sha256.LOCATION" has the file's SHA-256.
//
// Files are written to temporary names and renamed behind each other, the model last. Where a file of weights
// is replaced, the old model goes first: a process killed in between leaves no model, never one with
// another's weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/base/atomic_file.h"
#include "engine/base/tensor.h"
#include "graphsurgeon/onnx/external_data_options.h"
#include "graphsurgeon/onnx/proto.h"

namespace pare {

inline constexpr const char* kSha256Key = "pare.sha256.";  // then the location
inline constexpr std::int64_t kExternalAlignment = 4096;

class ExternalStore {
 public:
  // Error kUsage: a location that is no plain file name, or the model's own.
  ExternalStore(const std::string& model_path, const ExternalOptions& options);
  ~ExternalStore();

  // True when the payload goes out: `proto` (with name, type and dims) then points to it. The tensor is kept
  // alive, not copied.
  bool take(const Tensor& tensor, onnx::TensorProto& proto);

  bool empty() const { return files_.empty(); }
  std::int64_t bytes() const;  // of all files
  std::int64_t tensors() const { return tensors_; }
  std::vector<std::string> locations() const;

  // Writes the files to temporary names and enters checksums into the model. Errors of AtomicFile.
  void write(onnx::ModelProto& model);
  // Renames the files, then commits `model`, which has been written.
  void commit(AtomicFile& model);

 private:
  struct Piece {
    Tensor tensor;
    std::int64_t offset;
  };
  struct File {
    std::string location;
    std::vector<Piece> pieces;
    std::int64_t size = 0;
    std::string sha1, sha256;
    std::unique_ptr<AtomicFile> written;
  };
  struct Place {
    std::size_t file;
    std::int64_t offset;
  };
  std::size_t file_for(const std::string& tensor_name);
  void write_file(File& file);

  std::string folder_, model_name_;
  ExternalOptions options_;
  std::vector<File> files_;
  std::unordered_set<std::string> locations_;
  std::map<std::pair<const void*, std::int64_t>, Place> known_;
  std::int64_t tensors_ = 0;
};

}  // namespace pare
