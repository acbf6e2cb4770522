// Graphs with Q/DQ around one linear node, lowered to integer kernels and run, against the same graph
// evaluated in double: the value that neither the float nor the integer kernels round.
#include "engine/build/lower/lower_integer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "engine/base/isa.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"
#include "tests/unit/build/add_op.h"

namespace pare {
namespace {

// Builds a graph node by node; every function gives the node's output.
class Net {
 public:
  Graph graph;

  ValueId input(const std::string& name, std::vector<Dim> dims) {
    Value v;
    v.name = v.origin = name;
    v.dtype = DType::kF32;
    v.shape = Shape(std::move(dims));
    const ValueId id = graph.add_value(std::move(v));
    graph.inputs.push_back(id);
    return id;
  }
  ValueId constant(Tensor t) { return graph.add_constant("c", std::move(t)); }
  ValueId op(const std::string& name, std::vector<ValueId> in, Attributes attrs = {}) {
    return add_op(graph, name, ++count_, std::move(in), std::move(attrs));
  }
  ValueId zero_point(DType type, std::int32_t zero) {
    const auto byte = static_cast<std::uint8_t>(zero);
    return constant(Tensor::copy_of(type, {}, &byte, 1));
  }
  ValueId quantize(ValueId x, float scale, DType type, std::int32_t zero) {
    return op("QuantizeLinear", {x, constant(Tensor::scalar(scale)), zero_point(type, zero)});
  }
  ValueId dequantize(ValueId codes, float scale, DType type, std::int32_t zero) {
    return op("DequantizeLinear", {codes, constant(Tensor::scalar(scale)), zero_point(type, zero)});
  }
  ValueId fake(ValueId x, float scale, DType type, std::int32_t zero) {
    return dequantize(quantize(x, scale, type, zero), scale, type, zero);
  }
  // DequantizeLinear of random codes; one scale per element of `axis`, or one for all (axis -100).
  ValueId weight(Dims dims, DType type, std::int32_t zero, std::int64_t axis) {
    Tensor codes = Tensor::allocate(type, dims);
    for (std::int64_t i = 0; i < codes.size(); ++i)
      codes.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(rng_());
    if (axis == -100) return dequantize(constant(codes), 0.01f, type, zero);
    const std::int64_t n = dims[static_cast<std::size_t>(axis < 0 ? axis + std::ssize(dims) : axis)];
    Tensor zeros = Tensor::allocate(type, {n});
    for (std::int64_t i = 0; i < n; ++i) zeros.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(zero);
    return op("DequantizeLinear", {constant(codes), constant(floats({n}, 1e-3f, 2e-2f)), constant(zeros)},
              {{"axis", axis}});
  }
  Tensor floats(Dims dims, float low, float high) {
    Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
    std::uniform_real_distribution<float> draw(low, high);
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = draw(rng_);
    return t;
  }
  void output(ValueId id) { graph.outputs.push_back(id); }

