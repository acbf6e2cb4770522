#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/forms/qoperator_tools.h"

namespace pare {
namespace {

bool is_code(DType type) { return type == DType::kI8 || type == DType::kU8; }

struct Dequantized {
  ValueId codes = ValueId::kNone, scale = ValueId::kNone, zero = ValueId::kNone;
  std::int64_t axis = 1;
  bool per_tensor = false;
};

// Operators that move values and compute none.
bool moves_values(const Node& node) {
  static const char* const kOps[] = {"Reshape", "Flatten", "Transpose", "Squeeze",      "Unsqueeze",
                                     "Slice",   "Gather",  "MaxPool",   "DepthToSpace", "SpaceToDepth"};
  return node.domain.empty() &&
         std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.op == op; });
}

class ToQOperator {
 public:
  ToQOperator(Graph& graph, QuantizedFormReport& report) : graph_(graph), report_(report) {}

  void run() {
    for (const NodeId id : graph_.nodes())
      if (graph_.alive(id) && graph_.node(id).is("QuantizeLinear")) visit(id);
    remove_unread(graph_, {"DequantizeLinear"});
  }

 private:
  void visit(NodeId quantize) {
    q_ = graph_.node(quantize);
    quantize_ = quantize;
    ValueId result = q_.in.at(0);
    NodeId producer = graph_.producer(result);
    if (producer == NodeId::kNone) return;  // of a graph input: the float border
    NodeId relu = NodeId::kNone;
    if (graph_.node(producer).is("Relu") && lowest_zero_point()) {
      relu = producer;
      const ValueId before = graph_.node(relu).in.at(0);
      const NodeId compute = graph_.producer(before);
      if (compute == NodeId::kNone || graph_.only_user(before) != relu || moves_values(graph_.node(compute)))
        return;
      producer = compute;
    }
    node_ = graph_.node(producer);
    if (node_.is("DequantizeLinear") || !reads_codes(node_)) return;
    const ValueId last = relu != NodeId::kNone ? graph_.node(relu).out.at(0) : result;
    if (graph_.only_user(last) != quantize) return leave("its output is read in float as well");
    if (const std::string why = bad_output(); !why.empty()) return leave(why);
    const std::string why = convert();
    if (!why.empty()) return leave(why);
    ++report_.converted[node_.op];
    graph_.remove_node(quantize);
    if (relu != NodeId::kNone) graph_.remove_node(relu);
    graph_.remove_node(producer);
  }

  void leave(const std::string& why) {
    report_.left.push_back({node_.name.empty() ? graph_.value(node_.out.at(0)).name : node_.name,
                            fmt::format("{}: {}", node_.op, why)});
  }

  // Some input comes from codes: a node that somebody meant to quantize.
  bool reads_codes(const Node& node) const {
    return std::any_of(node.in.begin(), node.in.end(), [&](ValueId in) {
      const NodeId p = in == ValueId::kNone ? NodeId::kNone : graph_.producer(in);
      return p != NodeId::kNone && graph_.node(p).is("DequantizeLinear");
    });
  }

  bool lowest_zero_point() const {
    const ValueId zero = input(q_, 2);
    if (zero == ValueId::kNone) return graph_.value(q_.out.at(0)).dtype == DType::kU8;
    if (!graph_.is_constant(zero) || graph_.value(zero).constant.size() != 1) return false;
    const std::int64_t z = graph_.value(zero).constant.to_ints()[0];
    return graph_.value(zero).dtype == DType::kU8 ? z == 0
                                                  : graph_.value(zero).dtype == DType::kI8 && z == -128;
  }

  std::string bad_scale(ValueId scale) const {
    if (graph_.value(scale).dtype != DType::kF32) return "a scale is not float32";
    if (!graph_.is_constant(scale)) return "a scale is computed";
    const Tensor& values = graph_.value(scale).constant;
    for (std::int64_t i = 0; i < values.size(); ++i)
      if (!(values.as<float>()[i] > 0)) return "a scale is not positive";
    return {};
  }

