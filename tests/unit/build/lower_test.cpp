// Lowering keeps the function, keeps what is watched, and fuses what it says it fuses.
//
// Tolerance: lowering changes no arithmetic but the order of sums (at most 16*9 products here) and where a
// result is rounded; each of about 5 layers adds a relative error of at most 144 * 2^-24, so 1e-4 of the
// largest value is loose enough for any order and tight enough to see a wrong bias or layout.
#include "engine/build/lower/lower_cpu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/ir/schema.h"
#include "engine/numeric/convert.h"
#include "engine/run/session.h"
#include "tests/unit/quant/build_graph.h"

namespace pare {
namespace {

Tensor random_input(Dims dims, unsigned seed) {
  Tensor tensor = Tensor::allocate(DType::kF32, std::move(dims));
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.mut<float>()[i] = normal(rng);
  return tensor;
}

std::vector<float> run(std::shared_ptr<const Graph> graph, const Tensor& x, ThreadPool& pool) {
  Session session(std::move(graph), {&pool, true, false});
  const Tensor y = session.run({x})[0];
  return {y.as<float>(), y.as<float>() + y.size()};
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  float largest = 0;
  for (const float v : b) largest = std::max(largest, std::fabs(v));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4f * largest) << i;
}

std::map<std::string, int> count_ops(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const NodeId id : graph.nodes()) ++counts[graph.node(id).domain + "." + graph.node(id).op];
  return counts;
}

TEST(LowerForCpu, KeepsTheFunctionAndFusesTheBlock) {
  const Graph graph = quant::test::residual_block();
  ThreadPool pool(2);
  const Lowered lowered = lower_for_cpu(graph);
  const std::map<std::string, int> ops = count_ops(*lowered.graph);
  // Three convolutions (Relu and Add inside), one pool, one Gemm; Relu and Add are gone.
  EXPECT_EQ(ops.at("pare.Conv"), 3);
  EXPECT_EQ(ops.at("pare.MatMul"), 1);
  EXPECT_EQ(ops.count(".Relu"), 0u);
  EXPECT_EQ(ops.count(".Add"), 0u);
  for (const std::int64_t batch : {1, 2, 5}) {
    const Tensor x = random_input({batch, 8, 6, 6}, 3);
    expect_close(run(lowered.graph, x, pool), run(std::make_shared<Graph>(graph), x, pool));
  }
}

TEST(LowerForCpu, WatchedValuesSurviveWithTheirContents) {
  const Graph graph = quant::test::residual_block();
  ThreadPool pool(1);
  const Tensor x = random_input({2, 8, 6, 6}, 5);
  LowerOptions options;
  std::vector<const char*> watched = {"conv1", "relu1", "conv2",  "shortcut",
                                      "sum",   "relu2", "pooled", "flat"};
  for (const char* name : watched) options.keep.push_back(graph.find_value(name));
  const Lowered lowered = lower_for_cpu(graph, options);

  Session plain(std::make_shared<Graph>(graph), {&pool, true, false});
  std::map<std::string, std::vector<float>> want;
  for (const char* name : watched)
    plain.watch(graph.find_value(name), [&want, name](ValueId, const TensorView& v) {
      want[name].assign(v.as<float>(), v.as<float>() + v.size());
    });
  plain.run({x});

  Session session(lowered.graph, {&pool, true, false});
  int seen = 0;
  for (const char* name : watched) {
    const ValueId twin = lowered.find(graph.find_value(name));
    ASSERT_NE(twin, ValueId::kNone) << name;
    const bool moved = lowered.graph->value(twin).layout == Layout::kChannelsLast;
    session.watch(twin, [&, name, moved](ValueId, const TensorView& v) {
      ++seen;
      std::vector<float> got(v.as<float>(), v.as<float>() + v.size());
      if (moved) {  // [N,H,W,C] back to [N,C,H,W]
        const std::int64_t n = v.dims[0], h = v.dims[1], w = v.dims[2], c = v.dims[3];
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t k = 0; k < c; ++k)
            for (std::int64_t p = 0; p < h * w; ++p)
              got[static_cast<std::size_t>((i * c + k) * h * w + p)] = v.as<float>()[(i * h * w + p) * c + k];
      }
      SCOPED_TRACE(name);
      expect_close(got, want[name]);
    });
  }
  session.run({x});
  EXPECT_EQ(seen, static_cast<int>(watched.size()));
}