 private:
  std::mt19937 rng_{17};
  int count_ = 0;
};

// --- the graph in double

struct Real {
  Dims dims;
  std::vector<double> v;
  double at(std::int64_t i) const { return v[static_cast<std::size_t>(i)]; }
};

Real real_of(const Tensor& t) {
  Real r{t.dims(), {}};
  if (t.dtype() == DType::kF32)
    r.v.assign(t.as<float>(), t.as<float>() + t.size());
  else
    for (const std::int64_t i : t.to_ints()) r.v.push_back(static_cast<double>(i));
  return r;
}

Real quantizers(const Node& node, const Real& x, const Real& s, const Real& z, DType type) {
  Real y = x;
  const bool each = s.v.size() > 1;
  std::int64_t axis = node.attr("axis", std::int64_t{1});
  if (axis < 0) axis += std::ssize(x.dims);
  std::int64_t inner = 1;
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; each && i < x.dims.size(); ++i) inner *= x.dims[i];
  for (std::size_t i = 0; i < y.v.size(); ++i) {
    const std::int64_t c = each ? static_cast<std::int64_t>(i) / inner % std::ssize(s.v) : 0;
    const double zero = z.v.empty() ? 0 : z.at(c);
    if (node.op == "DequantizeLinear") {
      y.v[i] = (x.v[i] - zero) * s.at(c);
    } else {
      const auto ratio = static_cast<double>(static_cast<float>(x.v[i]) / static_cast<float>(s.at(c)));
      const double low = type == DType::kI8 ? -128 : 0;
      y.v[i] = std::fmin(low + 255, std::fmax(low, std::nearbyint(ratio) + zero));
    }
  }
  return y;
}

Real conv(const Node& node, Real x, Real w, const Real* bias) {
  auto pads = node.attr_ints("pads"), strides = node.attr_ints("strides");
  const bool line = x.dims.size() == 3;  // a map of one line
  if (line) {
    x.dims.insert(x.dims.begin() + 2, 1), w.dims.insert(w.dims.begin() + 2, 1);
    pads = {0, pads[0], 0, pads[1]}, strides = {1, strides[0]};
  }
  const std::int64_t group = node.attr("group", std::int64_t{1}), wc = w.dims[1], kh = w.dims[2],
                     kw = w.dims[3];
  const std::int64_t m = w.dims[0], h = x.dims[2], width = x.dims[3];
  const std::int64_t oh = (h + pads[0] + pads[2] - kh) / strides[0] + 1;
  const std::int64_t ow = (width + pads[1] + pads[3] - kw) / strides[1] + 1;
  Real y{{x.dims[0], m, oh, ow}, {}};
  for (std::int64_t n = 0; n < x.dims[0]; ++n)
    for (std::int64_t o = 0; o < m; ++o)
      for (std::int64_t i = 0; i < oh * ow; ++i) {
        double sum = bias == nullptr ? 0 : bias->at(o);
        for (std::int64_t c = 0; c < wc; ++c)
          for (std::int64_t t = 0; t < kh * kw; ++t) {
            const std::int64_t yy = i / ow * strides[0] - pads[0] + t / kw;
            const std::int64_t xx = i % ow * strides[1] - pads[1] + t % kw;
            if (yy < 0 || yy >= h || xx < 0 || xx >= width) continue;
            const std::int64_t channel = o / (m / group) * wc + c;
            sum += x.at(((n * x.dims[1] + channel) * h + yy) * width + xx) * w.at((o * wc + c) * kh * kw + t);
          }
        y.v.push_back(sum);
      }
  if (line) y.dims.erase(y.dims.begin() + 2);
  return y;
}

// One matrix, or equal leading sizes.
Real matmul(const Real& x, const Real& w, bool trans_b, const Real* bias) {
  const std::int64_t rows = x.dims[x.dims.size() - 2], k = x.dims.back();
  const std::int64_t n = w.dims[w.dims.size() - (trans_b ? 2 : 1)];
  const std::int64_t batches = std::ssize(x.v) / (rows * k);
  const bool shared = w.dims.size() == 2;
  Real y{x.dims, {}};
  y.dims.back() = n;
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = bias == nullptr ? 0 : bias->at(c);
        for (std::int64_t i = 0; i < k; ++i)
          sum += x.at((b * rows + r) * k + i) *
                 w.at((shared ? 0 : b) * k * n + (trans_b ? c * k + i : i * n + c));
        y.v.push_back(sum);
      }
  return y;
}

