#include <tuple>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/forms/qoperator_tools.h"

namespace pare {
namespace {

struct Quantized {  // one tensor of a QOperator node
  ValueId codes, scale, zero;
};

class ToQdq {
 public:
  ToQdq(Graph& graph, QuantizedFormReport& report) : graph_(graph), report_(report) {}

  void run() {
    for (const NodeId id : graph_.nodes()) {
      const Node node = graph_.node(id);
      const bool linear = node.is("QLinearConv") || node.is("QLinearMatMul");
      if (!linear && node.domain != kMicrosoft) continue;
      id_ = id;
      node_ = &node;
      if (!convert()) continue;
      ++report_.converted[node.op];
      graph_.remove_node(id);
    }
  }

 private:
  ValueId in(std::size_t slot) const { return input(*node_, slot); }
  Quantized triple(std::size_t slot) const { return {in(slot), in(slot + 1), in(slot + 2)}; }
  std::string stem() const { return node_->name.empty() ? graph_.value(node_->out.at(0)).name : node_->name; }

  // A scale of shape [1] is a scalar; shared by all users, so made once.
  ValueId as_scalar(ValueId id) {
    if (id == ValueId::kNone || !graph_.is_constant(id)) return id;
    const Tensor& value = graph_.value(id).constant;
    if (value.dims().empty() || value.size() != 1) return id;
    const auto known = scalars_.find(id);
    if (known != scalars_.end()) return known->second;
    return scalars_[id] = graph_.add_constant(graph_.value(id).name + "_scalar", value.reshaped({}));
  }

  ValueId dequantize(Quantized q, std::int64_t axis) {
    q.scale = as_scalar(q.scale);
    q.zero = as_scalar(q.zero);
    const bool one = graph_.value(q.scale).shape.rank() == 0;
    const auto key = std::make_tuple(q.codes, q.scale, q.zero, one ? std::int64_t{0} : axis);
    const auto known = dequantized_.find(key);
    if (known != dequantized_.end()) return known->second;
    Node node;
    const std::string name = graph_.value(q.codes).name + "_DequantizeLinear";
    node.name = name;
    node.op = "DequantizeLinear";
    node.in = {q.codes, q.scale};
    if (q.zero != ValueId::kNone) node.in.push_back(q.zero);
    if (!one) node.attrs["axis"] = axis;
    return dequantized_[key] = emit_before(graph_, id_, std::move(node), name + "_Output", DType::kF32);
  }

  // s_x * s_w, rounded once as ONNX Runtime's bias scale is; computed at run time where one is not constant.
  ValueId bias_scale(ValueId x, ValueId w) {
    const std::string name = stem() + "_bias_scale";
    if (!graph_.is_constant(x) || !graph_.is_constant(w)) {
      Node mul;
      mul.name = name;
      mul.op = "Mul";
      mul.in = {as_scalar(x), as_scalar(w)};
      return emit_before(graph_, id_, std::move(mul), name, DType::kF32);
    }
    const Tensor& scales = graph_.value(as_scalar(w)).constant;
    Tensor product = Tensor::allocate(DType::kF32, scales.dims());
    const float factor = *graph_.value(x).constant.as<float>();
    for (std::int64_t i = 0; i < product.size(); ++i)
      product.mut<float>()[i] = factor * scales.as<float>()[i];
    return graph_.add_constant(name, std::move(product));
  }

  ValueId dequantize_bias(ValueId bias, ValueId x_scale, ValueId w_scale) {
    if (bias == ValueId::kNone) return bias;
    return dequantize({bias, bias_scale(x_scale, w_scale), ValueId::kNone}, 0);
  }

  // The float operator and the QuantizeLinear that makes the node's own output.
  void finish(const char* op, std::vector<ValueId> ins, Attributes attrs, ValueId scale, ValueId zero) {
    Node compute;
    compute.name = node_->name;
    compute.op = op;
    compute.in = std::move(ins);
    compute.attrs = std::move(attrs);
    const std::string name = graph_.value(node_->out.at(0)).name;
    const ValueId out = node_->out[0];
    graph_.set_output(id_, 0, ValueId::kNone);
    if (scale == ValueId::kNone) {  // QGemm with a float output
      compute.out = {out};
      graph_.insert_before(id_, std::move(compute));
      return;
    }
    const ValueId result = emit_before(graph_, id_, std::move(compute), name + "_float", DType::kF32);
    Node quantize;
    quantize.name = name + "_QuantizeLinear";
    quantize.op = "QuantizeLinear";
    quantize.in = {result, as_scalar(scale)};
    if (zero != ValueId::kNone) quantize.in.push_back(as_scalar(zero));
    quantize.out = {out};
    graph_.insert_before(id_, std::move(quantize));
  }

  bool leave(const std::string& why) {
    report_.left.push_back({stem(), fmt::format("{}: {}", node_->op, why)});
    return false;
  }

