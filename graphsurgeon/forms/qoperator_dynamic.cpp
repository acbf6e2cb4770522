// Dynamically quantized layers as integer operators: the part of to_qoperator that needs no QuantizeLinear.
//
//   DynamicQuantizeLinear -> DequantizeLinear -> MatMul, Gemm, Conv   becomes
//   DynamicQuantizeLinear -> MatMulInteger or ConvInteger -> Cast -> Mul by s_x * s_w [-> Add of the bias]
#include <algorithm>

#include "engine/base/error.h"
#include "graphsurgeon/forms/qoperator_tools.h"

namespace pare {
namespace {

struct Operand {
  ValueId codes = ValueId::kNone, scale = ValueId::kNone, zero = ValueId::kNone;
  std::int64_t axis = 1;
};

class DynamicLayers {
 public:
  DynamicLayers(Graph& graph, QuantizedFormReport& report) : graph_(graph), report_(report) {}

  void run() {
    for (const NodeId id : graph_.nodes()) {
      if (!graph_.alive(id)) continue;
      node_ = graph_.node(id);
      id_ = id;
      if (!node_.is("MatMul") && !node_.is("Gemm") && !node_.is("Conv")) continue;
      Operand x;
      if (!behind(node_.in.at(0), x) || !is_dynamic(x.codes)) continue;
      const std::string why = convert(x);
      if (why.empty())
        ++report_.converted[node_.op];
      else
        report_.left.push_back({node_.name.empty() ? graph_.value(node_.out.at(0)).name : node_.name,
                                fmt::format("{}: {}", node_.op, why)});
    }
    remove_unread(graph_, {"DequantizeLinear"});
  }

 private:
  bool behind(ValueId value, Operand& operand) const {
    const NodeId p = value == ValueId::kNone ? NodeId::kNone : graph_.producer(value);
    if (p == NodeId::kNone || !graph_.node(p).is("DequantizeLinear")) return false;
    const Node& dq = graph_.node(p);
    operand = {dq.in.at(0), dq.in.at(1), input(dq, 2), dq.attr("axis", std::int64_t{1})};
    return dq.attr("block_size", std::int64_t{0}) == 0;
  }

  bool is_dynamic(ValueId codes) const {
    const NodeId p = graph_.producer(codes);
    return p != NodeId::kNone && graph_.node(p).is("DynamicQuantizeLinear");
  }

  bool all_zero(ValueId zero) const {
    if (zero == ValueId::kNone) return true;
    if (!graph_.is_constant(zero)) return false;
    const std::vector<std::int64_t> points = graph_.value(zero).constant.to_ints();
    return std::all_of(points.begin(), points.end(), [](std::int64_t z) { return z == 0; });
  }

  // In front of the node, named after its output.
  ValueId emit(const char* op, const char* suffix, std::vector<ValueId> in, DType type,
               Attributes attrs = {}) {
    Node node;
    node.op = op;
    node.name = graph_.value(node_.out[0]).name + suffix;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    const std::string name = node.name;
    return emit_before(graph_, id_, std::move(node), name, type);
  }

  std::string convert(const Operand& x) {
    Operand w;
    if (!behind(node_.in.at(1), w)) return "its weight is not quantized, or in blocks";
    const bool conv = node_.is("Conv"), gemm = node_.is("Gemm");
    if (!graph_.is_constant(w.codes) || !graph_.is_constant(w.scale)) return "its weight is computed";
    Tensor codes = graph_.value(w.codes).constant;
    const Tensor scales = graph_.value(w.scale).constant;
    if (codes.dtype() != DType::kI8 && codes.dtype() != DType::kU8) return "its weight has no 8-bit codes";
    if (scales.dtype() != DType::kF32) return "a scale is not float32";
    if (!all_zero(w.zero)) return "its weight has a zero point";
    const int rank = static_cast<int>(codes.dims().size());
    const bool transposed = gemm && node_.attr("transB", std::int64_t{0}) != 0;
    const std::int64_t outputs = conv || transposed ? 0 : rank - 1;
    if (scales.size() != 1 && (w.axis + rank) % rank != outputs)
      return "its weight has scales along another axis than its outputs";
    if (gemm && (node_.attr("transA", std::int64_t{0}) != 0 || node_.attr("alpha", 1.0F) != 1.0F ||
                 node_.attr("beta", 1.0F) != 1.0F))
      return "its transA, alpha or beta is not what a plain product has";

    ValueId weight = w.codes;
    if (transposed)
      weight = graph_.add_constant(graph_.value(w.codes).name + "_transposed", transpose(codes));
    const ValueId sum = emit(conv ? "ConvInteger" : "MatMulInteger", "_integer", {x.codes, weight, x.zero},
                             DType::kI32, conv ? node_.attrs : Attributes{});
    const ValueId real =
        emit("Cast", "_real", {sum}, DType::kF32, {{"to", static_cast<std::int64_t>(DType::kF32)}});
    // One scale an output channel: along axis 1 of a convolution's result, the last of a product's.
    Dims along;
    if (scales.size() != 1) {
      along.push_back(scales.size());
      if (conv) along.insert(along.end(), static_cast<std::size_t>(rank - 2), 1);
    }
    const ValueId per_output =
        graph_.add_constant(graph_.value(w.scale).name + "_along", scales.reshaped(along));
    const ValueId scale = emit("Mul", "_scale", {x.scale, per_output}, DType::kF32);
    ValueId bias = input(node_, 2);
    if (conv && bias != ValueId::kNone) {
      if (!graph_.is_constant(bias)) return "its bias is computed";
      Dims dims = {graph_.value(bias).constant.size()};
      dims.insert(dims.end(), static_cast<std::size_t>(rank - 2), 1);
      bias =
          graph_.add_constant(graph_.value(bias).name + "_along", graph_.value(bias).constant.reshaped(dims));
    }
    if (bias == ValueId::kNone)
      replace("Mul", {real, scale});
    else
      replace("Add", {emit("Mul", "_scaled", {real, scale}, DType::kF32), bias});
    return {};
  }

  // The last operator takes the node's name, place and output.
  void replace(const char* op, std::vector<ValueId> in) {
    Node node;
    node.op = op;
    node.name = node_.name;
    node.in = std::move(in);
    const ValueId out = node_.out.at(0);
    graph_.set_output(id_, 0, ValueId::kNone);
    node.out = {out};
    graph_.insert_before(id_, std::move(node));
    graph_.remove_node(id_);
  }

  static Tensor transpose(const Tensor& codes) {
    const std::int64_t rows = codes.dims()[0], columns = codes.dims()[1];
    Tensor result = Tensor::allocate(codes.dtype(), {columns, rows});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        result.mut<std::uint8_t>()[c * rows + r] = codes.as<std::uint8_t>()[r * columns + c];
    return result;
  }

  Graph& graph_;
  QuantizedFormReport& report_;
  NodeId id_ = NodeId::kNone;
  Node node_;  // a copy: inserting moves nodes
};

}  // namespace

void dynamic_to_integer(Graph& graph, QuantizedFormReport& report) { DynamicLayers(graph, report).run(); }

}  // namespace pare
