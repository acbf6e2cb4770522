// QLinearConv and QLinearMatMul become DequantizeLinear, Conv or MatMul, QuantizeLinear, which lower_integer
// then turns into integer kernels, activations and residuals included. Left as they are where scales or zero
// points are computed, or more than one belongs to the activations.
#include "engine/base/error.h"
#include "engine/build/lower/lowering.h"

namespace pare::lowering {
namespace {

// The one element of a constant float32, or false.
bool one_number(const Graph& graph, ValueId id, float& out) {
  if (!graph.is_constant(id)) return false;
  const Tensor& tensor = graph.value(id).constant;
  if (tensor.dtype() != DType::kF32 || tensor.size() != 1) return false;
  out = *tensor.as<float>();
  return true;
}

class Expansion {
 public:
  Expansion(Graph& graph, NodeId id) : graph_(graph), id_(id), node_(graph.node(id)) {}

  bool possible() const {
    float number = 0;
    if (node_.in.size() < 8 || !one_number(graph_, node_.in[1], number) ||
        !one_number(graph_, node_.in[6], number))
      return false;
    for (const std::size_t i : {2U, 4U, 5U, 7U})
      if (node_.in[i] == ValueId::kNone || !graph_.is_constant(node_.in[i])) return false;
    const Value& scale = graph_.value(node_.in[4]);
    if (scale.dtype != DType::kF32 || scale.shape.rank() > 1 || graph_.value(node_.in[3]).shape.rank() < 2)
      return false;
    const DType type = graph_.value(node_.in[0]).dtype;
    return (type == DType::kI8 || type == DType::kU8) &&
           (node_.in.size() < 9 || node_.in[8] == ValueId::kNone || graph_.is_constant(node_.in[8]));
  }

  void run() {
    const bool conv = node_.is("QLinearConv");
    const std::int64_t axis = conv ? 0 : graph_.value(node_.in[3]).shape.rank() - 1;
    const bool per_tensor = graph_.value(node_.in[4]).constant.size() == 1;
    Node linear;
    linear.name = node_.name;
    linear.op = conv ? "Conv" : "MatMul";
    linear.in = {dequantized("x", {node_.in[0], node_.in[1], node_.in[2]}, 1),
                 dequantized("w", {node_.in[3], node_.in[4], node_.in[5]}, per_tensor ? 1 : axis)};
    if (node_.in.size() > 8 && node_.in[8] != ValueId::kNone) linear.in.push_back(bias());
    linear.attrs = node_.attrs;
    linear.out = {value("sum", graph_.value(node_.out[0]).shape)};
    const ValueId sum = linear.out[0];
    graph_.insert_before(id_, std::move(linear));
    Node quantize;
    quantize.name = node_.name + "_quantize";
    quantize.op = "QuantizeLinear";
    quantize.in = {sum, node_.in[6], node_.in[7]};
    const ValueId y = node_.out[0];
    graph_.set_output(id_, 0, ValueId::kNone);
    quantize.out = {y};
    graph_.insert_before(id_, std::move(quantize));
    graph_.remove_node(id_);
  }

 private:
  ValueId value(const char* what, const Shape& shape) {
    Value made;
    made.name = graph_.value(node_.out[0]).name + "_" + what;
    made.dtype = DType::kF32;
    made.shape = shape;
    return graph_.add_value(std::move(made));
  }
  ValueId dequantized(const char* what, const std::vector<ValueId>& in, std::int64_t axis) {
    Node node;
    node.name = node_.name + "_" + what;
    node.op = "DequantizeLinear";
    node.in = in;
    node.attrs["axis"] = axis;
    node.out = {value(what, graph_.value(in[0]).shape)};
    const ValueId out = node.out[0];
    graph_.insert_before(id_, std::move(node));
    return out;
  }
  // int32 with scale x_scale * w_scale, as float32.
  ValueId bias() {
    const Tensor &codes = graph_.value(node_.in[8]).constant, &scale = graph_.value(node_.in[4]).constant;
    const float x_scale = *graph_.value(node_.in[1]).constant.as<float>();
    Tensor numbers = Tensor::allocate(DType::kF32, codes.dims());
    for (std::int64_t i = 0; i < codes.size(); ++i)
      numbers.mut<float>()[i] = static_cast<float>(codes.as<std::int32_t>()[i]) *
                                (x_scale * scale.as<float>()[scale.size() == 1 ? 0 : i]);
    return graph_.add_constant(node_.name + "_bias", std::move(numbers));
  }

  Graph& graph_;
  NodeId id_;
  const Node node_;
};

}  // namespace

void expand_qlinear(Graph& graph) {
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!node.is("QLinearConv") && !node.is("QLinearMatMul")) continue;
    Expansion expansion(graph, id);
    if (expansion.possible()) expansion.run();
  }
}

}  // namespace pare::lowering
