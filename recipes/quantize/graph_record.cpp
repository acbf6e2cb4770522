#include "recipes/quantize/graph_record.h"

#include <cstring>

#include "engine/base/absent_tensor.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/sha256.h"
#include "recipes/quantize/tensor_file.h"

namespace pare {
namespace {

Json shape_record(const Shape& shape) {
  if (!shape.ranked) return nullptr;
  Json dims = Json::array();
  for (const Dim& dim : shape.dims)
    dims.push_back(dim.known() || dim.symbol.empty() ? Json(dim.value) : Json(dim.symbol));
  return dims;
}

Shape shape_from(const Json& record) {
  if (record.is_null()) return {};
  std::vector<Dim> dims;
  for (const Json& dim : record)
    dims.push_back(dim.is_string() ? Dim::named(dim.get<std::string>()) : Dim::of(dim.get<std::int64_t>()));
  return Shape(std::move(dims));
}

std::vector<std::int64_t> numbers_of(const std::vector<ValueId>& ids) {
  std::vector<std::int64_t> numbers;
  for (const ValueId id : ids) numbers.push_back(static_cast<std::int64_t>(id));
  return numbers;
}

template <typename T>
Json strings_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(value);
  return list;
}

Json attribute_record(const Attribute& attribute, TensorList& tensors) {
  struct Visitor {
    TensorList& tensors;
    Json operator()(std::int64_t v) const { return {"int", v}; }
    Json operator()(float v) const { return {"float", tensors.add(Tensor::scalar(v))}; }
    Json operator()(const std::string& v) const { return {"text", v}; }
    Json operator()(const std::vector<std::int64_t>& v) const { return {"ints", strings_of(v)}; }
    Json operator()(const std::vector<float>& v) const {
      return {"floats", tensors.add(Tensor::from(DType::kF32, {static_cast<std::int64_t>(v.size())}, v))};
    }
    Json operator()(const std::vector<std::string>& v) const { return {"texts", strings_of(v)}; }
    Json operator()(const Tensor& v) const { return {"tensor", tensors.add(v)}; }
    Json operator()(const std::shared_ptr<Graph>& v) const { return {"graph", graph_record(*v, tensors)}; }
  };
  return std::visit(Visitor{tensors}, attribute);
}

Attribute attribute_from(const Json& record, const TensorList& tensors, const std::string& path) {
  const auto kind = record.at(0).get<std::string>();
  const Json& value = record.at(1);
  if (kind == "int") return value.get<std::int64_t>();
  if (kind == "text") return value.get<std::string>();
  if (kind == "ints") return value.get<std::vector<std::int64_t>>();
  if (kind == "texts") return value.get<std::vector<std::string>>();
  if (kind == "graph") return std::make_shared<Graph>(graph_from_record(value, tensors, path));
  const Tensor tensor = tensors.at(value.get<std::int64_t>());
  if (kind == "tensor") return tensor;
  const auto* x = tensor.as<float>();
  if (kind == "float") return *x;
  if (kind == "floats") return std::vector<float>(x, x + tensor.size());
  fail(ErrorCode::kBadFile, "an attribute of unknown kind '{}'", kind);
}

Json node_record(const Node& node, TensorList& tensors) {
  Json attrs = Json::object();
  for (const auto& [key, attribute] : node.attrs) attrs[key] = attribute_record(attribute, tensors);
  Json record = {{"name", node.name},
                 {"domain", node.domain},
                 {"op", node.op},
                 {"in", numbers_of(node.in)},
                 {"out", numbers_of(node.out)},
                 {"declared", node.declared_inputs},
                 {"attrs", attrs}};
  if (node.fallback != nullptr) record["fallback"] = graph_record(*node.fallback, tensors);
  return record;
}

std::vector<ValueId> ids_from(const Json& record, std::size_t count, const std::string& path) {
  std::vector<ValueId> ids;
  for (const Json& one : record) {
    const auto number = one.get<std::int64_t>();
    if (number < -1 || number >= static_cast<std::int64_t>(count))
      throw make_error(ErrorCode::kBadFile, "a value that is not there").at(path);
    ids.push_back(static_cast<ValueId>(number));
  }
  return ids;
}

}  // namespace

std::int64_t TensorList::add(const Tensor& tensor) {
  if (tensor.empty()) return -1;
  if (tensor.dtype() == DType::kString)
    fail(ErrorCode::kUnsupported, "a constant of texts cannot be kept in a journal");
  const auto key = std::make_pair(tensor.data(), name(tensor.dtype()) + to_string(tensor.dims()));
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const auto number = static_cast<std::int64_t>(tensors_.size());
  tensors_.push_back(tensor);
  known_.emplace(key, number);
  return number;
}

void TensorList::leave_out(const Tensor& tensor, const std::string& name) {
  const std::int64_t number = add(tensor);
  if (number >= 0) left_out_.emplace(number, name);
}

Tensor TensorList::at(std::int64_t number) const {
  if (number == -1) return {};
  if (number < 0 || number >= static_cast<std::int64_t>(tensors_.size()))
    fail(ErrorCode::kBadFile, "a tensor that is not there");
  return tensors_[static_cast<std::size_t>(number)];
}