  std::string bad_output() const {
    if (!is_code(graph_.value(q_.out.at(0)).dtype)) return "its output codes are not 8-bit integers";
    if (graph_.value(q_.in.at(1)).constant.size() != 1) return "its output has a scale a channel";
    return bad_scale(q_.in[1]);
  }

  // The codes behind a float input; "" or why not.
  std::string behind(ValueId value, Dequantized& d) const {
    const NodeId p = value == ValueId::kNone ? NodeId::kNone : graph_.producer(value);
    if (p == NodeId::kNone || !graph_.node(p).is("DequantizeLinear")) return "an input is not quantized";
    const Node& node = graph_.node(p);
    d.codes = node.in.at(0);
    d.scale = node.in.at(1);
    d.zero = input(node, 2);
    d.axis = node.attr("axis", std::int64_t{1});
    if (node.attr("block_size", std::int64_t{0}) != 0) return "it has blocks of scales";
    if (!is_code(graph_.value(d.codes).dtype)) return "its codes are not 8-bit integers";
    d.per_tensor = graph_.is_constant(d.scale) && graph_.value(d.scale).constant.size() == 1;
    return bad_scale(d.scale);
  }

  // QOperators want zero points: zeros of the codes' type and the scale's shape.
  ValueId zero_of(const Dequantized& d) {
    if (d.zero != ValueId::kNone) return d.zero;
    return zeros(graph_.value(d.codes).dtype, graph_.value(d.scale).constant.dims());
  }
  ValueId zeros(DType type, const Dims& dims) {
    Tensor zero = Tensor::allocate(type, dims);
    for (std::int64_t i = 0; i < zero.size(); ++i) zero.mut<std::uint8_t>()[i] = 0;
    return graph_.add_constant("zero_point", std::move(zero));
  }
  ValueId output_zero() {
    const ValueId zero = input(q_, 2);
    return zero != ValueId::kNone ? zero : zeros(graph_.value(q_.out.at(0)).dtype, {});
  }

  void finish(const char* domain, const char* op, std::vector<ValueId> in, Attributes attrs) {
    Node node;
    node.name = node_.name;
    node.domain = domain;
    node.op = op;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    const ValueId out = q_.out.at(0);
    graph_.set_output(quantize_, 0, ValueId::kNone);
    node.out = {out};
    graph_.insert_before(quantize_, std::move(node));
  }

  std::string convert() {
    if (node_.is("Conv")) return convolution();
    if (node_.is("MatMul")) return product();
    if (node_.is("Gemm")) return gemm();
    if (node_.is("Add") || node_.is("Mul")) return pair();
    if (node_.is("Concat")) return concat();
    if (moves_values(node_)) return move();
    static const std::map<std::string, const char*> kUnary = {
        {"Sigmoid", "QLinearSigmoid"},
        {"LeakyRelu", "QLinearLeakyRelu"},
        {"Softmax", "QLinearSoftmax"},
        {"AveragePool", "QLinearAveragePool"},
        {"GlobalAveragePool", "QLinearGlobalAveragePool"}};
    const auto unary = kUnary.find(node_.op);
    if (unary == kUnary.end() || !node_.domain.empty()) return "it has no operator on codes";
    Dequantized x;
    if (std::string why = behind(node_.in.at(0), x); !why.empty()) return why;
    if (!x.per_tensor) return "its input has a scale a channel";
    Attributes attrs = node_.attrs;
    if (node_.op == "Softmax") attrs["opset"] = std::int64_t{13};
    finish(kMicrosoft, unary->second, {x.codes, x.scale, zero_of(x), q_.in[1], output_zero()},
           std::move(attrs));
    return {};
  }