TEST(LowerForCpu, SwitchesLeaveTheGraphAsItIs) {
  const Graph graph = quant::test::residual_block();
  LowerOptions options;
  options.fuse = false;
  options.channels_last = false;
  const std::map<std::string, int> ops = count_ops(*lower_for_cpu(graph, options).graph);
  EXPECT_EQ(ops.at(".Conv"), 3);
  EXPECT_EQ(ops.at(".Relu"), 2);
}

// The same bits for a sample alone, in a batch, at another place of it, and on more threads.
TEST(LowerForCpu, ResultsDoNotDependOnBatchOrThreads) {
  const Graph graph = quant::test::residual_block();
  const Lowered lowered = lower_for_cpu(graph);
  const Tensor x = random_input({7, 8, 6, 6}, 9);
  ThreadPool one(1), two(2);
  const std::vector<float> all = run(lowered.graph, x, one);
  EXPECT_EQ(run(lowered.graph, x, two), all);
  const std::size_t classes = all.size() / 7;
  for (std::int64_t i = 0; i < 7; ++i) {
    const std::int64_t each = 8 * 6 * 6;
    const Tensor sample =
        Tensor::copy_of(DType::kF32, {1, 8, 6, 6}, x.as<float>() + i * each, sizeof(float) * each);
    const std::vector<float> alone = run(lowered.graph, sample, one);
    for (std::size_t k = 0; k < classes; ++k)
      EXPECT_EQ(alone[k], all[static_cast<std::size_t>(i) * classes + k]) << i;
  }
}

// Conv -> x * Clip(x + 3, 0, 6) / 6 -> Resize -> ConvTranspose (+ Sigmoid): one node each, channels-last
// throughout.
TEST(LowerForCpu, ActivationsWrittenOutResizeAndTransposedConvolution) {
  for (const bool divide_first : {false, true}) {
    Graph graph;
    const auto value = [&](const char* name) {
      Value v;
      v.name = name;
      return graph.add_value(v);
    };
    const auto node = [&](const char* op, std::vector<ValueId> in, const char* out) {
      Node n;
      n.op = op;
      n.name = out;
      n.in = std::move(in);
      n.out = {value(out)};
      return graph.node(graph.add_node(n)).out[0];
    };
    const auto number = [&](float v) { return graph.add_constant("c", Tensor::scalar(v)); };
    Value input;
    input.name = "x";
    input.dtype = DType::kF32;
    input.shape = Shape(std::vector<Dim>{Dim::of(2), Dim::of(3), Dim::of(5), Dim::of(6)});
    const ValueId x = graph.add_value(input);
    graph.inputs = {x};
    const ValueId c = node("Conv", {x, graph.add_constant("w", random_input({8, 3, 1, 1}, 1))}, "conv");
    const ValueId clip = node("Clip", {node("Add", {c, number(3)}, "plus"), number(0), number(6)}, "clip");
    const ValueId swish = divide_first ? node("Mul", {node("Div", {clip, number(6)}, "sixth"), c}, "swish")
                                       : node("Div", {node("Mul", {c, clip}, "product"), number(6)}, "swish");
    const ValueId scales = graph.add_constant("s", Tensor::from<float>(DType::kF32, {4}, {1, 1, 2, 3}));
    const ValueId big = node("Resize", {swish, ValueId::kNone, scales}, "big");
    const ValueId up = node("ConvTranspose",
                            {big, graph.add_constant("t", random_input({8, 4, 3, 3}, 2)),
                             graph.add_constant("b", random_input({4}, 3))},
                            "up");
    const ValueId y = node("Sigmoid", {up}, "y");
    graph.outputs = {y};
    infer_shapes(graph);
    const Lowered lowered = lower_for_cpu(graph);
    const std::map<std::string, int> expected = {{"pare.ToChannelsLast", 1},
                                                 {"pare.Conv", 1},
                                                 {".Resize", 1},
                                                 {"pare.ConvTranspose", 1},
                                                 {"pare.ToPlain", 1}};
    EXPECT_EQ(count_ops(*lowered.graph), expected);
    ThreadPool pool(2);
    const Tensor data = random_input({2, 3, 5, 6}, 4);
    expect_close(run(lowered.graph, data, pool), run(std::make_shared<Graph>(graph), data, pool));
    // A value that somebody watches stays, and so does what computes it.
    LowerOptions watched;
    watched.keep = {clip};
    EXPECT_EQ(count_ops(*lower_for_cpu(graph, watched).graph).count(".Clip"), 1u);
  }
}

