#include "graphsurgeon/onnx/type_support.h"

#include <onnx/defs/schema.h>

#include <algorithm>

#include "graphsurgeon/onnx/proto.h"

namespace pare {
namespace {

constexpr int kNewestOpset = 27;

const char* onnx_name(DType type) {
  switch (type) {
    case DType::kF16:
      return "tensor(float16)";
    case DType::kBF16:
      return "tensor(bfloat16)";
    case DType::kF64:
      return "tensor(double)";
    default:
      return "tensor(float)";
  }
}

}  // namespace

int first_opset_of_type(const std::string& op, bool output, int slot, DType type, int opset) {
  const std::string wanted = onnx_name(type);
  for (int version = std::max(opset, 7); version <= kNewestOpset; ++version) {
    const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(op, version, "");
    if (schema == nullptr) continue;
    const auto& formals = output ? schema->outputs() : schema->inputs();
    if (formals.empty()) continue;
    const auto place = std::min(static_cast<std::size_t>(slot), formals.size() - 1);
    for (const std::string* text : formals[place].GetTypes())
      if (*text == wanted) return version;
  }
  return 0;
}

}  // namespace pare
