#include "graphsurgeon/onnx/import_graph.h"

#include <utility>

#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/onnx/header.h"
#include "graphsurgeon/onnx/known_ops.h"
#include "graphsurgeon/onnx/sparse.h"

namespace pare {
namespace {

std::string node_word(const onnx::NodeProto& proto) {
  return fmt::format("node '{}' ({})", proto.name(), proto.op_type());
}

Shape read_shape(const onnx::TensorShapeProto& proto) {
  check_limit(static_cast<std::uint64_t>(proto.dim_size()), limits::kMaxRank, "a value's rank");
  std::vector<Dim> dims;
  for (const auto& dim : proto.dim()) {
    if (dim.has_dim_value() && dim.dim_value() >= 0)
      dims.push_back(Dim::of(dim.dim_value()));
    else
      dims.push_back(dim.has_dim_param() ? Dim::named(dim.dim_param()) : Dim{});
  }
  return Shape(std::move(dims));
}

void read_tensor_type(const onnx::TypeProto::Tensor& type, Value& value) {
  if (type.elem_type() != 0) value.dtype = dtype_of(type.elem_type());
  if (type.has_shape()) value.shape = read_shape(type.shape());
}

void read_type(const onnx::TypeProto& type, const std::string& what, Value& value) {
  const bool optional = type.has_optional_type();
  const onnx::TypeProto& inner = optional ? type.optional_type().elem_type() : type;
  if (inner.has_tensor_type()) {
    if (optional) value.kind = ValueKind::kOptional;
    return read_tensor_type(inner.tensor_type(), value);
  }
  if (inner.has_sequence_type() && inner.sequence_type().elem_type().has_tensor_type()) {
    value.kind = optional ? ValueKind::kOptionalSequence : ValueKind::kSequence;
    return read_tensor_type(inner.sequence_type().elem_type().tensor_type(), value);
  }
  throw make_error(ErrorCode::kUnsupported, "value '{}' is a map, sparse, or a sequence of such", what)
      .hint("pare runs tensors, sequences of tensors, and optional ones");
}

Value read_value(const onnx::ValueInfoProto& info) {
  Value value;
  value.name = value.origin = info.name();
  if (!info.has_type() || info.type().value_case() == onnx::TypeProto::VALUE_NOT_SET) return value;
  read_type(info.type(), info.name(), value);
  return value;
}

Tensor constant_of(const onnx::NodeProto& proto, TensorSource& tensors) {
  if (proto.attribute_size() != 1) fail(ErrorCode::kBadFile, "a Constant has exactly one attribute");
  const auto& a = proto.attribute(0);
  const std::string& key = a.name();
  const auto floats = static_cast<std::int64_t>(a.floats_size()),
             ints = static_cast<std::int64_t>(a.ints_size());
  if (key == "value") return read_tensor(a.t(), tensors);
  if (key == "sparse_value") return read_sparse(a.sparse_tensor(), tensors);
  if (key == "value_float") return Tensor::scalar(a.f());
  if (key == "value_floats")
    return Tensor::copy_of(DType::kF32, {floats}, a.floats().data(), a.floats_size() * 4u);
  if (key == "value_int") return Tensor::from(DType::kI64, {}, std::vector<std::int64_t>{a.i()});
  if (key == "value_ints") return Tensor::copy_of(DType::kI64, {ints}, a.ints().data(), a.ints_size() * 8u);
  if (key == "value_string" || key == "value_strings") {
    const bool one = key == "value_string";
    Tensor tensor = Tensor::allocate(DType::kString, one ? Dims{} : Dims{a.strings_size()});
    if (one) *tensor.mut<std::string>() = a.s();
    for (int i = 0; !one && i < a.strings_size(); ++i) tensor.mut<std::string>()[i] = a.strings(i);
    return tensor;
  }
  fail(ErrorCode::kUnsupported, "a Constant given by '{}'", key);
}

}  // namespace

GraphImporter::GraphImporter(ModelScope& model, GraphImporter* parent, int depth)
    : model_(model), parent_(parent), depth_(depth) {
  check_limit(static_cast<std::uint64_t>(depth), limits::kMaxSubgraphDepth, "the depth of subgraphs");
}

ValueId GraphImporter::define(const std::string& name, Value value) {
  if (names_.count(name) != 0) fail(ErrorCode::kBadFile, "the name '{}' is given to two values", name);
  check_limit(name.size(), limits::kMaxNameBytes, "the length of a value's name");
  // A name that a raise rule made up gives way to the file's own.
  const ValueId taken = graph_->find_value(name);
  if (taken != ValueId::kNone) graph_->rename(taken, name + "_raised");
  value.name = value.origin = name;
  const ValueId id = graph_->add_value(std::move(value));
  names_.emplace(name, id);
  return id;
}

ValueId GraphImporter::find(const std::string& name) {
  const auto it = names_.find(name);
  if (it != names_.end()) return it->second;
  if (parent_ == nullptr) return ValueId::kNone;
  const ValueId outer = parent_->find(name);
  if (outer == ValueId::kNone) return outer;
  const Value& source = parent_->graph_->value(outer);
  Value inner;
  inner.dtype = source.dtype;
  inner.shape = source.shape;
  inner.kind = source.kind;
  inner.constant = source.constant;  // a constant needs no capture: its memory is shared
  const bool captured = !source.is_constant();
  const ValueId id = define(name, std::move(inner));
  if (captured) captures_.push_back({name, outer, id});
  return id;
}

void GraphImporter::add_initializer(const std::string& name, Tensor tensor) {
  Value value;
  value.constant = std::move(tensor);
  value.dtype = value.constant.dtype();
  value.shape = Shape(value.constant.dims());
  if (name.empty()) fail(ErrorCode::kBadFile, "an initializer has no name");
  define(name, std::move(value));
}

void GraphImporter::add_input(const onnx::ValueInfoProto& info) {
  if (names_.count(info.name()) != 0 && graph_->is_constant(names_[info.name()])) return;  // has a default
  if (info.name().empty()) fail(ErrorCode::kBadFile, "a graph input has no name");
  Value value = read_value(info);
  if (value.dtype == DType::kUndefined && depth_ == 0)
    fail(ErrorCode::kBadFile, "graph input '{}' has no element type", info.name());
  graph_->inputs.push_back(define(info.name(), std::move(value)));
}

void GraphImporter::declare(const onnx::ValueInfoProto& info) { declared_[info.name()] = &info; }

void GraphImporter::import_attribute(const onnx::AttributeProto& proto, Node& node,
                                     std::map<std::string, int>& captured) {
  using Type = onnx::AttributeProto;
  if (!proto.ref_attr_name().empty())
    fail(ErrorCode::kBadFile, "attribute '{}' refers to '{}' outside of a function", proto.name(),
         proto.ref_attr_name());
  Attribute value;
  switch (proto.type()) {
    case Type::FLOAT:
      value = proto.f();
      break;
    case Type::INT:
      value = static_cast<std::int64_t>(proto.i());
      break;
    case Type::STRING:
      value = proto.s();
      break;
    case Type::FLOATS:
      value = std::vector<float>(proto.floats().begin(), proto.floats().end());
      break;
    case Type::INTS:
      value = std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end());
      break;
    case Type::STRINGS:
      value = std::vector<std::string>(proto.strings().begin(), proto.strings().end());
      break;
    case Type::TENSOR:
      value = read_tensor(proto.t(), model_.tensors);
      break;
    case Type::TYPE_PROTO: {  // of Optional: what an empty one would hold
      Value of;
      read_type(proto.tp(), proto.name(), of);
      node.attrs["sequence"] = std::int64_t{of.kind == ValueKind::kSequence};
      value = static_cast<std::int64_t>(of.dtype);
      break;
    }
    case Type::GRAPH: {
      auto body = std::make_shared<Graph>();
      GraphImporter inner(model_, this, depth_ + 1);
      with_context("reading subgraph '" + proto.name() + "'", [&] { inner.run(proto.g(), *body); });
      if (node.declared_inputs < 0) node.declared_inputs = static_cast<int>(node.in.size());
      for (const PendingCapture& c : inner.captures_) {
        auto slot = captured.find(c.name);
        if (slot == captured.end()) {
          slot = captured.emplace(c.name, static_cast<int>(node.in.size())).first;
          node.in.push_back(c.outer);
        }
        body->captures.push_back({slot->second, c.inner});
      }
      value = std::move(body);
      break;
    }
    default:
      fail(ErrorCode::kUnsupported, "attribute '{}' of a type that pare does not read", proto.name());
  }
  node.attrs[proto.name()] = std::move(value);
}

