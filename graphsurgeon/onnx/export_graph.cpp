#include "graphsurgeon/onnx/export_graph.h"

#include <memory>
#include <variant>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/lower.h"
#include "graphsurgeon/onnx/tensor_proto.h"

namespace pare {
namespace {

struct AttributeWriter {
  onnx::AttributeProto& proto;
  using Type = onnx::AttributeProto;

  void operator()(std::int64_t v) const {
    proto.set_type(Type::INT);
    proto.set_i(v);
  }
  void operator()(float v) const {
    proto.set_type(Type::FLOAT);
    proto.set_f(v);
  }
  void operator()(const std::string& v) const {
    proto.set_type(Type::STRING);
    proto.set_s(v);
  }
  void operator()(const std::vector<std::int64_t>& v) const {
    proto.set_type(Type::INTS);
    for (const std::int64_t x : v) proto.add_ints(x);
  }
  void operator()(const std::vector<float>& v) const {
    proto.set_type(Type::FLOATS);
    for (const float x : v) proto.add_floats(x);
  }
  void operator()(const std::vector<std::string>& v) const {
    proto.set_type(Type::STRINGS);
    for (const std::string& x : v) proto.add_strings(x);
  }
  void operator()(const Tensor& v) const {
    proto.set_type(Type::TENSOR);
    write_tensor(v, *proto.mutable_t());
  }
  void operator()(const std::shared_ptr<Graph>&) const {}  // written with its scope
};

// The type attribute of an Optional, which the IR keeps as two numbers.
void write_optional_type(const Node& node, onnx::NodeProto& proto) {
  if (!node.has_attr("type")) return;
  auto* a = proto.add_attribute();
  a->set_name("type");
  a->set_type(onnx::AttributeProto::TYPE_PROTO);
  onnx::TypeProto* type = a->mutable_tp();
  if (node.attr("sequence", std::int64_t{0}) != 0) type = type->mutable_sequence_type()->mutable_elem_type();
  type->mutable_tensor_type()->set_elem_type(static_cast<std::int32_t>(node.attr("type", std::int64_t{0})));
}

bool is_subgraph(const Attribute& attribute) {
  return std::holds_alternative<std::shared_ptr<Graph>>(attribute);
}

void write_head(const Node& node, onnx::NodeProto& proto) {
  proto.set_op_type(node.op);
  if (!node.domain.empty()) proto.set_domain(node.domain);
  for (const auto& [key, attribute] : node.attrs) {
    if (is_subgraph(attribute)) continue;
    if (node.is("Optional")) continue;  // write_optional_type
    auto* a = proto.add_attribute();
    a->set_name(key);
    std::visit(AttributeWriter{*a}, attribute);
  }
  if (node.is("Optional")) write_optional_type(node, proto);
}

std::size_t declared_inputs(const Node& node) {
  return node.declared_inputs < 0 ? node.in.size() : static_cast<std::size_t>(node.declared_inputs);
}

}  // namespace

void write_type(const Value& value, onnx::TypeProto& outer) {
  onnx::TypeProto* type = &outer;
  if (value.kind == ValueKind::kOptional || value.kind == ValueKind::kOptionalSequence)
    type = type->mutable_optional_type()->mutable_elem_type();
  if (value.kind == ValueKind::kSequence || value.kind == ValueKind::kOptionalSequence)
    type = type->mutable_sequence_type()->mutable_elem_type();
  auto* tensor = type->mutable_tensor_type();
  tensor->set_elem_type(static_cast<std::int32_t>(value.dtype));
  if (!value.shape.ranked) return;
  auto* shape = tensor->mutable_shape();
  for (const Dim& dim : value.shape.dims) {
    auto* d = shape->add_dim();
    if (dim.known())
      d->set_dim_value(dim.value);
    else if (!dim.symbol.empty())
      d->set_dim_param(dim.symbol);
  }
}

onnx::NodeProto plain_node_proto(const Graph& graph, const Node& node) {
  onnx::NodeProto proto;
  write_head(node, proto);
  for (std::size_t i = 0; i < declared_inputs(node); ++i)
    proto.add_input(node.in[i] == ValueId::kNone ? std::string() : graph.value(node.in[i]).name);
  for (const ValueId out : node.out)
    proto.add_output(out == ValueId::kNone ? std::string() : graph.value(out).name);
  return proto;
}

bool GraphExporter::taken(const std::string& name) const {
  return taken_.count(name) != 0 || (parent_ != nullptr && parent_->taken(name));
}

std::string GraphExporter::fresh(const std::string& name) {
  std::string candidate = name;
  for (int i = 1; taken(candidate); ++i) candidate = fmt::format("{}_{}", name, i);
  taken_.insert(candidate);
  return candidate;
}

bool GraphExporter::inherited(const Value& value) const {
  for (const GraphExporter* outer = parent_; outer != nullptr; outer = outer->parent_) {
    const auto it = outer->constants_.find(value.name);
    if (it != outer->constants_.end())
      return it->second == value.constant.data() && value.constant.size() > 0;
  }
  return false;
}

// Names of inputs and outputs first: a caller knows the model by them.
void GraphExporter::name_values(const std::vector<std::string>* captured) {
  names_.resize(graph_.value_count());
  inherited_.resize(graph_.value_count(), false);
  const auto give = [&](ValueId id) {
    std::string& name = names_[static_cast<std::size_t>(id)];
    if (name.empty()) name = fresh(graph_.value(id).name);
  };
  for (const Capture& capture : graph_.captures)
    names_[static_cast<std::size_t>(capture.inner)] = captured->at(static_cast<std::size_t>(capture.input));
  for (const ValueId id : graph_.inputs) give(id);
  for (const ValueId id : graph_.outputs)
    if (parent_ == nullptr || !graph_.is_constant(id)) give(id);
  for (std::size_t i = 0; i < graph_.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    const Value& value = graph_.value(id);
    if (value.is_constant() && inherited(value)) {
      inherited_[i] = true;
      names_[i] = value.name;
    } else if (value.is_constant() || value.producer != NodeId::kNone) {
      give(id);
      if (value.is_constant()) constants_[names_[i]] = value.constant.data();
    }
  }
}

void GraphExporter::write_constants(onnx::GraphProto& proto) {
  for (const ValueId id : graph_.outputs) read_.insert(name_of(id));
  for (std::size_t i = 0; i < graph_.value_count(); ++i) {
    const Value& value = graph_.value(static_cast<ValueId>(i));
    if (!value.is_constant() || inherited_[i] || read_.count(names_[i]) == 0) continue;
    auto* tensor = proto.add_initializer();
    tensor->set_name(names_[i]);
    write_tensor_head(value.constant, *tensor);
    if (store_ == nullptr || !store_->take(value.constant, *tensor)) write_payload(value.constant, *tensor);
    dtypes_.insert(value.dtype);
  }
}

std::string GraphExporter::node_name(const Node& node) {
  if (node.name.empty()) return {};
  GraphExporter* root = this;
  while (root->parent_ != nullptr) root = root->parent_;
  std::string candidate = node.name;
  for (int i = 1; !root->node_names_.insert(candidate).second; ++i)
    candidate = fmt::format("{}_{}", node.name, i);
  return candidate;
}

void GraphExporter::write_node(const Node& node, onnx::GraphProto& graph_proto) {
  if (node.domain == "pare")
    throw make_error(ErrorCode::kUnsupported, "{} exists inside pare only and cannot be written", node.op)
        .at(fmt::format("node '{}'", node.name))
        .hint("`pare build` takes such graphs; to write one, start from the model before it was lowered");
  domains_.insert(node.domain);
  onnx::NodeProto proto;
  write_head(node, proto);
  const std::string name = node_name(node);
  if (!name.empty()) proto.set_name(name);
  std::vector<std::string> inputs;
  for (const ValueId in : node.in) inputs.push_back(in == ValueId::kNone ? std::string() : name_of(in));
  for (std::size_t i = 0; i < declared_inputs(node); ++i) proto.add_input(inputs[i]);
  for (const ValueId out : node.out) {
    proto.add_output(out == ValueId::kNone ? std::string() : name_of(out));
    if (out != ValueId::kNone) dtypes_.insert(graph_.value(out).dtype);
  }
  LowerCall call{graph_, node, opset_, proto, [&](const char* what, Tensor tensor) {
                   auto* initializer = graph_proto.add_initializer();
                   initializer->set_name(fresh(proto.output(0) + "_" + what));
                   write_tensor(tensor, *initializer);
                   return initializer->name();
                 }};
  const std::string why = lower(call);
  if (!why.empty())
    throw make_error(ErrorCode::kUnsupported, "opset {} cannot hold the node: {}", opset_, why)
        .at(fmt::format("node '{}' ({})", node.name, node.op))
        .hint("leave the opset out, or ask for a newer one");
  for (const auto& [key, attribute] : node.attrs) {
    if (!is_subgraph(attribute)) continue;
    auto* a = proto.add_attribute();
    a->set_name(key);
    a->set_type(onnx::AttributeProto::GRAPH);
    GraphExporter inner(*std::get<std::shared_ptr<Graph>>(attribute), opset_, this, store_);
    inner.run(*a->mutable_g(), &inputs);
    domains_.insert(inner.domains_.begin(), inner.domains_.end());
    dtypes_.insert(inner.dtypes_.begin(), inner.dtypes_.end());
    read_.insert(inner.read_.begin(), inner.read_.end());
  }
  for (const std::string& input : proto.input()) read_.insert(input);
  *graph_proto.add_node() = std::move(proto);
}

void GraphExporter::write_value(ValueId id, onnx::ValueInfoProto& info) {
  const Value& value = graph_.value(id);
  info.set_name(name_of(id));
  if (value.dtype == DType::kUndefined) {
    if (parent_ != nullptr) return;  // subgraphs may leave types open
    throw make_error(ErrorCode::kUnsupported, "the type of '{}' is not known", value.name)
        .hint("pare inspect --layers shows which node computes it");
  }
  write_type(value, *info.mutable_type());
  dtypes_.insert(value.dtype);
}

// A value may be an output twice, and a subgraph may give out what it captured or inherited; ONNX wants a
// value of its own for each.
void GraphExporter::write_outputs(onnx::GraphProto& proto) {
  std::set<ValueId> seen;
  std::set<ValueId> captured;
  for (const Capture& capture : graph_.captures) captured.insert(capture.inner);
  for (const ValueId id : graph_.outputs) {
    const bool again = !seen.insert(id).second;
    auto* info = proto.add_output();
    write_value(id, *info);
    if (!again && captured.count(id) == 0 && !inherited_[static_cast<std::size_t>(id)]) continue;
    auto* identity = proto.add_node();
    identity->set_op_type("Identity");
    identity->add_input(name_of(id));
    identity->add_output(fresh(name_of(id)));
    info->set_name(identity->output(0));
    domains_.insert("");
  }
}

void GraphExporter::run(onnx::GraphProto& proto, const std::vector<std::string>* captured) {
  proto.set_name(graph_.name.empty() ? "graph" : graph_.name);
  name_values(captured);
  for (const ValueId id : graph_.inputs) write_value(id, *proto.add_input());
  for (const NodeId id : graph_.nodes()) write_node(graph_.node(id), proto);
  write_constants(proto);
  write_outputs(proto);
  for (const NodeId id : graph_.nodes()) {  // what ONNX cannot infer
    if (graph_.node(id).domain.empty()) continue;
    for (const ValueId out : graph_.node(id).out) {
      if (out == ValueId::kNone || graph_.is_output(out) || graph_.value(out).dtype == DType::kUndefined)
        continue;
      write_value(out, *proto.add_value_info());
    }
  }
}

}  // namespace pare
