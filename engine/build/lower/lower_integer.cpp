// match() finds and changes nothing: every reason to decline is one early return. rewrite() follows it.
#include "engine/build/lower/lower_integer.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/build/lower/linear_chain.h"
#include "engine/ops/integer/qlinear.h"
#include "engine/run/evaluate.h"

namespace pare::lowering {
namespace {

constexpr const char* kFake = "float32 (fake-quantized)";

// Codes with their scale and zero point, as a DequantizeLinear has them.
struct Coded {
  ValueId codes = ValueId::kNone, scale = ValueId::kNone, zero = ValueId::kNone;
  DType type = DType::kUndefined;
};

struct Match {
  Chain chain;
  Coded x, w, residual;
  Tensor w_codes, bias;  // empty: w is computed, there is no bias
  ValueId y_scale = ValueId::kNone, y_zero = ValueId::kNone;
  DType y_type = DType::kF32;
};

ValueId input_of(const Node& node, std::size_t i) { return i < node.in.size() ? node.in[i] : ValueId::kNone; }

bool is_eight_bit(DType type) { return type == DType::kI8 || type == DType::kU8 || type == DType::kE4M3FN; }

const Node* producer_node(const Graph& graph, ValueId id) {
  if (id == ValueId::kNone) return nullptr;
  const NodeId producer = graph.producer(id);
  return producer == NodeId::kNone ? nullptr : &graph.node(producer);
}

// The DequantizeLinear to float32 that computes `id`, or nullptr.
const Node* dequantizer(const Graph& graph, ValueId id) {
  const Node* node = producer_node(graph, id);
  return node != nullptr && node->is("DequantizeLinear") && graph.value(id).dtype == DType::kF32 ? node
                                                                                                 : nullptr;
}

Coded coded(const Graph& graph, const Node& dq) {
  return {dq.in[0], dq.in[1], input_of(dq, 2), graph.value(dq.in[0]).dtype};
}

// A constant, or what a few Q/DQ of constants compute; empty when it depends on more.
Tensor constant_of(const Graph& graph, ValueId id, int depth = 4) {
  if (id == ValueId::kNone) return {};
  if (graph.is_constant(id)) return graph.value(id).constant;
  const Node* node = producer_node(graph, id);
  if (node == nullptr || depth == 0 || (!node->is("QuantizeLinear") && !node->is("DequantizeLinear")))
    return {};
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < node->in.size(); ++i) {
    const bool absent = node->in[i] == ValueId::kNone;
    if (i > 0 && !absent && !graph.is_constant(node->in[i])) return {};
    inputs.push_back(i == 0   ? constant_of(graph, node->in[0], depth - 1)
                     : absent ? Tensor{}
                              : graph.value(node->in[i]).constant);
  }
  if (inputs[0].empty()) return {};
  try {
    return evaluate_node(graph, *node, inputs)[0];
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return {};  // a type that no kernel quantizes
  }
}

std::string scale_problem(const Graph& graph, const Coded& c, std::int64_t scales, const char* what) {
  if (!is_eight_bit(c.type)) return fmt::format("no integer kernel for {}", name(c.type));
  if (!graph.is_constant(c.scale) || graph.value(c.scale).dtype != DType::kF32)
    return fmt::format("the scale of {} is not a constant float32", what);
  const std::int64_t count = graph.value(c.scale).constant.size();
  if (count != 1 && count != scales) return fmt::format("{} has {} scales", what, count);
  if (c.zero == ValueId::kNone) return "";
  if (!graph.is_constant(c.zero)) return fmt::format("the zero point of {} is not a constant", what);
  const Tensor& zero = graph.value(c.zero).constant;
  const auto* codes = zero.as<std::uint8_t>();
  if (zero.size() == 0 || zero.dtype() != c.type)
    return fmt::format("{} has no zero point of its type", what);
  return std::all_of(codes, codes + zero.size(), [&](std::uint8_t z) { return z == codes[0]; })
             ? ""
             : fmt::format("the zero points of {} differ from channel to channel", what);
}

QType q_type_of(const Graph& graph, const Coded& c) {
  QType type{c.type == DType::kI8, 0};
  if (c.zero == ValueId::kNone) return type;
  const auto code = *graph.value(c.zero).constant.as<std::uint8_t>();
  type.zero = type.is_signed ? static_cast<std::int8_t>(code) : code;
  return type;
}

// Rules of the operator itself; sets where the weight's channels lie, and how many products a sum has.
std::string linear_problem(const Graph& graph, const Node& node, const Dims& w, std::int64_t* axis,
                           std::int64_t* columns, std::int64_t* k) {
  const auto rank = static_cast<std::int64_t>(w.size());
  if (node.is("Conv")) {
    if (graph.value(node.in[0]).shape.rank() != rank || (rank != 3 && rank != 4))
      return "only 1-d and 2-d convolutions have an integer kernel";
    if (node.attr("auto_pad", "NOTSET") != "NOTSET") return "auto_pad is not resolved";
    *axis = 0, *columns = w[0], *k = w[1] * w[2] * (rank == 4 ? w[3] : 1);
    return "";
  }
  if (graph.value(node.in[0]).shape.rank() < 2 || rank < 2) return "an operand is not of rank 2 or more";
  if (node.attr("transA", std::int64_t{0}) != 0) return "the first operand is transposed";
  if (node.is("Gemm") && (node.attr("alpha", 1.0f) != 1.0f || node.attr("beta", 1.0f) != 1.0f))
    return "alpha or beta is not 1";
  const bool transposed = node.attr("transB", std::int64_t{0}) != 0;
  *axis = transposed ? rank - 2 : rank - 1;
  *columns = w[static_cast<std::size_t>(*axis)];
  *k = w[static_cast<std::size_t>(transposed ? rank - 1 : rank - 2)];
  return "";
}

// Sizes of w with -1 where they are not known.
Dims known_sizes(const Shape& shape) {
  Dims dims;
  for (const Dim& d : shape.dims) dims.push_back(d.known() ? d.value : -1);
  return dims;
}

void match_output(const Graph& graph, const Kept& kept, Match& m) {
  const NodeId next = graph.only_user(m.chain.result);
  if (next == NodeId::kNone || kept(m.chain.result)) return;
  const Node& q = graph.node(next);
  if (!q.is("QuantizeLinear") || q.in[0] != m.chain.result) return;
  const Coded y{q.out[0], q.in[1], input_of(q, 2), graph.value(q.out[0]).dtype};
  const auto precision = q.attr("precision", std::int64_t{0});
  if (!scale_problem(graph, y, 1, "y").empty() || q.attr("block_size", std::int64_t{0}) != 0 ||
      (precision != 0 && precision != static_cast<std::int64_t>(DType::kF32)))
    return;
  m.y_scale = y.scale, m.y_zero = y.zero, m.y_type = y.type;
  m.chain.nodes.push_back(next);
  m.chain.result = q.out[0];
}

// Why the tensor cores of a GPU cannot do this.
std::string tensor_core_problem(const Graph& graph, const Node& node, const Match& m) {
  const auto zero = [&](const Coded& c) { return c.zero == ValueId::kNone || q_type_of(graph, c).zero == 0; };
  if (m.w_codes.empty()) return "a product of two activations";
  if (m.w.type == DType::kU8) return "uint8 weights";
  if ((m.x.type == DType::kE4M3FN) != (m.w.type == DType::kE4M3FN))
    return fmt::format("no kernel for {} by {}", name(m.x.type), name(m.w.type));
  if (!zero(m.w)) return "the weights have a zero point";
  if (!node.is("Conv")) return "";
  if (graph.value(node.in[0]).shape.rank() != 4) return "a convolution along one axis";
  const std::vector<std::int64_t> pads = node.attr_ints("pads");
  if (!zero(m.x) && std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p != 0; }))
    return "padding with a zero point that is not 0";
  return "";
}

