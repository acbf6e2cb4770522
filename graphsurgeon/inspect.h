// What is inside a model, as plain data for `pare inspect`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/ir/shape.h"

namespace pare {

struct ValueSummary {
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape;
};

struct NodeSummary {
  std::string name, op, domain;       // domain "" is ai.onnx
  std::string scope;                  // "", or where its subgraph hangs: "if_1.then_branch"
  std::vector<ValueSummary> in, out;  // without those left out
};

struct ModelSummary {
  std::string format;  // "onnx"
  int opset = 0;       // ai.onnx
  std::int64_t ir_version = 0;
  std::string producer;               // "pytorch 2.3", may be empty
  std::map<std::string, int> opsets;  // every domain that is imported; ai.onnx by that name
  std::map<std::string, std::string> metadata;
  std::int64_t nodes = 0;                   // subgraphs included; Constant nodes of the file not
  std::map<std::string, std::int64_t> ops;  // "Conv" or "com.microsoft.MatMulNBits": count
  std::int64_t parameters = 0;    // elements of float, 8-bit and smaller constants that a node reads
  std::int64_t weight_bytes = 0;  // of all constants that a node reads
  std::vector<ValueSummary> inputs, outputs;
  std::int64_t subgraphs = 0;
  std::vector<NodeSummary> layers;  // in order, subgraphs behind their owner
};

// Of a checkpoint: of the graph that is built of it. Errors as load_model.
ModelSummary inspect_model(const std::string& path);

// What the weights take as they are stored: tensors of a checkpoint's files, constants of an ONNX model (as
// weight_bytes and parameters above).
struct StoredSize {
  std::int64_t bytes = 0, parameters = 0;
};
StoredSize stored_size(const std::string& path);

}  // namespace pare