void GraphImporter::add_node(const onnx::NodeProto& proto) {
  Node node;
  node.name = proto.name();
  node.domain = proto.domain() == "ai.onnx" ? std::string() : proto.domain();
  node.op = proto.op_type();
  check_known(node.domain, node.op, model_.opset);
  for (const std::string& name : proto.input()) {
    const ValueId id = name.empty() ? ValueId::kNone : find(name);
    if (id == ValueId::kNone && !name.empty())
      throw make_error(ErrorCode::kBadFile,
                       "input '{}' is made by no node, and is no initializer and no graph input{}", name,
                       parent_ == nullptr ? "" : ", here or in an enclosing graph")
          .hint("a weight was lost, or the file was edited badly: export it again");
    node.in.push_back(id);
  }
  while (!node.in.empty() && node.in.back() == ValueId::kNone) node.in.pop_back();
  std::map<std::string, int> captured;
  std::map<std::string, const onnx::AttributeProto*>
      by_name;  // captures come in this order, whatever the file's
  for (const auto& attribute : proto.attribute()) by_name[attribute.name()] = &attribute;
  for (const auto& [key, attribute] : by_name) import_attribute(*attribute, node, captured);
  if (node.declared_inputs == static_cast<int>(node.in.size()))
    node.declared_inputs = -1;  // nothing captured
  for (const std::string& name : proto.output()) {
    if (name.empty()) {
      node.out.push_back(ValueId::kNone);
      continue;
    }
    const auto it = declared_.find(name);
    node.out.push_back(define(name, it == declared_.end() ? Value{} : read_value(*it->second)));
  }
  while (!node.out.empty() && node.out.back() == ValueId::kNone) node.out.pop_back();
  raiser_->append(std::move(node));
}