// A product has an alpha of its own, which a HardSigmoid's once overwrote (found by fuzzing the executor).
TEST(LowerForCpu, ActivationsOfProducts) {
  for (const char* op : {"HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Relu", "Gelu", "Swish"}) {
    for (const bool scaled : {false, true}) {
      Graph graph;
      const auto value = [&](const char* name) {
        Value v;
        v.name = name;
        return graph.add_value(v);
      };
      Value input;
      input.name = "x";
      input.dtype = DType::kF32;
      input.shape = Shape(std::vector<Dim>{Dim::of(3), Dim::of(4)});
      const ValueId x = graph.add_value(input);
      graph.inputs = {x};
      Node product, act;
      product.op = "Gemm";
      product.in = {x, graph.add_constant("w", random_input({4, 5}, 1)),
                    graph.add_constant("b", random_input({5}, 2))};
      product.out = {value("p")};
      if (scaled) product.attrs["alpha"] = 0.5f;
      graph.add_node(product);
      act.op = op;
      act.in = {product.out[0]};
      act.out = {value("y")};
      if (act.op == "HardSigmoid") act.attrs["alpha"] = 0.3f;
      graph.add_node(act);
      graph.outputs = {act.out[0]};
      infer_shapes(graph);
      ThreadPool pool(1);
      const Tensor data = random_input({3, 4}, 3);
      expect_close(run(lower_for_cpu(graph).graph, data, pool),
                   run(std::make_shared<Graph>(graph), data, pool));
    }
  }
}

// Models that keep images channels-last (TensorFlow's) and transpose them around each convolution.
TEST(LowerForCpu, TransposesAroundConvolutionsGo) {
  for (const bool read_again : {false, true}) {  // somebody else reads what the first Transpose wrote
    Graph graph;
    const auto node = [&](const char* op, std::vector<ValueId> in, std::vector<std::int64_t> perm) {
      Value v;
      v.name = op;
      Node n;
      n.op = op;
      n.in = std::move(in);
      n.out = {graph.add_value(v)};
      if (!perm.empty()) n.attrs["perm"] = std::move(perm);
      return graph.node(graph.add_node(n)).out[0];
    };
    Value input;
    input.name = "x";
    input.dtype = DType::kF32;
    input.shape = Shape(std::vector<Dim>{Dim::of(2), Dim::of(5), Dim::of(6), Dim::of(3)});
    const ValueId x = graph.add_value(input);
    graph.inputs = {x};
    const ValueId maps = node("Transpose", {x}, {0, 3, 1, 2});
    const ValueId c = node("Conv", {maps, graph.add_constant("w", random_input({8, 3, 3, 3}, 1))}, {});
    graph.outputs = {node("Transpose", {c}, {0, 2, 3, 1})};
    if (read_again) graph.outputs.push_back(node("ReduceMax", {maps}, {}));
    infer_shapes(graph);
    const Lowered lowered = lower_for_cpu(graph);
    std::map<std::string, int> counts = count_ops(*lowered.graph);
    EXPECT_EQ(counts.count("pare.ToChannelsLast") + counts.count("pare.ToPlain"), 0U);
    EXPECT_EQ(counts[".Transpose"], read_again ? 1 : 0);
    ThreadPool pool(2);
    const Tensor data = random_input({2, 5, 6, 3}, 2);
    Session fast(lowered.graph, {&pool, true, false}),
        plain(std::make_shared<Graph>(graph), {&pool, true, false});
    const std::vector<Tensor> got = fast.run({data}), want = plain.run({data});
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].dims(), want[i].dims());
      expect_close({got[i].as<float>(), got[i].as<float>() + got[i].size()},
                   {want[i].as<float>(), want[i].as<float>() + want[i].size()});
    }
    LowerOptions watched;
    watched.keep = {maps, c};
    const Lowered kept = lower_for_cpu(graph, watched);
    Session tapped(kept.graph, {&pool, true, false});
    int seen = 0;
    for (const ValueId id : watched.keep)
      tapped.watch(kept.find(id), [&](ValueId, const TensorView&) { ++seen; });
    tapped.run({data});
    EXPECT_EQ(seen, 2);
  }
}