// "" and a match, or why not.
std::string match(const Graph& graph, NodeId id, const Kept& kept, const IntegerOptions& options, Match& m) {
  const bool fuse = options.fuse;
  const Node& node = graph.node(id);
  if (node.is("ConvTranspose")) return "no integer kernel for ConvTranspose";
  const Node *x_dq = dequantizer(graph, node.in[0]), *w_dq = dequantizer(graph, node.in[1]);
  if (x_dq == nullptr) return "the activations are not quantized";
  if (w_dq == nullptr) return "the weights are not quantized";
  m.x = coded(graph, *x_dq);
  m.w = coded(graph, *w_dq);
  if (std::string why = scale_problem(graph, m.x, 1, "x"); !why.empty()) return why;
  if (!is_eight_bit(m.w.type)) return fmt::format("no integer kernel for {}", name(m.w.type));
  for (const DType type : {m.x.type, m.w.type})
    if (type == DType::kE4M3FN && !options.tensor_cores)
      return fmt::format("no integer kernel for {}", name(type));
  if (w_dq->attr("block_size", std::int64_t{0}) != 0) return "the scales of w are blocked";
  m.w_codes = constant_of(graph, m.w.codes);
  if (m.w_codes.empty() && node.is("Conv")) return "the weights are not constant";
  const Dims sizes = m.w_codes.empty() ? known_sizes(graph.value(m.w.codes).shape) : m.w_codes.dims();

  std::int64_t axis = 0, columns = 0, k = 0;
  if (std::string why = linear_problem(graph, node, sizes, &axis, &columns, &k); !why.empty()) return why;
  const bool constant = !m.w_codes.empty();
  if (std::string why = scale_problem(graph, m.w, constant ? columns : 1, "w"); !why.empty()) return why;
  if (graph.value(m.w.scale).constant.size() > 1) {
    std::int64_t own = w_dq->attr("axis", std::int64_t{1});
    if (own < 0) own += static_cast<std::int64_t>(sizes.size());
    if (own != axis) return "the scales of w do not belong to output channels";
  }
  if (k < 0) return "the length of a sum is not known";
  if (options.tensor_cores) {
    if (std::string why = tensor_core_problem(graph, node, m); !why.empty()) return why;
  }
  const bool sums = m.x.type != DType::kE4M3FN;
  const std::int64_t limit = !sums ? k : qgemm_max_k(q_type_of(graph, m.x), q_type_of(graph, m.w));
  if (k > limit) return fmt::format("sums of {} products may leave int32 (at most {})", k, limit);

  Kept all;
  all.flags.assign(graph.value_count(), true);
  m.chain = follow_chain(graph, id, fuse ? kept : all);
  if (m.chain.bias != ValueId::kNone) {
    m.bias = constant_of(graph, m.chain.bias);
    if (m.bias.empty() || m.bias.dtype() != DType::kF32) return "the bias is not constant";
    if (m.bias.size() != columns) return "the bias is not one value a column";
  }
  if (const Node* r = dequantizer(graph, m.chain.residual); r != nullptr) {
    const Coded c = coded(graph, *r);
    if (scale_problem(graph, c, 1, "residual").empty() && (options.tensor_cores || c.type != DType::kE4M3FN))
      m.residual = c;
  }
  if (fuse) match_output(graph, kept, m);
  // Float sums are stored as E4M3 only behind E4M3 operands, and so on: one family of codes a layer.
  if (m.y_scale != ValueId::kNone && (m.y_type == DType::kE4M3FN) != (m.x.type == DType::kE4M3FN) &&
      !options.tensor_cores) {
    m.y_scale = m.y_zero = ValueId::kNone, m.y_type = DType::kF32;
    m.chain.nodes.pop_back();
    m.chain.result = graph.node(m.chain.nodes.back()).out[0];
  }
  return "";
}