  std::string convolution() {
    Dequantized x, w;
    if (std::string why = behind(node_.in.at(0), x); !why.empty()) return why;
    if (std::string why = behind(node_.in.at(1), w); !why.empty()) return why;
    if (!x.per_tensor) return "its input has a scale a channel";
    if (!w.per_tensor && w.axis != 0) return "its weight has scales along another axis than 0";
    if (graph_.value(x.codes).dtype != graph_.value(q_.out[0]).dtype)
      return "its input and output codes differ in type";
    ValueId bias = ValueId::kNone;
    if (std::string why = int_bias(input(node_, 2), x, w, bias); !why.empty()) return why;
    std::vector<ValueId> in = {x.codes, x.scale,    zero_of(x), w.codes,
                               w.scale, zero_of(w), q_.in[1],   output_zero()};
    if (bias != ValueId::kNone) in.push_back(bias);
    finish("", "QLinearConv", std::move(in), node_.attrs);
    return {};
  }

  // int32 codes of scale s_x * s_w: those of the model where its scale is that, else a constant is rounded.
  std::string int_bias(ValueId value, const Dequantized& x, const Dequantized& w, ValueId& bias) {
    bias = ValueId::kNone;
    if (value == ValueId::kNone) return {};
    const Tensor& ws = graph_.value(w.scale).constant;
    const float xs = *graph_.value(x.scale).constant.as<float>();
    const auto scale = [&](std::int64_t i) { return xs * ws.as<float>()[ws.size() == 1 ? 0 : i]; };
    const NodeId p = graph_.producer(value);
    if (p != NodeId::kNone) {
      const Node& dq = graph_.node(p);
      if (!dq.is("DequantizeLinear") || graph_.value(dq.in[0]).dtype != DType::kI32 ||
          !graph_.is_constant(dq.in.at(1)))
        return "its bias is computed";
      const Tensor& given = graph_.value(dq.in[1]).constant;
      for (std::int64_t i = 0; i < std::max(given.size(), ws.size()); ++i)
        if (given.as<float>()[given.size() == 1 ? 0 : i] != scale(i))
          return "its bias has another scale than s_x * s_w";
      bias = dq.in[0];
      return {};
    }
    if (!graph_.is_constant(value) || graph_.value(value).dtype != DType::kF32) return "its bias is computed";
    const Tensor& floats = graph_.value(value).constant;
    Tensor codes = Tensor::allocate(DType::kI32, floats.dims());
    for (std::int64_t i = 0; i < codes.size(); ++i) {
      const double code = std::nearbyint(static_cast<double>(floats.as<float>()[i]) / scale(i));
      if (!(std::fabs(code) <= 2147483647.0)) return "its bias does not fit 32 bits";
      codes.mut<std::int32_t>()[i] = static_cast<std::int32_t>(code);
    }
    bias = graph_.add_constant(graph_.value(value).name + "_quantized", std::move(codes));
    return {};
  }

  std::string product() {
    Dequantized a, b;
    if (std::string why = behind(node_.in.at(0), a); !why.empty()) return why;
    if (std::string why = behind(node_.in.at(1), b); !why.empty()) return why;
    if (!a.per_tensor) return "its left side has a scale a row";
    const int rank = graph_.value(b.codes).shape.rank();
    if (!b.per_tensor && (rank < 2 || (b.axis + rank) % rank != rank - 1))
      return "its weight has scales along another axis than the last";
    if (graph_.value(a.codes).dtype != graph_.value(q_.out[0]).dtype)
      return "its input and output codes differ in type";
    finish("", "QLinearMatMul",
           {a.codes, a.scale, zero_of(a), b.codes, b.scale, zero_of(b), q_.in[1], output_zero()}, {});
    return {};
  }

  std::string gemm() {
    Dequantized a, b;
    if (std::string why = behind(node_.in.at(0), a); !why.empty()) return why;
    if (std::string why = behind(node_.in.at(1), b); !why.empty()) return why;
    if (!a.per_tensor) return "its left side has a scale a row";
    const std::int64_t columns = node_.attr("transB", std::int64_t{0}) != 0 ? 0 : 1;
    if (!b.per_tensor && (b.axis + 2) % 2 != columns)
      return "its weight has scales along another axis than its columns";
    if (node_.attr("alpha", 1.0F) != 1.0F || node_.attr("beta", 1.0F) != 1.0F)
      return "its alpha or beta is not 1";
    if (graph_.value(a.codes).dtype != graph_.value(q_.out[0]).dtype)
      return "its input and output codes differ in type";
    ValueId bias = ValueId::kNone;
    if (std::string why = int_bias(input(node_, 2), a, b, bias); !why.empty()) return why;
    Attributes attrs = node_.attrs;
    attrs.erase("beta");
    finish(kMicrosoft, "QGemm",
           {a.codes, a.scale, zero_of(a), b.codes, b.scale, zero_of(b), bias, q_.in[1], output_zero()},
           std::move(attrs));
    return {};
  }