// float16 convolutions and products run in float32, and give what the plain float16 kernels give: sums in
// another order, rounded once to 11 bits.
TEST(LowerForCpu, HalvesAreWidened) {
  for (const DType half : {DType::kF16, DType::kBF16}) {
    Graph graph;
    const auto narrow = [&](Dims dims, unsigned seed) {
      const Tensor wide = random_input(std::move(dims), seed);
      Tensor t = Tensor::allocate(half, wide.dims());
      convert(wide.view(), {half, wide.dims(), t.mut<std::byte>()});
      return t;
    };
    Value input, mid, out;
    input.name = "x";
    input.dtype = half;
    input.shape = Shape(std::vector<Dim>{Dim::of(2), Dim::of(3), Dim::of(5), Dim::of(6)});
    mid.name = "mid";
    out.name = "y";
    const ValueId x = graph.add_value(input), c = graph.add_value(mid), y = graph.add_value(out);
    Node conv, relu;
    conv.op = "Conv";
    conv.in = {x, graph.add_constant("w", narrow({8, 3, 3, 3}, 1)), graph.add_constant("b", narrow({8}, 2))};
    conv.out = {c};
    relu.op = "Relu";
    relu.in = {c};
    relu.out = {y};
    graph.add_node(conv);
    graph.add_node(relu);
    graph.inputs = {x};
    graph.outputs = {y};
    infer_shapes(graph);
    const Lowered lowered = lower_for_cpu(graph);
    EXPECT_EQ(count_ops(*lowered.graph).at("pare.Conv"), 1);
    EXPECT_EQ(count_ops(*lowered.graph).at(".Cast"), 2);
    ThreadPool pool(2);
    const Tensor data = narrow({2, 3, 5, 6}, 3);
    Session fast(lowered.graph, {&pool, true, false}),
        plain(std::make_shared<Graph>(graph), {&pool, true, false});
    const Tensor got = fast.run({data})[0], want = plain.run({data})[0];
    ASSERT_EQ(got.dtype(), half);
    Tensor a = Tensor::allocate(DType::kF32, got.dims()), b = Tensor::allocate(DType::kF32, want.dims());
    convert(got.view(), {DType::kF32, got.dims(), a.mut<float>()});
    convert(want.view(), {DType::kF32, want.dims(), b.mut<float>()});
    const float unit = half == DType::kF16 ? 0x1p-10F : 0x1p-7F;
    for (std::int64_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a.as<float>()[i], b.as<float>()[i], unit * std::fabs(b.as<float>()[i]) + 1e-5F);
  }
}

// An LSTM whose sequence nobody wants (output 0 left out), in front of what lowering looks at.
TEST(LowerForCpu, FirstOutputLeftOut) {
  Graph graph;
  Value input, last;
  input.name = "x";
  input.dtype = DType::kF32;
  input.shape = Shape(std::vector<Dim>{Dim::of(3), Dim::of(1), Dim::of(2)});
  last.name = "h";
  const ValueId x = graph.add_value(input), h = graph.add_value(last);
  Node lstm;
  lstm.op = "LSTM";
  lstm.in = {x, graph.add_constant("w", random_input({1, 16, 2}, 1)),
             graph.add_constant("r", random_input({1, 16, 4}, 2))};
  lstm.out = {ValueId::kNone, h};
  lstm.attrs["hidden_size"] = std::int64_t{4};
  graph.add_node(lstm);
  graph.inputs = {x};
  graph.outputs = {h};
  infer_shapes(graph);
  ThreadPool pool(1);
  const Tensor data = random_input({3, 1, 2}, 3);
  expect_close(run(lower_for_cpu(graph).graph, data, pool), run(std::make_shared<Graph>(graph), data, pool));
}

// x W with W = DequantizeLinear of `codes` along K, a bias, a residual and a Relu.
struct CodedProduct {
  Graph graph;
  ValueId weight = ValueId::kNone;

  ValueId add(const char* op, std::vector<ValueId> in, Dims dims, Attributes attrs = {}) {
    Node node;
    node.op = node.name = op;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    Value value;
    value.name = std::string(op) + "_out";
    value.dtype = DType::kF32;
    value.shape = Shape(dims);
    node.out = {graph.add_value(std::move(value))};
    const ValueId out = node.out[0];
    graph.add_node(std::move(node));
    return out;
  }

