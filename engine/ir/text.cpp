// The text form: for people, and for tests that two graphs are equal.
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/ir/graph.h"

namespace pare {
namespace {

std::string tensor_text(const Tensor& tensor) {
  std::string text = fmt::format("{}{}", name(tensor.dtype()), to_string(tensor.dims()));
  if (tensor.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) text += " \"" + tensor.as<std::string>()[i] + "\"";
    return text;
  }
  // Small integer constants are shapes and axes: worth reading.
  if (tensor.size() <= 8 && (tensor.dtype() == DType::kI64 || tensor.dtype() == DType::kI32)) {
    text += " {";
    for (const std::int64_t v : tensor.to_ints()) text += fmt::format(" {}", v);
    return text + " }";
  }
  if (tensor.size() == 1 && tensor.dtype() == DType::kF32)
    return text + fmt::format(" {{ {} }}", *tensor.as<float>());
  return text + " #" + hex(sha256(tensor.byte_span())).substr(0, 16);
}

struct AttributeText {
  int indent;
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(float v) const { return fmt::format("{}f", v); }
  std::string operator()(const std::string& v) const { return '"' + v + '"'; }
  std::string operator()(const Tensor& v) const { return tensor_text(v); }
  std::string operator()(const std::vector<std::string>& v) const {
    std::string text = "[";
    for (const std::string& s : v) text += (text.size() > 1 ? "," : "") + ('"' + s + '"');
    return text + "]";
  }
  template <typename T>
  std::string operator()(const std::vector<T>& v) const {
    std::string text = "[";
    for (const T& x : v) text += (text.size() > 1 ? "," : "") + fmt::format("{}", x);
    return text + "]";
  }
  std::string operator()(const std::shared_ptr<Graph>& v) const {
    std::string text = "{\n", inner = to_text(*v);
    const std::string pad(static_cast<std::size_t>(indent), ' ');
    std::size_t begin = 0;
    while (begin < inner.size()) {
      const std::size_t end = inner.find('\n', begin);
      text += pad + inner.substr(begin, end - begin) + "\n";
      begin = end + 1;
    }
    return text + pad + "}";
  }
};

std::string value_name(const Graph& graph, ValueId id) {
  return id == ValueId::kNone ? "_" : "%" + graph.value(id).name;
}

std::string typed(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  const std::string kind = value.kind == ValueKind::kTensor ? "" : std::string(name(value.kind)) + " of ";
  return fmt::format("%{}: {}{}{}{}", value.name, kind, name(value.dtype), to_string(value.shape),
                     value.layout == Layout::kChannelsLast ? " channels_last" : "");
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text = "graph(";
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    text += (i ? ", " : "") + typed(graph, graph.inputs[i]);
  text += ")\n";
  for (const Capture& capture : graph.captures)
    text += fmt::format("  capture {} = outer input {}\n", typed(graph, capture.inner), capture.input);
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (graph.is_constant(id) && (!graph.users(id).empty() || graph.is_output(id)))
      text += fmt::format("  const %{} = {}\n", graph.value(id).name, tensor_text(graph.value(id).constant));
  }
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    text += "  ";
    for (std::size_t i = 0; i < node.out.size(); ++i)
      text +=
          (i ? ", " : "") + (node.out[i] == ValueId::kNone ? std::string("_") : typed(graph, node.out[i]));
    text += fmt::format(" = {}{}{}(", node.domain, node.domain.empty() ? "" : ".", node.op);
    for (std::size_t i = 0; i < node.in.size(); ++i) text += (i ? ", " : "") + value_name(graph, node.in[i]);
    text += ")";
    for (const auto& [key, attribute] : node.attrs)
      text += fmt::format(" {}={}", key, std::visit(AttributeText{2}, attribute));
    text += "\n";
  }
  text += "  return";
  for (const ValueId id : graph.outputs) text += " " + value_name(graph, id);
  return text + "\n";
}

}  // namespace pare