void TensorList::write(const std::string& path, const Json& head) const {
  Json list = Json::array();
  std::size_t offset = 0;
  Sha256 hash;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    Json record = {{"dtype", name(tensor.dtype())}, {"dims", tensor.dims()}};
    const auto out = left_out_.find(static_cast<std::int64_t>(i));
    if (out != left_out_.end()) {
      record["elsewhere"] = out->second;
      list.push_back(std::move(record));
      continue;
    }
    offset = next_offset(offset);
    record["offset"] = offset;
    list.push_back(std::move(record));
    offset += static_cast<std::size_t>(tensor.bytes());
    hash.update(tensor.byte_span());
  }
  hash.update(dump(list));
  hash.update(dump(head));
  AtomicFile file(path);
  file.write(header_line(dump(
      {{"head", head}, {"tensors", std::move(list)}, {"bytes", offset}, {"sha256", hex(hash.finish())}})));
  offset = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (left_out_.count(static_cast<std::int64_t>(i)) == 0) append_tensor(file, tensors_[i], offset);
  file.commit();
}

TensorList TensorList::read(const std::string& path, Json& head, const Elsewhere& elsewhere) {
  Json header;
  const TensorFile file(path, header);
  TensorList list;
  Sha256 hash;
  for (const Json& one : json_array(header, "tensors", path)) {
    if (one.contains("elsewhere")) {
      const DType dtype = stored_type(one, path);
      const Dims dims = stored_dims(one, path);
      const std::string name = json_string(one, "elsewhere", path);
      Tensor tensor;
      if (name.empty())
        tensor = absent_tensor(dtype, dims);
      else if (elsewhere)
        tensor = elsewhere(name);
      if (tensor.dtype() != dtype || tensor.dims() != dims)
        fail(ErrorCode::kBadFile, "the tensor '{}' is not what it was", name);
      list.tensors_.push_back(std::move(tensor));
      continue;
    }
    list.tensors_.push_back(file.at(one));
    hash.update(list.tensors_.back().byte_span());
  }
  head = json_object(header, "head", path);
  hash.update(dump(json_array(header, "tensors", path)));
  hash.update(dump(head));
  if (hex(hash.finish()) != json_string(header, "sha256", path)) fail(ErrorCode::kBadFile, "damaged");
  return list;
}

Json graph_record(const Graph& graph, TensorList& tensors) {
  Json values = Json::array(), nodes = Json::array(), captures = Json::array();
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    Json record = {{"name", value.name},
                   {"origin", value.origin},
                   {"dtype", static_cast<int>(value.dtype)},
                   {"shape", shape_record(value.shape)},
                   {"constant", tensors.add(value.constant)}};
    if (value.kind != ValueKind::kTensor) record["kind"] = static_cast<int>(value.kind);
    if (value.layout != Layout::kPlain) record["layout"] = static_cast<int>(value.layout);
    values.push_back(std::move(record));
  }
  for (const NodeId id : graph.nodes()) nodes.push_back(node_record(graph.node(id), tensors));
  for (const Capture& capture : graph.captures)
    captures.push_back({capture.input, static_cast<std::int64_t>(capture.inner)});
  return {{"name", graph.name},
          {"opset", graph.opset},
          {"metadata", graph.metadata},
          {"values", std::move(values)},
          {"nodes", std::move(nodes)},
          {"inputs", numbers_of(graph.inputs)},
          {"outputs", numbers_of(graph.outputs)},
          {"captures", std::move(captures)}};
}

Graph graph_from_record(const Json& record, const TensorList& tensors, const std::string& path) {
  Graph graph;
  graph.name = json_string(record, "name", path);
  graph.opset = static_cast<int>(json_int(record, "opset", path));
  graph.metadata = json_object(record, "metadata", path).get<std::map<std::string, std::string>>();
  for (const Json& one : json_array(record, "values", path)) {
    Value value;
    value.name = json_string(one, "name", path);
    value.origin = json_string(one, "origin", path);
    value.dtype = static_cast<DType>(json_int(one, "dtype", path));
    value.shape = shape_from(json_member(one, "shape", path));
    value.constant = tensors.at(json_int(one, "constant", path));
    if (one.contains("kind")) value.kind = static_cast<ValueKind>(json_int(one, "kind", path));
    if (one.contains("layout")) value.layout = static_cast<Layout>(json_int(one, "layout", path));
    graph.add_value(std::move(value));
  }
  for (const Json& one : json_array(record, "nodes", path)) {
    Node node;
    node.name = json_string(one, "name", path);
    node.domain = json_string(one, "domain", path);
    node.op = json_string(one, "op", path);
    node.in = ids_from(json_array(one, "in", path), graph.value_count(), path);
    node.out = ids_from(json_array(one, "out", path), graph.value_count(), path);
    node.declared_inputs = static_cast<int>(json_int(one, "declared", path));
    const Json& attrs = json_object(one, "attrs", path);
    for (auto it = attrs.begin(); it != attrs.end(); ++it)
      node.attrs.emplace(it.key(), attribute_from(it.value(), tensors, path));
    if (one.contains("fallback"))
      node.fallback = std::make_shared<Graph>(graph_from_record(one["fallback"], tensors, path));
    graph.add_node(std::move(node));
  }
  graph.inputs = ids_from(json_array(record, "inputs", path), graph.value_count(), path);
  graph.outputs = ids_from(json_array(record, "outputs", path), graph.value_count(), path);
  for (const Json& one : json_array(record, "captures", path))
    graph.captures.push_back(
        {one.at(0).get<int>(), ids_from(Json::array({one.at(1)}), graph.value_count(), path).at(0)});
  return graph;
}

}  // namespace pare