  // levels: 1, or scales as E4M3 codes times (2) or divided by (3) a global one.
  explicit CodedProduct(DType type, bool transposed, bool gemm, bool zero, int levels) {
    const std::int64_t k = 24, n = 20, block = 8;
    Value input;
    input.name = "x";
    input.dtype = DType::kF32;
    input.shape = Shape({Dim::of(3), Dim::of(k)});
    const ValueId x = graph.add_value(std::move(input));
    graph.inputs = {x};
    const Dims matrix = transposed ? Dims{n, k} : Dims{k, n},
               per = transposed ? Dims{n, k / block} : Dims{k / block, n};
    std::mt19937 rng(9);
    const auto codes = [&](DType of, const Dims& dims, unsigned mask) {
      Tensor t = Tensor::allocate(of, dims);
      for (std::int64_t i = 0; i < t.bytes(); ++i)
        t.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(rng() & mask);
      return t;
    };
    ValueId scale = graph.add_constant("scale", random_input(per, 4));
    if (levels > 1) {
      const ValueId local = graph.add_constant("local", codes(DType::kE4M3FN, per, 0x7B)),
                    global = graph.add_constant("global", Tensor::scalar(0.37f));
      scale = levels == 2
                  ? add("DequantizeLinear", {local, global}, per)
                  : add("Div",
                        {add("Cast", {local}, per, {{"to", static_cast<std::int64_t>(DType::kF32)}}), global},
                        per);
    }
    std::vector<ValueId> in = {graph.add_constant("codes", codes(type, matrix, 0xFF)), scale};
    if (zero) in.push_back(graph.add_constant("zero", codes(type, per, 0xFF)));
    weight = add("DequantizeLinear", in, matrix,
                 {{"axis", std::int64_t{transposed ? 1 : 0}}, {"block_size", block}});
    const ValueId bias = graph.add_constant("bias", random_input({n}, 5));
    ValueId y = ValueId::kNone;
    if (gemm) {
      y = add("Gemm", {x, weight, bias}, {3, n}, {{"transB", std::int64_t{transposed ? 1 : 0}}});
    } else {
      ValueId w = weight;
      if (transposed) w = add("Transpose", {w}, {k, n}, {{"perm", std::vector<std::int64_t>{1, 0}}});
      y = add("Add", {add("MatMul", {x, w}, {3, n}), bias}, {3, n});
    }
    const ValueId other = add("Sigmoid", {y}, {3, n});
    y = add("Relu",
            {add("Add", {add("MatMul", {x, weight_again(matrix, transposed)}, {3, n}), other}, {3, n})},
            {3, n});
    graph.outputs = {y};
    infer_shapes(graph);
  }

  // A second reader, so that a weight of two products is seen too.
  ValueId weight_again(const Dims&, bool transposed) {
    return transposed ? add("Transpose", {weight}, {24, 20}, {{"perm", std::vector<std::int64_t>{1, 0}}})
                      : weight;
  }
};

TEST(LowerForCpu, ProductsKeepWeightsOfFewBits) {
  ThreadPool pool(2);
  int cases = 0;
  for (const DType type : {DType::kI4, DType::kU4, DType::kE2M1, DType::kI8, DType::kU8})
    for (const bool transposed : {false, true})
      for (const bool gemm : {false, true})
        for (const bool zero : {false, true})
          for (const int levels : {1, 2, 3}) {
            if (zero && type == DType::kE2M1) continue;
            const CodedProduct net(type, transposed, gemm, zero, levels);
            const Lowered lowered = lower_for_cpu(net.graph);
            const std::map<std::string, int> ops = count_ops(*lowered.graph);
            EXPECT_EQ(ops.at("pare.WMatMul"), 2);
            EXPECT_EQ(ops.size(), 1u) << "bias, residual and activations are in the products";
            // Watched, the weight is made as a whole, and the products are ordinary ones: the same bits.
            LowerOptions watched;
            watched.keep = {net.weight};
            const Lowered whole = lower_for_cpu(net.graph, watched);
            EXPECT_EQ(count_ops(*whole.graph).count("pare.WMatMul"), 0u);
            const Tensor x = random_input({3, 24}, 6);
            EXPECT_EQ(run(lowered.graph, x, pool), run(whole.graph, x, pool)) << name(type);
            ++cases;
          }
  EXPECT_EQ(cases, 108);
}

}  // namespace
}  // namespace pare
