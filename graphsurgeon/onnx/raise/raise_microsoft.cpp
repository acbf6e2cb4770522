#include "graphsurgeon/onnx/raise/raise_microsoft.h"

#include <map>

#include "engine/ir/schema.h"

namespace pare {

ValueId Steps::need(std::size_t i) const {
  const ValueId id = in(i);
  if (id == ValueId::kNone) fail(ErrorCode::kBadFile, "{} lacks input {}", node_.op, i);
  return id;
}

namespace {

void drop_absent(std::vector<ValueId>& in) {
  while (!in.empty() && in.back() == ValueId::kNone) in.pop_back();
}

}  // namespace

ValueId Steps::make(const char* what, const char* op, std::vector<ValueId> in, Attributes attrs) {
  drop_absent(in);
  return emit_step(r_, node_, what, op, std::move(in), std::move(attrs));
}

void Steps::last(const char* op, std::vector<ValueId> in, Attributes attrs, std::vector<ValueId> out) {
  drop_absent(in);
  Node node;
  node.name = raised_name(node_);
  node.op = op;
  node.in = std::move(in);
  node.out = std::move(out);
  drop_absent(node.out);
  node.attrs = std::move(attrs);
  r_.emit(std::move(node));
}

void Steps::last(const char* op, std::vector<ValueId> in, Attributes attrs) {
  last(op, std::move(in), std::move(attrs), node_.out);
}

ValueId Steps::ints(const char* what, std::vector<std::int64_t> values) {
  return r_.ints(node_, what, std::move(values));
}

ValueId Steps::number(const char* what, float number, ValueId like) {
  const ValueId constant = r_.constant(node_, what, Tensor::scalar(number));
  const DType type = value(like).dtype;
  if (type == DType::kF32) return constant;
  return make(what, "CastLike", {constant, like});
}

ValueId Steps::dequantized(const char* what, std::size_t first) {
  return make(what, "DequantizeLinear", {need(first), need(first + 1), in(first + 2)});
}

void Steps::quantized(ValueId x, std::size_t first, ValueId like) {
  ValueId zero = in(first + 1);
  if (zero == ValueId::kNone) zero = number("zero", 0, like);
  last("QuantizeLinear", {x, need(first), zero}, {}, {node_.out.at(0)});
}

ValueId Steps::shape_part(const char* what, ValueId x, std::int64_t from, std::int64_t to) {
  return make(what, "Shape", {x}, {{"start", from}, {"end", to}});
}

ValueId Steps::swapped(const char* what, ValueId x) {
  const int rank = value(x).shape.rank();
  if (rank < 0) return make(what, "Einsum", {x}, {{"equation", std::string("...ij->...ji")}});
  if (rank < 2) refuse("a transposed operand of rank 1");
  std::vector<std::int64_t> perm(static_cast<std::size_t>(rank));
  for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return make(what, "Transpose", {x}, {{"perm", perm}});
}

void Steps::refuse(const char* what) const {
  throw make_error(ErrorCode::kUnsupported, "{}.{} with {}", node_.domain, node_.op, what)
      .hint(
          "it has no form in standard operators; export the model without ONNX Runtime's graph "
          "optimizations");
}

namespace {

using Ints = std::vector<std::int64_t>;

// The checker knows nothing of com.microsoft: inputs that must be there are looked for here.
bool to_standard(Raiser& r, Node& node) {
  node.domain.clear();
  const OpSchema* const schema = find_schema("", node.op);
  for (int i = 0; schema != nullptr && i < schema->min_in; ++i)
    Steps(r, node).need(static_cast<std::size_t>(i));
  return true;
}

bool raise_q_conv(Raiser& r, Node& node) {
  if (node.attr("channels_last", std::int64_t{0}) != 0) Steps(r, node).refuse("channels_last");
  node.attrs.erase("channels_last");
  return to_standard(r, node);
}

bool raise_fast_gelu(Raiser& r, Node& node) {
  Steps s(r, node);
  ValueId x = s.need(0);
  if (s.in(1) != ValueId::kNone) x = s.make("biased", "Add", {x, s.in(1)});
  s.last("Gelu", {x}, {{"approximate", std::string("tanh")}});
  return false;
}

bool raise_bias_gelu(Raiser& r, Node& node) {
  Steps s(r, node);
  s.last("Gelu", {s.make("biased", "Add", {s.need(0), s.need(1)})});
  return false;
}

bool raise_quick_gelu(Raiser& r, Node& node) {
  Steps s(r, node);
  const ValueId x = s.need(0);
  const ValueId scaled = s.make("scaled", "Mul", {x, s.number("alpha", node.attr("alpha", 1.702F), x)});
  s.last("Mul", {x, s.make("gate", "Sigmoid", {scaled})});
  return false;
}

// [d0, d1 .., k] with d0 behind the other leading axes.
ValueId batch_last(Steps& s, const char* what, ValueId x) {
  const int rank = s.value(x).shape.rank();
  if (rank < 0) s.refuse("transBatch and an operand of unknown rank");
  Ints perm;
  for (std::int64_t i = 1; i + 1 < rank; ++i) perm.push_back(i);
  perm.push_back(0);
  perm.push_back(rank - 1);
  return s.make(what, "Transpose", {x}, {{"perm", perm}});
}

bool raise_fused_matmul(Raiser& r, Node& node) {
  Steps s(r, node);
  ValueId a = s.need(0), b = s.need(1);
  if (node.attr("transBatchA", std::int64_t{0}) != 0) a = batch_last(s, "a_batch", a);
  if (node.attr("transBatchB", std::int64_t{0}) != 0) b = batch_last(s, "b_batch", b);
  if (node.attr("transA", std::int64_t{0}) != 0) a = s.swapped("a_transposed", a);
  if (node.attr("transB", std::int64_t{0}) != 0) b = s.swapped("b_transposed", b);
  const float alpha = node.attr("alpha", 1.0F);
  if (alpha == 1) {
    s.last("MatMul", {a, b});
  } else {
    const ValueId product = s.make("product", "MatMul", {a, b});
    s.last("Mul", {product, s.number("alpha", alpha, product)});
  }
  return false;
}

// Output 0 is activation(x). `params`: alpha and beta, or the bounds.
void activate(Steps& s, ValueId x, const std::string& activation, const std::vector<float>& params) {
  const auto param = [&](std::size_t i, float otherwise) {
    return i < params.size() ? params[i] : otherwise;
  };
  if (activation == "LeakyRelu") return s.last("LeakyRelu", {x}, {{"alpha", param(0, 0.01F)}});
  if (activation == "HardSigmoid")
    return s.last("HardSigmoid", {x}, {{"alpha", param(0, 0.2F)}, {"beta", param(1, 0.5F)}});
  if (activation == "Clip")
    return s.last("Clip", {x, s.number("low", param(0, -3.402823e38F), x),
                           s.number("high", param(1, 3.402823e38F), x)});
  for (const char* plain : {"Relu", "Tanh", "Sigmoid"})
    if (activation == plain) return s.last(plain, {x});
  s.refuse(("activation '" + activation + "'").c_str());
}

bool raise_fused_gemm(Raiser& r, Node& node) {
  Steps s(r, node);
  std::string activation;
  std::vector<float> params;
  take(node, "activation", activation);
  for (const char* key : {"activation_alpha", "leaky_relu_alpha", "activation_beta", "activation_gamma"})
    if (float value = 0; take(node, key, value)) params.push_back(value);
  const ValueId product = s.make("product", "Gemm", {s.need(0), s.need(1), s.in(2)}, node.attrs);
  if (activation.empty())
    s.last("Identity", {product});
  else
    activate(s, product, activation, params);
  return false;
}

bool raise_fused_conv(Raiser& r, Node& node) {
  Steps s(r, node);
  std::string activation;
  std::vector<float> params;
  take(node, "activation", activation);
  take(node, "activation_params", params);
  const bool sum = s.in(3) != ValueId::kNone;
  const std::vector<ValueId> in = {s.need(0), s.need(1), s.in(2)};
  if (!sum && activation.empty()) {
    s.last("Conv", in, node.attrs);
    return false;
  }
  ValueId y = s.make("product", "Conv", in, node.attrs);
  if (sum && activation.empty()) {
    s.last("Add", {y, s.in(3)});
    return false;
  }
  if (sum) y = s.make("sum", "Add", {y, s.in(3)});
  activate(s, y, activation, params);
  return false;
}

// --- normalizations

void normalize(Steps& s, bool centred, ValueId x, ValueId gamma, ValueId beta, float otherwise) {
  const Attributes attrs{{"axis", std::int64_t{-1}}, {"epsilon", s.node().attr("epsilon", otherwise)}};
  if (centred) {
    std::vector<ValueId> out(s.node().out.begin(),
                             s.node().out.begin() + std::min<std::ptrdiff_t>(3, std::ssize(s.node().out)));
    return s.last("LayerNormalization", {x, gamma, beta}, attrs, out);
  }
  if (s.wants(1) || s.wants(2)) s.refuse("statistics as outputs");
  s.last("RMSNormalization", {x, gamma}, attrs, {s.node().out.at(0)});
}

bool raise_simplified(Raiser& r, Node& node) {
  Steps s(r, node);
  if (s.wants(1)) s.refuse("statistics as outputs");
  node.domain.clear();
  node.op = "RMSNormalization";
  return true;
}

// x + skip (+ bias), which may be an output itself, then the normalization.
bool raise_skip(Raiser& r, Node& node) {
  Steps s(r, node);
  const bool centred = node.op == "SkipLayerNormalization";
  const ValueId gamma = s.need(2), beta = centred ? s.in(3) : ValueId::kNone, bias = s.in(centred ? 4 : 3);
  ValueId sum = s.wants(3) ? node.out[3] : r.temporary(node, "sum");
  ValueId x = s.need(0);
  if (bias != ValueId::kNone) x = s.make("biased", "Add", {x, bias});
  Node add;
  add.name = raised_name(node) + "_skip";
  add.op = "Add";
  add.in = {x, s.need(1)};
  add.out = {sum};
  r.emit(std::move(add));
  normalize(s, centred, sum, gamma, beta, 1e-12F);
  return false;
}

bool raise_embed(Raiser& r, Node& node) {
  Steps s(r, node);
  const ValueId ids = s.need(0);
  ValueId places = s.in(8);
  if (places == ValueId::kNone) {
    const ValueId length =
        s.make("length", "Squeeze", {s.shape_part("length_of", ids, 1, 2), s.ints("front", {0})});
    const ValueId from = r.constant(node, "from", Tensor::from(DType::kI64, {}, Ints{0})),
                  by = r.constant(node, "by", Tensor::from(DType::kI64, {}, Ints{1}));
    places = s.make("places", "Range", {from, length, by});
  }
  ValueId sum = s.make("words", "Gather", {s.need(2), ids});
  const ValueId positions = s.make("positions", "Gather", {s.need(3), places});
  const bool segments = s.in(1) != ValueId::kNone && s.in(4) != ValueId::kNone;
  const auto add = [&](const char* what, ValueId a, ValueId b, bool whole) {
    if (!whole || !s.wants(2)) return s.make(what, "Add", {a, b});
    Node node_of_sum;
    node_of_sum.name = raised_name(node) + "_" + what;
    node_of_sum.op = "Add";
    node_of_sum.in = {a, b};
    node_of_sum.out = {node.out[2]};
    r.emit(std::move(node_of_sum));
    return node.out[2];
  };
  sum = add("placed", sum, positions, !segments);
  if (segments) sum = add("embedded", sum, s.make("segments", "Gather", {s.need(4), s.in(1)}), true);
  if (s.wants(1)) {
    if (s.in(7) == ValueId::kNone) {
      const ValueId batch = s.shape_part("batch", ids, 0, 1);
      s.last("ConstantOfShape", {batch},
             {{"value", Tensor::from(DType::kI32, {1}, std::vector<std::int32_t>{0})}}, {node.out[1]});
    } else {
      s.last("ReduceSum", {s.in(7), s.ints("along", {1})}, {{"keepdims", std::int64_t{0}}}, {node.out[1]});
    }
  }
  const Attributes attrs{{"axis", std::int64_t{-1}}, {"epsilon", node.attr("epsilon", 1e-12F)}};
  s.last("LayerNormalization", {sum, s.need(5), s.need(6)}, attrs, {node.out[0]});
  return false;
}

bool raise_nhwc_max_pool(Raiser& r, Node& node) {
  Steps s(r, node);
  const auto spatial = static_cast<std::int64_t>(node.attr_ints("kernel_shape").size());
  if (spatial < 1) fail(ErrorCode::kBadFile, "NhwcMaxPool without kernel_shape");
  Ints to_plain{0, spatial + 1}, back{0};
  for (std::int64_t i = 1; i <= spatial; ++i) to_plain.push_back(i), back.push_back(i + 1);
  back.push_back(1);
  const ValueId plain = s.make("plain", "Transpose", {s.need(0)}, {{"perm", to_plain}});
  s.last("Transpose", {s.make("pooled", "MaxPool", {plain}, node.attrs)}, {{"perm", back}});
  return false;
}

using Rules = std::map<std::string_view, RaiseRule>;

const Rules& rules() {
  static const Rules all = [] {
    Rules map = {{"QuantizeLinear", to_standard},
                 {"DequantizeLinear", to_standard},
                 {"Gelu", to_standard},
                 {"Trilu", to_standard},
                 {"Pad", to_standard},
                 {"QLinearConv", raise_q_conv},
                 {"FastGelu", raise_fast_gelu},
                 {"BiasGelu", raise_bias_gelu},
                 {"QuickGelu", raise_quick_gelu},
                 {"FusedMatMul", raise_fused_matmul},
                 {"TransposeMatMul", raise_fused_matmul},
                 {"FusedGemm", raise_fused_gemm},
                 {"FusedConv", raise_fused_conv},
                 {"SimplifiedLayerNormalization", raise_simplified},
                 {"SkipLayerNormalization", raise_skip},
                 {"SkipSimplifiedLayerNormalization", raise_skip},
                 {"EmbedLayerNormalization", raise_embed},
                 {"NhwcMaxPool", raise_nhwc_max_pool}};
    for (const auto& family : {microsoft_quantized_rules(), microsoft_attention_rules()})
      for (const RaiseEntry& entry : family) map[entry.op] = entry.rule;
    return map;
  }();
  return all;
}

}  // namespace

RaiseRule microsoft_rule(std::string_view domain, std::string_view op) {
  if (domain != "com.microsoft" && !(domain.empty() && op == "SimplifiedLayerNormalization")) return nullptr;
  const auto found = rules().find(op);
  return found == rules().end() ? nullptr : found->second;
}

}  // namespace pare