  Attributes without(std::initializer_list<const char*> keys) const {
    Attributes attrs = node_->attrs;
    for (const char* key : keys) attrs.erase(key);
    return attrs;
  }

  bool scales_are_float32(std::initializer_list<std::size_t> slots) const {
    for (const std::size_t slot : slots)
      if (in(slot) == ValueId::kNone || graph_.value(in(slot)).dtype != DType::kF32 ||
          !graph_.value(in(slot)).shape.ranked)
        return false;
    return true;
  }

  bool convert() {
    const std::string& op = node_->op;
    if (op == "QLinearConv") return convolution();
    if (op == "QLinearMatMul") return product();
    if (op == "QLinearAdd" || op == "QLinearMul") {
      if (!scales_are_float32({1, 4, 6})) return leave("its scales are not float32");
      finish(op == "QLinearAdd" ? "Add" : "Mul", {dequantize(triple(0), 0), dequantize(triple(3), 0)}, {},
             in(6), in(7));
      return true;
    }
    if (op == "QGemm") return gemm();
    if (op == "QLinearConcat") return concat();
    static const std::map<std::string, const char*> kUnary = {
        {"QLinearSigmoid", "Sigmoid"},
        {"QLinearLeakyRelu", "LeakyRelu"},
        {"QLinearSoftmax", "Softmax"},
        {"QLinearAveragePool", "AveragePool"},
        {"QLinearGlobalAveragePool", "GlobalAveragePool"}};
    const auto unary = kUnary.find(op);
    if (unary == kUnary.end()) {
      if (op.rfind("QLinear", 0) == 0) leave("it has no float counterpart here");
      return false;
    }
    if (node_->attr("channels_last", std::int64_t{0}) != 0) return leave("its channels are last");
    if (op == "QLinearSoftmax" && node_->attr("opset", std::int64_t{13}) < 13)
      return leave("its axis is that of opsets below 13");
    if (!scales_are_float32({1, 3})) return leave("its scales are not float32");
    finish(unary->second, {dequantize(triple(0), 0)}, without({"channels_last", "opset"}), in(3), in(4));
    return true;
  }

  bool convolution() {
    if (!scales_are_float32({1, 4, 6})) return leave("its scales are not float32");
    std::vector<ValueId> ins = {dequantize(triple(0), 0), dequantize(triple(3), 0)};
    const ValueId bias = dequantize_bias(in(8), in(1), in(4));
    if (bias != ValueId::kNone) ins.push_back(bias);
    finish("Conv", std::move(ins), node_->attrs, in(6), in(7));
    return true;
  }

  bool product() {
    if (!scales_are_float32({1, 4, 6})) return leave("its scales are not float32");
    const int a = graph_.value(in(0)).shape.rank(), b = graph_.value(in(3)).shape.rank();
    const int as = graph_.value(in(1)).shape.rank(), bs = graph_.value(in(4)).shape.rank();
    if (as > 1 || bs > 1 || (as == 1 && a < 2) || (bs == 1 && b < 2))
      return leave("the shape of its scales has no counterpart");
    finish("MatMul", {dequantize(triple(0), a - 2), dequantize(triple(3), b - 1)}, {}, in(6), in(7));
    return true;
  }

  bool gemm() {
    if (!scales_are_float32({1, 4})) return leave("its scales are not float32");
    const bool transposed = node_->attr("transB", std::int64_t{0}) != 0;
    if (node_->attr("alpha", 1.0F) != 1.0F && in(6) != ValueId::kNone)
      return leave("its alpha scales the bias too");
    std::vector<ValueId> ins = {dequantize(triple(0), 0), dequantize(triple(3), transposed ? 0 : 1)};
    const ValueId bias = dequantize_bias(in(6), in(1), in(4));
    if (bias != ValueId::kNone) ins.push_back(bias);
    finish("Gemm", std::move(ins), node_->attrs, in(7), in(8));
    return true;
  }

  bool concat() {
    if (!scales_are_float32({0}) || (node_->in.size() - 2) % 3 != 0)
      return leave("its inputs are no triples");
    std::vector<ValueId> ins;
    for (std::size_t slot = 2; slot < node_->in.size(); slot += 3) {
      if (!scales_are_float32({slot + 1})) return leave("its scales are not float32");
      ins.push_back(dequantize(triple(slot), 0));
    }
    finish("Concat", std::move(ins), node_->attrs, in(0), in(1));
    return true;
  }

  Graph& graph_;
  QuantizedFormReport& report_;
  NodeId id_ = NodeId::kNone;
  const Node* node_ = nullptr;
  std::map<ValueId, ValueId> scalars_;
  std::map<std::tuple<ValueId, ValueId, ValueId, std::int64_t>, ValueId> dequantized_;
};

}  // namespace

QuantizedFormReport to_qdq(Graph& graph) {
  return in_other_form(graph, [](Graph& g, QuantizedFormReport& report) { ToQdq(g, report).run(); });
}

}  // namespace pare
