#include "graphsurgeon/graph_hash.h"

#include <memory>
#include <variant>

#include "engine/base/error.h"

namespace pare {
namespace {

void add_text(Sha256& hash, std::string_view text) {
  hash.update_number(text.size());
  hash.update(text);
}

void add_tensor(Sha256& hash, const Tensor& tensor) {
  hash.update_number(static_cast<std::uint64_t>(tensor.dtype()));
  hash.update_number(tensor.dims().size());
  for (const std::int64_t size : tensor.dims()) hash.update_number(static_cast<std::uint64_t>(size));
  if (tensor.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) add_text(hash, tensor.as<std::string>()[i]);
    return;
  }
  hash.update(tensor.byte_span());
}

void add_graph(Sha256& hash, const Graph& graph);

struct AttributeHash {
  Sha256& hash;

  void operator()(std::int64_t v) const { hash.update_number(static_cast<std::uint64_t>(v)); }
  void operator()(float v) const { hash.update(std::as_bytes(std::span(&v, 1))); }
  void operator()(const std::string& v) const { add_text(hash, v); }
  void operator()(const std::vector<std::string>& v) const {
    hash.update_number(v.size());
    for (const std::string& text : v) add_text(hash, text);
  }
  template <typename T>
  void operator()(const std::vector<T>& v) const {
    hash.update_number(v.size());
    hash.update(std::as_bytes(std::span(v)));
  }
  void operator()(const Tensor& v) const { add_tensor(hash, v); }
  void operator()(const std::shared_ptr<Graph>& v) const { add_graph(hash, *v); }
};

void add_value(Sha256& hash, const Graph& graph, ValueId id) {
  if (id == ValueId::kNone) return hash.update_number(0);
  const Value& value = graph.value(id);
  hash.update_number(value.is_constant() ? 2 : 1);
  if (value.is_constant())
    add_tensor(hash, value.constant);
  else
    add_text(hash, value.name);
}

void add_graph(Sha256& hash, const Graph& graph) {
  hash.update_number(graph.inputs.size());
  for (const ValueId id : graph.inputs) {
    add_text(hash, graph.value(id).name);
    hash.update_number(static_cast<std::uint64_t>(graph.value(id).dtype));
    add_text(hash, to_string(graph.value(id).shape));
    if (graph.value(id).kind != ValueKind::kTensor) add_text(hash, name(graph.value(id).kind));
  }
  hash.update_number(graph.captures.size());
  for (const Capture& capture : graph.captures) {
    hash.update_number(static_cast<std::uint64_t>(capture.input));
    add_text(hash, graph.value(capture.inner).name);
  }
  hash.update_number(graph.node_count());
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    add_text(hash, node.domain);
    add_text(hash, node.op);
    hash.update_number(node.in.size());
    for (const ValueId in : node.in) add_value(hash, graph, in);
    hash.update_number(node.out.size());
    for (const ValueId out : node.out) add_value(hash, graph, out);
    hash.update_number(node.attrs.size());
    for (const auto& [key, attribute] : node.attrs) {
      add_text(hash, key);
      hash.update_number(attribute.index());
      std::visit(AttributeHash{hash}, attribute);
    }
  }
  hash.update_number(graph.outputs.size());
  for (const ValueId id : graph.outputs) {
    add_value(hash, graph, id);
    add_text(hash, graph.value(id).name);
  }
}

}  // namespace

Digest graph_hash(const Graph& graph) {
  Sha256 hash;
  add_text(hash, "pare graph 1");
  add_graph(hash, graph);
  return hash.finish();
}

}  // namespace pare