  std::string pair() {
    Dequantized a, b;
    if (std::string why = behind(node_.in.at(0), a); !why.empty()) return why;
    if (std::string why = behind(node_.in.at(1), b); !why.empty()) return why;
    if (!a.per_tensor || !b.per_tensor) return "an input has a scale a channel";
    const DType type = graph_.value(q_.out[0]).dtype;
    if (graph_.value(a.codes).dtype != type || graph_.value(b.codes).dtype != type)
      return "its codes differ in type";
    finish(kMicrosoft, node_.op == "Add" ? "QLinearAdd" : "QLinearMul",
           {a.codes, a.scale, zero_of(a), b.codes, b.scale, zero_of(b), q_.in[1], output_zero()}, {});
    return {};
  }

  std::string concat() {
    std::vector<ValueId> in = {q_.in[1], output_zero()};
    for (const ValueId value : node_.in) {
      Dequantized x;
      if (std::string why = behind(value, x); !why.empty()) return why;
      if (!x.per_tensor) return "an input has a scale a channel";
      if (graph_.value(x.codes).dtype != graph_.value(q_.out[0]).dtype) return "its codes differ in type";
      in.insert(in.end(), {x.codes, x.scale, zero_of(x)});
    }
    finish(kMicrosoft, "QLinearConcat", std::move(in), node_.attrs);
    return {};
  }

  // Codes move as their values do, when both sides count alike.
  std::string move() {
    Dequantized x;
    if (std::string why = behind(node_.in.at(0), x); !why.empty()) return why;
    if (!x.per_tensor || node_.out.size() != 1) return "it has a scale a channel, or two outputs";
    const auto same = [&](ValueId a, ValueId b) {
      if (a == b) return true;
      if (a == ValueId::kNone || b == ValueId::kNone) return zero_constant(a) && zero_constant(b);
      return graph_.is_constant(a) && graph_.is_constant(b) &&
             equal_bytes(graph_.value(a).constant.reshaped({}), graph_.value(b).constant.reshaped({}));
    };
    if (graph_.value(x.codes).dtype != graph_.value(q_.out[0]).dtype || !same(x.scale, q_.in[1]) ||
        !same(x.zero, input(q_, 2)))
      return "its input and output have other scales";
    std::vector<ValueId> in = node_.in;
    in[0] = x.codes;
    finish("", node_.op.c_str(), std::move(in), node_.attrs);
    return {};
  }
  bool zero_constant(ValueId id) const {
    return id == ValueId::kNone || (graph_.is_constant(id) && graph_.value(id).constant.to_ints()[0] == 0);
  }

  Graph& graph_;
  QuantizedFormReport& report_;
  NodeId quantize_ = NodeId::kNone;
  Node q_, node_;  // copies: inserting moves nodes
};

}  // namespace

void remove_unread(Graph& graph, const std::vector<std::string>& ops) {
  std::vector<NodeId> nodes = graph.nodes();
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = graph.node(nodes[i]);
    if (std::find(ops.begin(), ops.end(), node.op) == ops.end()) continue;
    const bool read = std::any_of(node.out.begin(), node.out.end(), [&](ValueId out) {
      return out != ValueId::kNone && (graph.is_output(out) || !graph.users(out).empty());
    });
    if (!read) graph.remove_node(nodes[i]);
  }
}

QuantizedFormReport to_qoperator(Graph& graph) {
  return in_other_form(graph, [](Graph& g, QuantizedFormReport& report) {
    ToQOperator(g, report).run();
    dynamic_to_integer(g, report);
  });
}

}  // namespace pare
