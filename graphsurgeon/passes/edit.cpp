#include "graphsurgeon/passes/edit.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "engine/numeric/table.h"

namespace pare {

bool same_shape(const Shape& a, const Shape& b) {
  if (!a.ranked || !b.ranked || a.dims.size() != b.dims.size()) return false;
  for (std::size_t i = 0; i < a.dims.size(); ++i)
    if (!a.dims[i].same(b.dims[i])) return false;
  return true;
}

ValueId input_of(const Node& node, std::size_t slot) {
  return slot < node.in.size() ? node.in[slot] : ValueId::kNone;
}

std::optional<std::vector<std::int64_t>> constant_ints(const Graph& graph, const Node& node,
                                                       std::size_t slot) {
  const ValueId id = input_of(node, slot);
  if (!graph.is_constant(id) || !is_integer(graph.value(id).dtype)) return std::nullopt;
  return graph.value(id).constant.to_ints();
}

bool can_bypass(const Graph& graph, NodeId id, ValueId from) {
  if (!graph.is_output(graph.node(id).out.at(0))) return true;
  return graph.producer(from) != NodeId::kNone && !graph.is_output(from);
}

bool bypass(Graph& graph, NodeId id, ValueId from) {
  const ValueId out = graph.node(id).out.at(0);
  if (!graph.is_output(out)) {
    graph.remove_node(id);
    graph.replace_uses(out, from);
    return true;
  }
  const NodeId producer = graph.producer(from);
  if (producer == NodeId::kNone || graph.is_output(from)) return false;
  const int slot = graph.value(from).producer_slot;
  graph.remove_node(id);
  graph.set_output(producer, slot, out);
  graph.replace_uses(from, out);
  return true;
}

void replace_by_constants(Graph& graph, NodeId id, std::vector<Tensor> values) {
  const std::vector<ValueId> outs = graph.node(id).out;
  graph.remove_node(id);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (outs[i] == ValueId::kNone) continue;
    Value& value = graph.value(outs[i]);
    value.dtype = values[i].dtype();
    value.shape = Shape(values[i].dims());
    value.constant = std::move(values[i]);
  }
}

namespace {

template <typename T, typename Convert>
void copy_as_double(const Tensor& tensor, std::vector<double>& out, const Convert& convert) {
  const T* data = tensor.as<T>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    T element;
    std::memcpy(&element, data + i, sizeof element);
    out[i] = convert(element);
  }
}

}  // namespace

bool to_doubles(const Tensor& tensor, std::vector<double>& out) {
  out.resize(static_cast<std::size_t>(tensor.size()));
  switch (tensor.dtype()) {
    case DType::kF64:
      copy_as_double<double>(tensor, out, [](double v) { return v; });
      return true;
    case DType::kF32:
      copy_as_double<float>(tensor, out, [](float v) { return static_cast<double>(v); });
      return true;
    case DType::kF16:
    case DType::kBF16: {
      std::vector<float> floats(out.size());
      format_info(tensor.dtype()).decode(tensor.data(), floats.data(), tensor.size());
      out.assign(floats.begin(), floats.end());
      return true;
    }
    default:
      return false;
  }
}

bool from_doubles(DType type, const Dims& dims, const std::vector<double>& values, Tensor& out) {
  if (type != DType::kF64 && type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) return false;
  const double largest = format_info(type).largest;
  for (const double v : values)
    if (!(std::fabs(v) <= largest)) return false;
  out = Tensor::allocate(type, dims);
  if (type == DType::kF64) {
    std::copy(values.begin(), values.end(), out.mut<double>());
    return true;
  }
  std::vector<float> floats(values.begin(), values.end());
  if (type == DType::kF32)
    std::copy(floats.begin(), floats.end(), out.mut<float>());
  else
    format_info(type).encode(floats.data(), out.mut<void>(), out.size());
  return true;
}

ValueId replacement_constant(Graph& graph, ValueId old, const std::string& name_if_none, Tensor tensor) {
  if (old == ValueId::kNone) return graph.add_constant(name_if_none, std::move(tensor));
  const std::string name = graph.value(old).name;
  const std::string origin = graph.value(old).origin;
  if (graph.users(old).size() == 1 && !graph.is_output(old)) graph.rename(old, name + "_before_folding");
  const ValueId id = graph.add_constant(name, std::move(tensor));
  graph.value(id).origin = origin;
  return id;
}

}  // namespace pare
