#include "graphsurgeon/onnx/check.h"

#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include "engine/base/error.h"
#include "engine/base/tensor.h"
#include "graphsurgeon/onnx/proto_walk.h"
#include "graphsurgeon/onnx/wire_scan.h"

namespace pare {
namespace {

// The checker adds context on lines of its own, which names what our errors say in `where`.
std::string first_line(const char* text) {
  const std::string line(text);
  return line.substr(0, line.find("\n\n"));
}

// Deprecated by ONNX (or never part of it: the last, which ONNX Runtime's tools put into the domain ai.onnx),
// but written by exporters: the checker refuses them where raising (raise.h) knows what they mean.
bool unknown_but_read(const onnx::NodeProto& node) {
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  return standard && (node.op_type() == "GroupNormalization" || node.op_type() == "Scatter" ||
                      node.op_type() == "SimplifiedLayerNormalization");
}

void drop_data(onnx::TensorProto& tensor) {
  tensor.clear_external_data();
  tensor.clear_data_location();
  tensor.clear_raw_data();
}

// The checker would look for files that are not there yet. It asks raw_data for its size below 8 bits only:
// such an initializer becomes an input, or, in a subgraph, gets zeros.
void stand_in_for_external(onnx::ModelProto& model) {
  auto& graph = *model.mutable_graph();
  for (int i = graph.initializer_size() - 1; i >= 0; --i) {
    const onnx::TensorProto& tensor = graph.initializer(i);
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) continue;
    if (bits(static_cast<DType>(tensor.data_type())) >= 8) continue;
    auto* input = graph.add_input();
    input->set_name(tensor.name());
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    for (const std::int64_t size : tensor.dims()) type->mutable_shape()->add_dim()->set_dim_value(size);
    graph.mutable_initializer()->DeleteSubrange(i, 1);
  }
  for_each_tensor(model, [](onnx::TensorProto& tensor, TensorPlace) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    drop_data(tensor);
    const auto type = static_cast<DType>(tensor.data_type());
    const std::int64_t bytes =
        bits(type) >= 8 ? 1 : byte_count(type, Dims(tensor.dims().begin(), tensor.dims().end()));
    tensor.set_raw_data(std::string(static_cast<std::size_t>(bytes), '\0'));
  });
}

bool has_branches(const onnx::GraphProto& graph) {
  for (const auto& node : graph.node()) {
    if (node.op_type() == "If") return true;
    for (const auto& attribute : node.attribute())
      if (attribute.has_g() && has_branches(attribute.g())) return true;
  }
  return false;
}

}  // namespace

void check_nodes(onnx::ModelProto& model, const std::map<std::string, int>& opsets, const std::string& file) {
  for_each_tensor(model, [](onnx::TensorProto& tensor, TensorPlace) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL && payload_number(tensor.doc_string()) < 0)
      return;
    drop_data(tensor);
    tensor.clear_dims();
    tensor.add_dims(0);
  });
  onnx::checker::CheckerContext context;
  context.set_ir_version(static_cast<int>(model.ir_version()));
  std::unordered_map<std::string, int> imports(opsets.begin(), opsets.end());
  const auto main_domain = opsets.find("");
  if (main_domain != opsets.end()) imports["ai.onnx"] = main_domain->second;
  context.set_opset_imports(std::move(imports));

  onnx::checker::LexicalScopeContext names;
  for (const auto& input : model.graph().input()) names.add(input.name());
  for (const auto& tensor : model.graph().initializer()) names.add(tensor.name());
  for (const auto& node : model.graph().node()) {
    try {
      onnx::checker::check_node(node, context, names);
    } catch (const std::exception& problem) {  // ValidationError, and what schemas throw
      const std::string text = problem.what();
      const bool unknown =
          text.find("deprecated") != std::string::npos || text.find("No Op registered") != std::string::npos;
      if (!unknown || !unknown_but_read(node))
        throw make_error(ErrorCode::kBadFile, "{}", first_line(problem.what()))
            .at(fmt::format("{}: node '{}' ({})", file, node.name(), node.op_type()))
            .hint("the model breaks a rule of ONNX (onnx.checker says so too): export it again");
    }
    for (const std::string& output : node.output()) names.add(output);
  }
}

void check_written(const onnx::ModelProto& written, const std::string& file) {
  onnx::ModelProto model = written;
  stand_in_for_external(model);
  try {
    onnx::checker::check_model(model, false);
    const onnx::ShapeInferenceOptions options{true, has_branches(model.graph()) ? 0 : 1, false};
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), options);
  } catch (const std::exception& problem) {
    throw make_error(ErrorCode::kInternal, "the model to be written breaks a rule of ONNX: {}",
                     problem.what())
        .at(file);
  }
}

}  // namespace pare
