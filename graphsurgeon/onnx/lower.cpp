#include "graphsurgeon/onnx/lower.h"

#include <onnx/defs/data_type_utils.h>
#include <onnx/defs/schema.h>

#include <algorithm>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/export_graph.h"
#include "graphsurgeon/onnx/lower_rules.h"
#include "graphsurgeon/onnx/raise/raise.h"

namespace pare {
namespace {

bool equal_to_default(const onnx::AttributeProto& a, const onnx::OpSchema::Attribute& known) {
  const auto& d = known.default_value;
  if (!d.has_name() || a.type() != d.type()) return false;
  switch (a.type()) {
    case onnx::AttributeProto::INT:
      return a.i() == d.i();
    case onnx::AttributeProto::FLOAT:
      return a.f() == d.f();
    case onnx::AttributeProto::STRING:
      return a.s() == d.s();
    default:
      return false;
  }
}

std::string check_attributes(LowerCall& c, const onnx::OpSchema& schema) {
  const onnx::OpSchema* newest = onnx::OpSchemaRegistry::Schema(c.node.op, kNewestOpset, "");
  std::vector<std::string> defaults;
  for (const auto& a : c.proto.attribute()) {
    if (schema.attributes().count(a.name()) != 0) continue;
    const auto known = newest->attributes().find(a.name());
    if (known == newest->attributes().end() || !equal_to_default(a, known->second))
      return fmt::format("attribute '{}' is newer", a.name());
    defaults.push_back(a.name());
  }
  for (const std::string& key : defaults) drop_attribute(c, key);
  return {};
}

bool takes(const onnx::OpSchema::FormalParameter& formal, const Value& value) {
  if (value.dtype == DType::kUndefined) return true;
  onnx::TypeProto proto;
  Value bare;
  bare.dtype = value.dtype;
  bare.kind = value.kind;
  write_type(bare, proto);
  const auto& types = formal.GetTypes();
  return types.empty() || types.count(onnx::Utils::DataTypeUtils::ToType(proto)) != 0;
}

std::string check_types(const LowerCall& c, const std::vector<ValueId>& ids,
                        const std::vector<onnx::OpSchema::FormalParameter>& formals, std::size_t count,
                        const char* side) {
  for (std::size_t i = 0; i < count && i < ids.size(); ++i) {
    if (ids[i] == ValueId::kNone || formals.empty()) continue;
    const Value& value = c.graph.value(ids[i]);
    if (!takes(formals[std::min(i, formals.size() - 1)], value))
      return fmt::format("{} {} is {}{}", side, i,
                         value.kind == ValueKind::kTensor ? "" : std::string(name(value.kind)) + " of ",
                         name(value.dtype));
  }
  return {};
}

std::string check_schema(LowerCall& c) {
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(c.proto.op_type(), c.opset, "");
  if (schema == nullptr || schema->Deprecated()) return "the operator is newer";
  std::string why = check_attributes(c, *schema);
  if (!why.empty()) return why;
  while (c.proto.input_size() > 0 && c.proto.input(c.proto.input_size() - 1).empty())
    c.proto.mutable_input()->RemoveLast();
  if (c.proto.input_size() < schema->min_input() || c.proto.input_size() > schema->max_input())
    return fmt::format("it has {} inputs", c.proto.input_size());
  if (c.proto.output_size() > schema->max_output())
    return fmt::format("it has {} outputs", c.proto.output_size());
  // Inputs that became attributes have left the message.
  const bool moved = c.proto.input_size() < static_cast<int>(c.node.in.size());
  why = check_types(c, c.node.in, schema->inputs(),
                    static_cast<std::size_t>(moved ? 1 : c.proto.input_size()), "input");
  return why.empty() ? check_types(c, c.node.out, schema->outputs(), c.node.out.size(), "output") : why;
}

}  // namespace

std::string lower(LowerCall& c) {
  if (!c.node.domain.empty()) return {};
  const std::string why = lower_by_rules(c);
  return why.empty() ? check_schema(c) : why;
}

std::string why_not(const Graph& graph, const Node& node, int opset) {
  onnx::NodeProto proto = plain_node_proto(graph, node);
  LowerCall call{graph, node, opset, proto,
                 [](const char* what, const Tensor&) { return std::string(what); }};
  return lower(call);
}

int needed_opset(const Graph& graph, const Node& node, int wanted, std::string& why) {
  int opset = wanted;
  for (const auto& [key, attr] : node.attrs) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attr);
    if (body == nullptr) continue;
    for (const NodeId id : (*body)->nodes()) opset = needed_opset(**body, (*body)->node(id), opset, why);
  }
  std::string reason;
  for (; opset <= kNewestOpset; ++opset) {
    const std::string now = why_not(graph, node, opset);
    if (now.empty()) break;
    reason = fmt::format("node '{}' ({}): {}", node.name, node.op, now);
  }
  if (opset > kNewestOpset)
    throw make_error(ErrorCode::kUnsupported, "no opset up to {} can hold {}", kNewestOpset, reason)
        .hint("leave opset away: the model keeps its own, or takes the one it needs");
  if (!reason.empty()) why = reason;
  return opset;
}

int ir_version_of_opset(int opset) {
  constexpr struct {
    int opset, ir;
  } kTable[] = {{25, 13}, {24, 12}, {23, 11}, {21, 10}, {19, 9}, {15, 8}, {12, 7}, {11, 6}, {10, 5}};
  for (const auto& row : kTable)
    if (opset >= row.opset) return row.ir;
  return 4;  // below, initializers would have to be graph inputs
}

}  // namespace pare
