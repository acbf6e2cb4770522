// What stands around the graph of an ONNX file.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pare {

// Graph::metadata has the opset of each other domain under this key and the domain's name. The writer makes
// opset_import of it; no file has such a key.
inline constexpr const char* kOpsetKey = "pare.opset.";

struct OnnxHeader {
  std::int64_t ir_version = 0;
  std::string producer;               // name and version
  std::map<std::string, int> opsets;  // "ai.onnx" for the main domain
};

OnnxHeader read_onnx_header(const std::string& path);  // errors as read_onnx

}  // namespace pare
