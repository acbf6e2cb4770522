// TensorProto <-> Tensor.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/mapped_file.h"
#include "engine/base/tensor.h"
#include "graphsurgeon/onnx/proto.h"

namespace pare {

// Where the bytes of a model's tensors are.
struct TensorSource {
  std::vector<std::span<const std::byte>> payloads;  // of strip_payloads
  std::shared_ptr<const void> owner;                 // keeps the payloads alive
  std::string directory;                             // for external data; "" when there is no folder
  std::map<std::string, MappedFile> external;        // files mapped so far, by location
  std::map<std::string, std::string> checksums;      // the SHA-1 that tensors name, by location
  bool unread = false;  // large floats are views whatever their alignment: nobody looks at their values
};

// A view into the file where the data's address suits its type, else an aligned copy. Bytes behind the
// tensor's own are ignored; booleans become 0 or 1.
// Error kBadFile: negative or overflowing dims, too little data, data in the wrong or in two fields, external
// data that is missing, cut short, or not a plain file inside the model's folder (absolute paths, "..",
// symbolic and hard links are refused). kUnsupported: types that the IR has no name for.
Tensor read_tensor(const onnx::TensorProto& proto, TensorSource& source);

// The type as the IR has it. Error kBadFile for codes that ONNX does not define.
DType dtype_of(std::int32_t onnx_type);

// dims and type.
void write_tensor_head(const Tensor& tensor, onnx::TensorProto& proto);
// raw_data; string_data for strings. Same tensor, same bytes.
void write_payload(const Tensor& tensor, onnx::TensorProto& proto);
// Both.
void write_tensor(const Tensor& tensor, onnx::TensorProto& proto);

}  // namespace pare