void GraphImporter::add_constant_node(const onnx::NodeProto& proto) {
  if (proto.output_size() != 1 || proto.output(0).empty() || proto.input_size() != 0)
    fail(ErrorCode::kBadFile, "a Constant has one output and no input");
  Value value;
  value.constant = constant_of(proto, model_.tensors);
  value.dtype = value.constant.dtype();
  value.shape = Shape(value.constant.dims());
  define(proto.output(0), std::move(value));
}

void GraphImporter::run(const onnx::GraphProto& proto, Graph& graph) {
  graph_ = &graph;
  model_.raisers.push_back(std::make_unique<Raiser>(graph, model_.opset));
  raiser_ = model_.raisers.back().get();
  graph.name = proto.name();
  graph.opset = model_.opset;
  for (const auto& [domain, version] : model_.opsets)
    if (!domain.empty() && parent_ == nullptr) graph.metadata[kOpsetKey + domain] = std::to_string(version);
  for (const auto& info : proto.value_info()) declare(info);
  for (const auto& info : proto.output()) declare(info);
  for (const auto& tensor : proto.initializer())
    add_initializer(tensor.name(), read_tensor(tensor, model_.tensors));
  for (const auto& sparse : proto.sparse_initializer())
    add_initializer(sparse.values().name(), read_sparse(sparse, model_.tensors));
  for (const auto& info : proto.input()) add_input(info);
  for (const auto& node : proto.node()) {
    try {
      if (node.op_type() == "Constant" && (node.domain().empty() || node.domain() == "ai.onnx"))
        add_constant_node(node);
      else
        add_node(node);
    } catch (Error& error) {
      throw error.at(fmt::format("{}: {}", model_.file, node_word(node)));
    }
  }
  for (const auto& info : proto.output()) {
    const ValueId id = find(info.name());
    if (id == ValueId::kNone)
      fail(ErrorCode::kBadFile, "graph output '{}' is computed by no node", info.name());
    graph.outputs.push_back(id);
  }
}

}  // namespace pare
