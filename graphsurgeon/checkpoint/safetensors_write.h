// Writing a .safetensors file whose tensors come in any order, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/atomic_file.h"
#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

class SafetensorsWriter {
 public:
  // Names, types and dims (`data` is not looked at) are known before: the header is written at once. Tensors
  // of wide elements come first in the file, so that each begins at a multiple of its element size: readers
  // map them. `metadata` beside {"format": "pt"}, which transformers asks for. Error kUnsupported for a type
  // that safetensors does not have.
  SafetensorsWriter(const std::string& path, const std::vector<StoredTensor>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // Each tensor once. Its type and dims are those that were announced (asserted).
  void put(const StoredTensor& tensor);

  void seal();    // every tensor was put (asserted); the bytes are on the disk
  void commit();  // under the final name

 private:
  struct Place {
    DType dtype;
    Dims dims;
    std::uint64_t offset;
    bool written;
  };
  AtomicFile file_;
  std::map<std::string, Place> places_;
};

// Bytes of the tensors alone.
std::int64_t stored_bytes(const StoredTensor& tensor);

}  // namespace pare
