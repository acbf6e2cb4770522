// Files of one line of JSON and tensors behind it, each at a multiple of 64 bytes from the end of the line:
// what is kept of layers, of graphs and of blocks between processes. Little-endian; tensors are used where
// they lie in the mapped file.
#pragma once

#include <cstddef>
#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/json_fwd.h"
#include "engine/base/mapped_file.h"
#include "engine/base/tensor.h"

namespace pare {

// The next offset of a tensor.
std::size_t next_offset(std::size_t offset);
// The text as the first line, filled up with spaces.
std::string header_line(std::string text);
// Appends a tensor; `offset` is where the last one ended and where this one ends.
void append_tensor(AtomicFile& file, const Tensor& tensor, std::size_t& offset);

// Error kBadFile for a file without such a line.
struct TensorFile {
  explicit TensorFile(const std::string& path, Json& header);
  // By {"dtype", "dims", "offset"}. Error kBadFile for an unknown type and for a tensor beyond the file.
  Tensor at(const Json& json) const;

  MappedFile file;
  std::size_t begin = 0;  // of the first tensor
};
// Element type and size of such a record. Error kBadFile for an unknown type and for texts.
DType stored_type(const Json& json, const std::string& path);
Dims stored_dims(const Json& json, const std::string& path);

}  // namespace pare