Real evaluate(const Graph& graph, const Tensor& input) {
  std::map<ValueId, Real> values;
  values[graph.inputs[0]] = real_of(input);
  const auto get = [&](const Node& node, std::size_t i) -> Real {
    if (i >= node.in.size() || node.in[i] == ValueId::kNone) return {};
    return graph.is_constant(node.in[i]) ? real_of(graph.value(node.in[i]).constant) : values.at(node.in[i]);
  };
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    const Real a = get(node, 0), b = get(node, 1), c = get(node, 2);
    const Real* bias = c.v.empty() ? nullptr : &c;
    Real y = a;
    if (node.op == "QuantizeLinear" || node.op == "DequantizeLinear") {
      y = quantizers(node, a, b, c, graph.value(node.out[0]).dtype);
    } else if (node.op == "Conv") {
      y = conv(node, a, b, bias);
    } else if (node.op == "MatMul" || node.op == "Gemm") {
      y = matmul(a, b, node.attr("transB", std::int64_t{0}) != 0, bias);
    } else if (node.op == "Add") {
      for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] += b.v[i % b.v.size()];
    } else if (node.op == "Relu") {
      for (double& v : y.v) v = std::fmax(v, 0);
    } else {
      ADD_FAILURE() << node.op;
    }
    values[node.out[0]] = std::move(y);
  }
  return values.at(graph.outputs[0]);
}

// --- cases

struct Case {
  const char* what;
  std::function<void(Net&)> build;
  const char* ops;  // of the lowered graph, in order
};

ValueId activations(Net& net, std::vector<Dim> dims, DType type = DType::kI8, std::int32_t zero = 0) {
  return net.fake(net.input("x", std::move(dims)), 0.03f, type, zero);
}

const Attributes kConv3 = {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                           {"strides", std::vector<std::int64_t>{1, 1}}};
Attributes grouped(std::int64_t groups) {
  Attributes attrs = kConv3;
  attrs["group"] = groups;
  return attrs;
}

const std::vector<Dim> kImage = {Dim::named("batch"), Dim::of(6), Dim::of(5), Dim::of(4)};

