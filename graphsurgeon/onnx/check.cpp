#include "graphsurgeon/onnx/check.h"

#include <onnx/checker.h>

#include "engine/base/error.h"

namespace pare {
namespace {

// The checker adds context on lines of its own, which names what our errors say in `where`.
std::string first_line(const char* text) {
  const std::string line(text);
  return line.substr(0, line.find("\n\n"));
}

// Deprecated by ONNX, but written by exporters and read by others: the checker refuses them at opsets where
// raising (raise.h) knows what they mean.
bool deprecated_but_read(const onnx::NodeProto& node) {
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  return standard && (node.op_type() == "GroupNormalization" || node.op_type() == "Scatter");
}

}  // namespace

void check_nodes(const onnx::ModelProto& model, const std::map<std::string, int>& opsets,
                 const std::string& file) {
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
      const bool deprecated = std::string(problem.what()).find("deprecated") != std::string::npos;
      if (!deprecated || !deprecated_but_read(node))
        throw make_error(ErrorCode::kBadFile, "{}", first_line(problem.what()))
            .at(fmt::format("{}: node '{}' ({})", file, node.name(), node.op_type()))
            .hint("The model breaks a rule of ONNX (onnx.checker says so too): export it again.");
    }
    for (const std::string& output : node.output()) names.add(output);
  }
}

void check_written(const onnx::ModelProto& model, const std::string& file) {
  try {
    onnx::checker::check_model(model, true);
  } catch (const std::exception& problem) {
    throw make_error(ErrorCode::kInternal, "the model to be written breaks a rule of ONNX: {}",
                     problem.what())
        .at(file);
  }
}

}  // namespace pare
