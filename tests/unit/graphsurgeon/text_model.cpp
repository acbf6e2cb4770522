#include "tests/unit/graphsurgeon/text_model.h"

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

#include <map>
#include <span>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/read.h"

namespace pare {

std::string text_model_bytes(const std::string& text) {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, text.c_str());
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage() << "\n" << text;
  return model.SerializeAsString();
}

Graph read_bytes(const std::string& bytes) {
  return read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "test model");
}

Graph text_model(const std::string& text) { return read_bytes(text_model_bytes(text)); }

Graph text_graph(int opset, const std::string& graph) {
  return text_model(fmt::format("<ir_version: 8, opset_import: [\"\": {}]> {}", opset, graph));
}

// Renames every value but inputs and outputs by its place, on a copy.
std::string canonical_text(const Graph& graph) {
  Graph copy = graph;
  copy.drop_unused_values();
  int count = 0;
  const auto kept = [&](ValueId id) { return copy.is_input(id) || copy.is_output(id); };
  std::map<ValueId, std::string> names;
  for (const NodeId id : copy.nodes()) {
    for (const ValueId in : copy.node(id).in)
      if (in != ValueId::kNone && !kept(in)) names.emplace(in, fmt::format("v{}", count++));
    for (const ValueId out : copy.node(id).out)
      if (out != ValueId::kNone && !kept(out)) names.emplace(out, fmt::format("v{}", count++));
    copy.node(id).name.clear();
  }
  for (const auto& [id, name] : names) copy.rename(id, "tmp_" + name);
  for (const auto& [id, name] : names) copy.rename(id, name);
  // Constants are listed by id: an order that does not depend on when a pass made them.
  Graph sorted;
  sorted.name = "g";
  std::map<ValueId, ValueId> map;
  const auto import = [&](ValueId id) {
    if (id == ValueId::kNone || map.count(id) != 0) return;
    Value value = copy.value(id);
    value.producer = NodeId::kNone;
    value.origin.clear();
    map[id] = sorted.add_value(value);
  };
  map[ValueId::kNone] = ValueId::kNone;
  for (const ValueId id : copy.inputs) import(id), sorted.inputs.push_back(map[id]);
  for (const NodeId id : copy.nodes()) {
    Node node = copy.node(id);
    for (ValueId& in : node.in) import(in), in = map[in];
    for (ValueId& out : node.out) import(out), out = map[out];
    sorted.add_node(node);
  }
  for (const ValueId id : copy.outputs) import(id), sorted.outputs.push_back(map[id]);
  return to_text(sorted);
}

}  // namespace pare
