#include "graphsurgeon/onnx/function_body.h"

#include <onnx/defs/function.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/export_graph.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/raise/raise.h"
#include "graphsurgeon/onnx/read.h"

namespace pare {
namespace {

constexpr const char* kBodyDomain = "pare.body";

// The node alone, with inputs i0, i1, ... and outputs o0, o1, ...
onnx::NodeProto lone_node(const Graph& graph, const Node& node, const onnx::OpSchema& schema) {
  onnx::NodeProto proto = plain_node_proto(graph, node);
  for (int i = 0; i < proto.input_size(); ++i)
    if (!proto.input(i).empty()) proto.set_input(i, "i" + std::to_string(i));
  for (int i = 0; i < proto.output_size(); ++i)
    if (!proto.output(i).empty()) proto.set_output(i, "o" + std::to_string(i));
  std::set<std::string> given;
  for (const auto& attribute : proto.attribute()) given.insert(attribute.name());
  for (const auto& [key, attribute] : schema.attributes())  // the inliner knows no defaults
    if (given.count(key) == 0 && attribute.default_value.has_name())
      *proto.add_attribute() = attribute.default_value;
  return proto;
}

int version_of(const onnx::FunctionProto& function) {
  for (const auto& import : function.opset_import())
    if (import.domain().empty()) return static_cast<int>(import.version());
  return kNewestOpset;
}

// Builders leave out what makes an output that nobody wants, but not the output.
void drop_unmade_outputs(onnx::FunctionProto& function) {
  std::set<std::string> made(function.input().begin(), function.input().end());
  for (const auto& node : function.node()) made.insert(node.output().begin(), node.output().end());
  while (function.output_size() > 1 && made.count(function.output(function.output_size() - 1)) == 0)
    function.mutable_output()->RemoveLast();
}

// Calls the function from a model of its own, which the reader then inlines, raises and infers.
std::shared_ptr<Graph> read_call(const Graph& graph, const Node& node, const onnx::NodeProto& call,
                                 onnx::FunctionProto function) {
  onnx::ModelProto model;
  model.set_ir_version(10);
  function.set_domain(kBodyDomain);
  function.set_name("body");
  drop_unmade_outputs(function);
  for (const auto& import : function.opset_import()) *model.add_opset_import() = import;
  auto* own = model.add_opset_import();
  own->set_domain(kBodyDomain);
  own->set_version(1);
  auto& body = *model.mutable_graph();
  body.set_name("body");
  for (int i = 0; i < call.input_size(); ++i) {
    if (call.input(i).empty()) continue;
    auto* input = body.add_input();
    input->set_name(call.input(i));
    write_type(graph.value(node.in[static_cast<std::size_t>(i)]), *input->mutable_type());
  }
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    auto* output = body.add_output();
    output->set_name(call.output(i));
    const ValueId id = node.out[static_cast<std::size_t>(i)];
    if (graph.value(id).dtype != DType::kUndefined) write_type(graph.value(id), *output->mutable_type());
  }
  auto* caller = body.add_node();
  *caller = call;
  caller->set_domain(kBodyDomain);
  caller->set_op_type("body");
  *model.add_functions() = std::move(function);
  const std::string bytes = model.SerializeAsString();
  return std::make_shared<Graph>(
      read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "body of " + node.op));
}

}  // namespace

std::shared_ptr<Graph> function_body(const Graph& graph, const Node& node) {
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(node.op, kNewestOpset, node.domain);
  if (schema == nullptr) return nullptr;
  for (const auto& [key, attribute] : node.attrs)
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return nullptr;
  const onnx::NodeProto call = lone_node(graph, node, *schema);
  std::vector<onnx::TypeProto> types(static_cast<std::size_t>(call.input_size()));
  for (std::size_t i = 0; i < types.size(); ++i)
    if (node.in[i] != ValueId::kNone) {
      if (graph.value(node.in[i]).dtype == DType::kUndefined) return nullptr;
      write_type(graph.value(node.in[i]), types[i]);
    }
  std::vector<onnx::FunctionProto> bodies;
  if (const onnx::FunctionProto* plain = schema->GetFunction()) bodies.push_back(*plain);
  const onnx::FunctionBodyBuildContextImpl context(call, types);
  std::vector<int> versions = schema->context_dependent_function_opset_versions();
  std::sort(versions.rbegin(), versions.rend());
  for (const int version : versions) {
    onnx::FunctionProto built;
    try {
      if (schema->BuildContextDependentFunction(context, built, version)) bodies.push_back(std::move(built));
    } catch (const std::exception&) {  // a builder that needs more than is known
    }
  }
  for (const onnx::FunctionProto& body : bodies) {
    if (version_of(body) > kNewestOpset) continue;
    try {
      return read_call(graph, node, call, body);
    } catch (const Error&) {  // a body that uses what the IR does not have: the next one
    }
  }
  return nullptr;
}

void splice_body(Graph& graph, NodeId id, const Graph& body) {
  const Node owner = graph.node(id);  // a copy: inserting moves nodes
  const std::string stem = owner.name.empty() ? owner.op : owner.name;
  std::map<ValueId, ValueId> map{{ValueId::kNone, ValueId::kNone}};
  std::size_t at = 0;
  for (const ValueId in : owner.in)
    if (in != ValueId::kNone && at < body.inputs.size()) map[body.inputs[at++]] = in;
  // The node's outputs become those of the body's nodes, where each has one of its own.
  std::vector<std::pair<ValueId, ValueId>> copies;
  std::size_t made = 0;
  for (std::size_t i = 0; i < owner.out.size(); ++i) {
    if (owner.out[i] == ValueId::kNone) continue;
    graph.set_output(id, static_cast<int>(i), ValueId::kNone);
    const ValueId result = body.outputs.at(made++);
    if (map.count(result) == 0 && body.producer(result) != NodeId::kNone)
      map[result] = owner.out[i];
    else
      copies.emplace_back(result, owner.out[i]);
  }
  for (std::size_t i = 0; i < body.value_count(); ++i) {
    const auto inner = static_cast<ValueId>(i);
    const Value& value = body.value(inner);
    if (map.count(inner) != 0 || (!value.is_constant() && value.producer == NodeId::kNone)) continue;
    Value copy = value;
    copy.producer = NodeId::kNone;
    copy.origin.clear();
    copy.name = stem + "_" + value.name;
    map[inner] = graph.add_value(std::move(copy));
  }
  for (const NodeId inner : body.nodes()) {
    Node copy = body.node(inner);
    copy.name = stem + "_" + (copy.name.empty() ? copy.op : copy.name);
    for (ValueId& in : copy.in) in = map.at(in);
    for (ValueId& out : copy.out) out = map.at(out);
    graph.insert_before(id, std::move(copy));
  }
  for (const auto& [result, out] : copies) {
    Node identity;
    identity.name = stem + "_Identity";
    identity.op = "Identity";
    identity.in = {map.at(result)};
    identity.out = {out};
    graph.insert_before(id, std::move(identity));
  }
  graph.remove_node(id);
}

}  // namespace pare