ValueId channels_last(Graph& graph, NodeId before, ValueId plain) {
  Value value = graph.value(plain);
  value.name += "_nhwc";
  value.constant = {};
  value.producer = NodeId::kNone;
  std::rotate(value.shape.dims.begin() + 1, value.shape.dims.begin() + 2, value.shape.dims.end());
  value.layout = Layout::kChannelsLast;
  const ValueId id = graph.add_value(std::move(value));
  if (before == NodeId::kNone) return id;
  Node node;
  node.domain = "pare";
  node.op = "ToChannelsLast";
  node.name = graph.value(plain).name + "_to_nhwc";
  node.in = {plain};
  node.out = {id};
  graph.insert_before(before, std::move(node));
  return id;
}

void rewrite(Graph& graph, const Match& m) {
  const Node linear = graph.node(m.chain.linear);
  const NodeId last = m.chain.nodes.back();
  const bool conv = linear.is("Conv");
  Node node;
  node.domain = "pare";
  node.op = conv ? "QConv" : "QMatMul";
  node.name = linear.name;
  node.attrs = m.chain.activation_attrs;
  if (!m.chain.activation.empty()) node.attrs["activation"] = m.chain.activation;
  if (conv) set_conv_attributes(graph, linear, node);
  if (!conv && linear.attr("transB", std::int64_t{0}) != 0) node.attrs["trans_b"] = std::int64_t{1};

  node.in.assign(kQSlots, ValueId::kNone);
  const auto in = [&](QSlot slot) -> ValueId& { return node.in[static_cast<std::size_t>(slot)]; };
  in(kQX) = conv ? channels_last(graph, last, m.x.codes) : m.x.codes;
  in(kQXScale) = m.x.scale, in(kQXZero) = m.x.zero;
  in(kQW) = m.w_codes.empty() || graph.is_constant(m.w.codes)
                ? m.w.codes
                : graph.add_constant(graph.value(m.w.codes).name + "_codes", m.w_codes);
  in(kQWScale) = m.w.scale, in(kQWZero) = m.w.zero;
  if (!m.bias.empty())
    in(kQBias) = graph.is_constant(m.chain.bias)
                     ? m.chain.bias
                     : graph.add_constant(graph.value(m.chain.bias).name + "_value", m.bias);
  in(kQYScale) = m.y_scale, in(kQYZero) = m.y_zero;
  if (m.y_scale != ValueId::kNone && m.y_zero == ValueId::kNone) {
    const std::uint8_t zero = 0;
    in(kQYZero) = graph.add_constant(linear.name + "_y_zero", Tensor::copy_of(m.y_type, {}, &zero, 1));
  }
  if (m.chain.residual != ValueId::kNone) {
    const bool codes = m.residual.codes != ValueId::kNone;
    const ValueId residual = codes ? m.residual.codes : m.chain.residual;
    in(kQResidual) = conv ? channels_last(graph, last, residual) : residual;
    if (codes) in(kQResidualScale) = m.residual.scale, in(kQResidualZero) = m.residual.zero;
  }
  while (node.in.back() == ValueId::kNone) node.in.pop_back();
  if (!conv) return replace_chain(graph, m.chain, std::move(node));

  Node plain;
  plain.domain = "pare";
  plain.op = "ToPlain";
  plain.name = linear.name + "_to_nchw";
  plain.in = {channels_last(graph, NodeId::kNone, m.chain.result)};
  node.out = plain.in;
  graph.insert_before(last, std::move(node));
  replace_chain(graph, m.chain, std::move(plain));
}