const Case kCases[] = {
    {"conv",
     [](Net& n) {
       n.output(n.op("Conv", {activations(n, kImage), n.weight({10, 6, 3, 3}, DType::kI8, 0, 0)}, kConv3));
     },
     "QuantizeLinear ToChannelsLast QConv ToPlain"},
    {"conv_bias_relu_quantized",
     [](Net& n) {
       const ValueId x = activations(n, kImage, DType::kU8, 120);
       const ValueId bias =
           n.op("DequantizeLinear",
                {n.constant(Tensor::from<std::int32_t>(DType::kI32, {3}, {900, -7000, 123456})),
                 n.constant(n.floats({3}, 1e-5f, 1e-4f))},
                {{"axis", std::int64_t{0}}});
       const ValueId y = n.op("Conv", {x, n.weight({3, 6, 3, 3}, DType::kI8, 0, 0), bias}, kConv3);
       n.output(n.quantize(n.op("Relu", {y}), 0.041f, DType::kU8, 3));
     },
     "QuantizeLinear ToChannelsLast QConv ToPlain"},
    {"depthwise_residual",
     [](Net& n) {
       const ValueId x = activations(n, kImage);
       const ValueId y = n.op("Conv", {x, n.weight({6, 1, 3, 3}, DType::kU8, 131, -100)}, grouped(6));
       n.output(n.op("Relu", {n.op("Add", {x, y})}));
     },
     "QuantizeLinear ToChannelsLast QConv ToPlain"},
    {"conv_1d",
     [](Net& n) {
       const ValueId x = activations(n, {Dim::named("batch"), Dim::of(6), Dim::of(11)});
       n.output(n.op("Conv", {x, n.weight({10, 6, 3}, DType::kI8, 0, 0)},
                     {{"pads", std::vector<std::int64_t>{1, 1}}, {"strides", std::vector<std::int64_t>{2}}}));
     },
     "QuantizeLinear ToChannelsLast QConv ToPlain"},
    {"gemm",
     [](Net& n) {
       const ValueId x = activations(n, {Dim::named("batch"), Dim::of(37)});
       n.output(n.op("Gemm", {x, n.weight({10, 37}, DType::kI8, 0, 0), n.constant(n.floats({10}, -1, 1))},
                     {{"transB", std::int64_t{1}}}));
     },
     "QuantizeLinear QMatMul"},
    {"matmul_bias",
     [](Net& n) {
       const ValueId x = activations(n, {Dim::named("batch"), Dim::of(5), Dim::of(16)});
       const ValueId y = n.op("MatMul", {x, n.weight({16, 9}, DType::kI8, 0, -1)});
       n.output(n.quantize(n.op("Add", {y, n.constant(n.floats({9}, -1, 1))}), 0.05f, DType::kI8, -9));
     },
     "QuantizeLinear QMatMul"},
    {"both_computed",
     [](Net& n) {
       const ValueId x = n.input("x", {Dim::named("batch"), Dim::of(7), Dim::of(7)});
       n.output(n.op("MatMul", {n.fake(x, 0.03f, DType::kI8, 0), n.fake(x, 0.02f, DType::kU8, 128)}));
     },
     "QuantizeLinear QuantizeLinear QMatMul"},
    {"float_weight_behind_quantizer",
     [](Net& n) {
       const ValueId x = activations(n, kImage);
       const ValueId w = n.fake(n.constant(n.floats({4, 6, 3, 3}, -1, 1)), 0.008f, DType::kI8, 0);
       n.output(n.op("Conv", {x, w}, kConv3));
     },
     "QuantizeLinear ToChannelsLast QConv ToPlain"},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

std::string ops_of(const Graph& graph) {
  std::string text;
  for (const NodeId id : graph.nodes()) text += (text.empty() ? "" : " ") + graph.node(id).op;
  return text;
}

class LowerInteger : public testing::TestWithParam<Case> {};

TEST_P(LowerInteger, ComputesWhatTheGraphSays) {
  Net net;
  GetParam().build(net);
  infer_shapes(net.graph);
  LowerOptions options;
  options.integer = true;
  const Lowered lowered = lower_for_cpu(net.graph, options);
  EXPECT_EQ(ops_of(*lowered.graph), GetParam().ops);
  ASSERT_EQ(lowered.realized.size(), 1u);
  EXPECT_EQ(lowered.realized[0].why, "");
  EXPECT_EQ(lowered.realized[0].realized, lowered.realized[0].requested + " kernel");

  Dims dims;
  for (const Dim& d : net.graph.value(net.graph.inputs[0]).shape.dims)
    dims.push_back(d.known() ? d.value : 3);
  const Tensor x = net.floats(dims, -4, 4);
  const Real want = evaluate(net.graph, x);
  std::vector<std::uint8_t> first;
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) {
    set_isa(static_cast<Isa>(i));
    SCOPED_TRACE(name(isa()));
    ThreadPool pool(2);
    Session session(lowered.graph, {&pool});
    const Tensor got = session.run({x})[0];
    ASSERT_EQ(got.dims(), want.dims);
    const Real have = real_of(got);
    const bool codes = got.dtype() != DType::kF32;
    // Float output: scale * acc, bias, residual: four roundings of 2^-24, relative to values of at most
    // (128 + 128) * 0.03 * 128 * 0.02 * 54 + 4 < 1200 in sum (54 products), so 4 * 1200 * 2^-24 < 3e-4.
    // Codes: equal, or one apart where that error crosses the middle of two codes; here none is so near.
    for (std::size_t j = 0; j < want.v.size(); ++j)
      ASSERT_NEAR(have.v[j], want.v[j], codes ? 0 : 3e-4) << "element " << j;
    // And the same bits in every instruction class.
    const std::vector<std::uint8_t> bytes(static_cast<const std::uint8_t*>(got.data()),
                                          static_cast<const std::uint8_t*>(got.data()) + got.bytes());
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  }
  set_isa(best_isa());
}

INSTANTIATE_TEST_SUITE_P(Cases, LowerInteger, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.what); });

// Why a node stays in float, one case a reason.
struct Declined {
  std::function<void(Net&)> build;
  const char *requested, *why;
};