// What Q/DQ around a node ask for; "" when there are none.
std::string requested(const Graph& graph, const Node& node) {
  const Node *x = dequantizer(graph, node.in[0]), *w = dequantizer(graph, node.in[1]);
  if (x == nullptr && w == nullptr) return "";
  const auto type = [&](const Node* dq) {
    return dq == nullptr ? name(DType::kF32) : name(graph.value(dq->in[0]).dtype);
  };
  return fmt::format("{} x {}", type(x), type(w));
}

}  // namespace

std::vector<Realized> lower_integer(Graph& graph, const Kept& kept, const IntegerOptions& options) {
  std::vector<Realized> rows;
  for (const NodeId id : graph.nodes()) {
    if (!graph.alive(id)) continue;
    const Node& node = graph.node(id);
    if (!node.is("Conv") && !node.is("ConvTranspose") && !node.is("Gemm") && !node.is("MatMul")) continue;
    Realized row{node.name, node.op, requested(graph, node), kFake, "integer kernels are switched off"};
    if (row.requested.empty()) continue;
    if (options.rewrite) {
      Match m;
      row.why = match(graph, id, kept, options, m);
      if (row.why.empty()) {
        row.realized = fmt::format("{} kernel", row.requested);
        rewrite(graph, m);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace pare::lowering