const Declined kDeclined[] = {
    {[](Net& n) {
       n.output(n.op("Conv", {n.input("x", kImage), n.weight({4, 6, 3, 3}, DType::kI8, 0, 0)}, kConv3));
     },
     "float32 x int8", "the activations are not quantized"},
    {[](Net& n) {
       n.output(n.op("Conv", {activations(n, kImage), n.constant(n.floats({4, 6, 3, 3}, -1, 1))}, kConv3));
     },
     "int8 x float32", "the weights are not quantized"},
    {[](Net& n) {
       n.output(n.op("Conv", {activations(n, kImage), n.weight({4, 6, 3, 3}, DType::kI8, 0, 1)}, kConv3));
     },
     "int8 x int8", "w has 6 scales"},
    {[](Net& n) {
       n.output(
           n.op("MatMul", {activations(n, {Dim::of(2), Dim::of(7)}), n.weight({7, 7}, DType::kI8, 0, 0)}));
     },
     "int8 x int8", "the scales of w do not belong to output channels"},
    {[](Net& n) {
       const ValueId x = n.input("x", {Dim::of(2), Dim::of(7)});
       const ValueId scale = n.constant(Tensor::scalar(1));
       const ValueId q = n.op("QuantizeLinear", {x, scale}, {{"output_dtype", std::int64_t{17}}});
       n.output(n.op("MatMul", {n.op("DequantizeLinear", {q, scale}), n.weight({7, 7}, DType::kI8, 0, -1)}));
     },
     "float8_e4m3fn x int8", "no integer kernel for float8_e4m3fn"},
    {[](Net& n) {
       n.output(n.op("MatMul", {activations(n, {Dim::of(2), Dim::of(70000)}, DType::kU8, 0),
                                n.weight({70000, 2}, DType::kI8, 0, -1)}));
     },
     "uint8 x int8", "sums of 70000 products may leave int32 (at most 65793)"},
};

TEST(LowerIntegerReport, SaysWhyANodeStaysInFloat) {
  for (const Declined& c : kDeclined) {
    SCOPED_TRACE(c.why);
    Net net;
    c.build(net);
    infer_shapes(net.graph);
    const std::string before = to_text(net.graph);
    const std::vector<Realized> rows = lowering::lower_integer(net.graph, {});
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].requested, c.requested);
    EXPECT_EQ(rows[0].realized, "float32 (fake-quantized)");
    EXPECT_EQ(rows[0].why, c.why);
    EXPECT_EQ(to_text(net.graph), before);
  }
}

// What is watched is computed: the result of the convolution is kept, so neither Relu nor Quantize swallow
// it.
TEST(LowerIntegerReport, KeepsWhatIsWatched) {
  Net net;
  const ValueId y =
      net.op("Conv", {activations(net, kImage), net.weight({4, 6, 3, 3}, DType::kI8, 0, 0)}, kConv3);
  net.output(net.quantize(net.op("Relu", {y}), 0.1f, DType::kI8, 0));
  infer_shapes(net.graph);
  lowering::Kept kept;
  kept.flags.assign(net.graph.value_count(), false);
  kept.flags[static_cast<std::size_t>(y)] = true;
  lowering::lower_integer(net.graph, kept);
  verify(net.graph);
  ASSERT_NE(net.graph.producer(y), NodeId::kNone);
  EXPECT_EQ(net.graph.node(net.graph.producer(y)).op, "ToPlain");
  EXPECT_EQ(net.graph.node(net.graph.users(y)[0].node).op, "Relu");
}

TEST(LowerIntegerReport, SwitchedOffItOnlyReports) {
  Net net;
  net.output(net.op("Conv", {activations(net, kImage), net.weight({4, 6, 3, 3}, DType::kI8, 0, 0)}, kConv3));
  infer_shapes(net.graph);
  const std::string before = to_text(net.graph);
  const std::vector<Realized> rows = lowering::lower_integer(net.graph, {}, {false, true});
  EXPECT_EQ(rows[0].why, "integer kernels are switched off");
  EXPECT_EQ(to_text(net.graph), before);
}

}  // namespace
}  // namespace pare
