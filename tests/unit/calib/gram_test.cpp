// Gram matrices against plain double sums, and the same bits however the stream of positions was cut.
//
// Tolerance: a block's chain of K <= kGramBlock fused steps is off by at most K 2^-24 sum |x_i x_j|
// (1 + a little), and adding blocks in float64 adds nothing to speak of.
#include "calib/gram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "calib/gram_collect.h"
#include "calib/gram_geometry.h"
#include "datasets/npy.h"
#include "engine/base/isa.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/calib/values.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

struct Size {
  std::int64_t n, groups, positions;
};

Gram accumulate(const std::vector<float>& x, const Size& size, std::int64_t piece, int threads) {
  ThreadPool pool(threads);
  GramAccumulator sum("layer", size.n, size.groups, pool);
  const std::int64_t width = size.n * size.groups;
  for (std::int64_t at = 0; at < size.positions;) {
    std::int64_t k = std::min(piece, size.positions - at);
    float* out = sum.rows(k);
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t g = 0; g < size.groups; ++g)
        for (std::int64_t c = 0; c < size.n; ++c)
          out[p * width + g * sum.group_stride() + c * sum.column_stride()] =
              x[static_cast<std::size_t>((at + p) * width + g * size.n + c)];
    sum.commit(k);
    at += k;
  }
  return sum.take();
}

TEST(Gram, AgreesWithPlainSumsOnEveryInstructionClass) {
  const Isa best = isa();
  for (const Size& size :
       {Size{1, 1, 1}, Size{5, 1, 513}, Size{33, 1, 512}, Size{96, 1, 40}, Size{97, 1, 1300},
        Size{300, 1, 600}, Size{9, 40, 700}, Size{25, 33, 513}, Size{70, 3, 520}, Size{1, 5, 9}}) {
    const std::vector<float> x = normal_values(static_cast<int>(size.n * size.groups * size.positions), 11);
    Gram want, magnitudes;
    want.n = magnitudes.n = size.n;
    want.groups = magnitudes.groups = size.groups;
    add_plain(want, x.data(), size.positions);
    std::vector<float> absolute = x;
    for (float& v : absolute) v = std::fabs(v);
    add_plain(magnitudes, absolute.data(), size.positions);
    const Gram got = accumulate(x, size, 64, 1);
    ASSERT_EQ(got.sums.size(), want.sums.size());
    EXPECT_EQ(got.count, static_cast<std::uint64_t>(size.positions));
    const double bound = static_cast<double>(std::min(size.positions, kGramBlock) + 1) * std::exp2(-24);
    for (std::size_t i = 0; i < got.sums.size(); ++i)
      ASSERT_NEAR(got.sums[i], want.sums[i], bound * magnitudes.sums[i]) << size.n << " " << i;
    for (std::size_t i = 0; i < got.totals.size(); ++i)
      ASSERT_NEAR(got.totals[i], want.totals[i], 1e-12 * magnitudes.totals[i]);
    // The order of totals and of the two triangles.
    EXPECT_EQ(got.at(size.groups - 1, 0, size.n - 1), got.at(size.groups - 1, size.n - 1, 0));
    for (const Isa level : {Isa::kScalar, Isa::kAvx2, best}) {
      if (level > best) continue;
      set_isa(level);
      for (const std::int64_t piece : {1, 50, 5000})
        for (const int threads : {1, 2}) {
          if (level == Isa::kScalar && piece == 1) continue;  // slow, and nothing new
          const Gram again = accumulate(x, size, piece, threads);
          EXPECT_EQ(again.sums, got.sums);
          EXPECT_EQ(again.totals, got.totals);
        }
      set_isa(best);
    }
  }
}

TEST(Gram, LeavesBrokenPositionsOutAndCountsThem) {
  const Size size{8, 1, 600};
  std::vector<float> x = normal_values(8 * 600, 2);
  std::vector<float> clean;
  for (std::int64_t p = 0; p < size.positions; ++p)
    if (p != 3 && p != 599) clean.insert(clean.end(), x.begin() + p * 8, x.begin() + p * 8 + 8);
  x[3 * 8 + 2] = std::numeric_limits<float>::quiet_NaN();
  x[599 * 8 + 7] = -std::numeric_limits<float>::infinity();
  const Gram got = accumulate(x, size, 100, 2);
  EXPECT_EQ(got.count, 598u);
  EXPECT_EQ(got.nonfinite, 2u);
  Gram want;
  want.n = 8;
  add_plain(want, clean.data(), 598);
  for (std::size_t i = 0; i < want.sums.size(); ++i) EXPECT_NEAR(got.sums[i], want.sums[i], 1e-2);
  Gram plain;
  plain.n = 8;
  add_plain(plain, x.data(), 600);
  EXPECT_EQ(plain.sums, want.sums);
  EXPECT_EQ(plain.nonfinite, 2u);
}

TEST(Gram, DenseIsTheMeanOfBothTriangles) {
  Gram gram;
  gram.n = 2;
  const float x[] = {1, 2, 3, -4};
  add_plain(gram, x, 2);
  EXPECT_EQ(gram.dense(0), (std::vector<float>{5, -5, -5, 10}));
  EXPECT_EQ(gram.mean(0), (std::vector<double>{2, -1}));
  EXPECT_EQ(gram.mean_square(0), (std::vector<double>{5, 10}));
  Gram none;
  none.n = 1;
  none.sums = {0};
  none.totals = {0};
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.mean(0), (std::vector<double>{0}));
}

// One linear node over x; y = rows * weight is checked by running the node.
struct Linear {
  Graph graph;
  NodeId node;

  Linear(const char* op, const std::vector<Dim>& input, const Dims& weight, const Attributes& attrs) {
    Value x, y;
    x.name = "x";
    y.name = "y";
    x.dtype = y.dtype = DType::kF32;
    x.shape = Shape(input);
    Node n;
    n.op = op;
    n.name = "layer";
    n.attrs = attrs;
    const ValueId in = graph.add_value(x);
    const ValueId w = graph.add_constant(
        "w", Tensor::from(DType::kF32, weight, normal_values(static_cast<int>(element_count(weight)), 5)));
    n.in = {in, w};
    n.out = {graph.add_value(y)};
    graph.inputs = {in};
    graph.outputs = n.out;
    node = graph.add_node(n);
    infer_shapes(graph);
  }
};

// Rows times weight give what the operator gives: positions, taps, padding and groups are where they belong.
void expect_rows_are_what_the_node_reads(const char* op, const Dims& dims, const Dims& weight,
                                         const Attributes& attrs) {
  SCOPED_TRACE(std::string(op) + " " + to_string(dims) + " x " + to_string(weight));
  std::vector<Dim> symbolic;
  for (const std::int64_t size : dims) symbolic.push_back(Dim::of(size));
  const Linear linear(op, symbolic, weight, attrs);
  GramGeometry geometry;
  ASSERT_TRUE(gram_geometry(linear.graph, linear.graph.node(linear.node), geometry));
  const Tensor x = Tensor::from(DType::kF32, dims, normal_values(static_cast<int>(element_count(dims)), 6));
  ThreadPool pool(1);
  Session session(std::make_shared<Graph>(linear.graph), {&pool, true, false});
  const Tensor y = session.run({x}).at(0);
  const Tensor& w = linear.graph.value(linear.graph.node(linear.node).in[1]).constant;

  for (const Layout layout : {Layout::kPlain, Layout::kChannelsLast}) {
    if (layout == Layout::kChannelsLast && dims.size() < 3) continue;
    // [N, C, S] -> [N, S, C]
    Tensor lying = x.clone();
    Dims physical = dims;
    if (layout == Layout::kChannelsLast) {
      std::rotate(physical.begin() + 1, physical.begin() + 2, physical.end());
      const std::int64_t inner = x.size() / dims[0] / dims[1];
      for (std::int64_t b = 0; b < dims[0]; ++b)
        for (std::int64_t c = 0; c < dims[1]; ++c)
          for (std::int64_t s = 0; s < inner; ++s)
            lying.mut<float>()[(b * inner + s) * dims[1] + c] = x.as<float>()[(b * dims[1] + c) * inner + s];
    }
    const GramRows rows(geometry, physical, layout);
    const std::int64_t n = geometry.n(), groups = geometry.groups, width = n * groups;
    std::vector<float> gathered(static_cast<std::size_t>(rows.positions() * width), -99.0f),
        turned(gathered.size());
    rows.gather(lying.as<float>(), 0, rows.positions(), n, 1, gathered.data());
    rows.gather(lying.as<float>(), 0, rows.positions(), 1, groups, turned.data());
    for (std::int64_t p = 0; p < rows.positions() && groups > 1; ++p)
      for (std::int64_t c = 0; c < width; ++c)
        ASSERT_EQ(turned[static_cast<std::size_t>(p * width + c % n * groups + c / n)],
                  gathered[static_cast<std::size_t>(p * width + c)]);
    const bool transposed = linear.graph.node(linear.node).attr("transB", std::int64_t{0}) != 0;
    const std::int64_t outs = geometry.conv ? weight[0] : transposed ? weight[0] : weight[1];
    ASSERT_EQ(rows.positions() * outs, y.size());
    const std::int64_t inner = geometry.conv ? rows.positions() / dims[0] : 1;
    for (std::int64_t p = 0; p < rows.positions(); ++p)
      for (std::int64_t out = 0; out < outs; ++out) {
        double sum = 0, magnitude = 0;
        for (std::int64_t tap = 0; tap < geometry.taps; ++tap)
          for (std::int64_t c = 0; c < geometry.ins; ++c) {
            const std::int64_t at = geometry.conv ? (out * geometry.ins + c) * geometry.taps + tap
                                    : transposed  ? out * geometry.ins + c
                                                  : c * outs + out;
            const std::int64_t group = out / (outs / groups);
            const double v =
                static_cast<double>(w.as<float>()[at]) *
                static_cast<double>(
                    gathered[static_cast<std::size_t>(p * width + group * n + tap * geometry.ins + c)]);
            sum += v;
            magnitude += std::fabs(v);
          }
        const std::int64_t at = geometry.conv ? (p / inner * outs + out) * inner + p % inner : p * outs + out;
        // A few roundings a term, however the kernel sums (Winograd included).
        ASSERT_NEAR(static_cast<double>(y.as<float>()[at]), sum, 1e-5 * (magnitude + 1)) << p << " " << out;
      }
  }
}

TEST(GramRows, AreWhatTheNodeMultiplies) {
  using Ints = std::vector<std::int64_t>;
  const auto one = [](std::int64_t v) { return Attribute(v); };
  expect_rows_are_what_the_node_reads("MatMul", {3, 5}, {5, 4}, {});
  expect_rows_are_what_the_node_reads("MatMul", {2, 3, 5}, {5, 4}, {});
  expect_rows_are_what_the_node_reads("Gemm", {3, 5}, {5, 4}, {});
  expect_rows_are_what_the_node_reads("Gemm", {3, 5}, {4, 5}, {{"transB", one(1)}});
  expect_rows_are_what_the_node_reads("Gemm", {5, 3}, {5, 4}, {{"transA", one(1)}});
  expect_rows_are_what_the_node_reads("Conv", {2, 3, 6, 7}, {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}});
  expect_rows_are_what_the_node_reads(
      "Conv", {2, 4, 9, 7}, {6, 2, 3, 2},
      {{"group", one(2)}, {"strides", Ints{2, 1}}, {"dilations", Ints{1, 2}}, {"pads", Ints{0, 2, 1, 0}}});
  expect_rows_are_what_the_node_reads("Conv", {2, 5, 6, 6}, {5, 1, 3, 3},
                                      {{"group", one(5)}, {"auto_pad", std::string("SAME_UPPER")}});
  expect_rows_are_what_the_node_reads("Conv", {1, 3, 11}, {2, 3, 4}, {{"strides", Ints{3}}});
  expect_rows_are_what_the_node_reads("Conv", {1, 2, 3, 4, 5}, {3, 2, 2, 2, 2}, {});
  expect_rows_are_what_the_node_reads("Conv", {2, 8, 5, 5}, {4, 8, 1, 1}, {});
}

TEST(GramRows, RefuseWhatDoesNotFit) {
  const Linear linear("MatMul", {Dim::named("n"), Dim::of(4)}, {4, 3}, {});
  GramGeometry geometry;
  ASSERT_TRUE(gram_geometry(linear.graph, linear.graph.node(linear.node), geometry));
  EXPECT_ERROR(GramRows(geometry, {2, 5}, Layout::kPlain), "usage", "layer of 4 channels");
  Graph graph = linear.graph;
  Node node = graph.node(linear.node);
  node.in[1] = node.in[0];
  EXPECT_FALSE(gram_geometry(graph, node, geometry));
  node = graph.node(linear.node);
  node.op = "Relu";
  EXPECT_FALSE(gram_geometry(graph, node, geometry));
}

// The example networks on real images.
class CollectGrams : public testing::Test {
 protected:
  static constexpr std::int64_t kImages = 20;

  explicit CollectGrams(const char* model = "vit") {
    graph = load_model(source_path(std::string("examples/fashion/") + model + ".onnx"));
    simplify(graph);
    for (const NodeId id : graph.nodes()) {
      GramGeometry geometry;
      if (gram_geometry(graph, graph.node(id), geometry)) targets.push_back({{}, id});
    }
    const Tensor all = read_npy(source_path("examples/fashion/fashion_calibration_images.npy"));
    write_npy(folder.file("x.npy"),
              Tensor::copy_of(DType::kU8, {kImages, 28, 28, 1}, all.data(), kImages * 784).view());
  }
  std::vector<GramPair> run(std::int64_t batch, int threads, std::int64_t held_out = 0,
                            std::int64_t memory = std::int64_t{1} << 30) {
    Dataset data(
        parse_data_argument(folder.file("x.npy") + ":layout=nhwc_to_nchw,scale=1/255,mean=0.2860,std=0.3530"),
        model_inputs(graph));
    ThreadPool pool(threads);
    GramOptions options;
    options.pool = &pool;
    options.batch = batch;
    options.held_out = held_out;
    options.memory_bytes = memory;
    std::vector<GramPair> pairs(targets.size());
    std::vector<int> calls(targets.size());
    collect_grams(graph, targets, data, options,
                  [&](std::size_t i, const std::shared_ptr<const GramPair>& pair) {
                    pairs[i] = *pair;
                    ++calls[i];
                  });
    passes = forecast_grams(graph, targets, options).passes;
    EXPECT_EQ(calls, std::vector<int>(targets.size(), 1));
    return pairs;
  }
  TemporaryFolder folder;
  Graph graph;
  std::vector<GramTarget> targets;
  std::int64_t passes = 0;
};

class CollectGramsOf : public CollectGrams, public testing::WithParamInterface<const char*> {
 protected:
  CollectGramsOf() : CollectGrams(GetParam()) {}
};

TEST_P(CollectGramsOf, SameBitsForAnyBatchThreadsAndPasses) {
  const std::vector<GramPair> want = run(20, 1);
  EXPECT_EQ(passes, 1);
  ASSERT_GT(want.size(), 10u);
  for (const GramPair& pair : want) {
    EXPECT_GT(pair.fit.count, 0u) << pair.fit.name;
    EXPECT_TRUE(pair.held_out.empty());
  }
  const auto expect_same = [&](const std::vector<GramPair>& got) {
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].fit.sums, want[i].fit.sums) << want[i].fit.name;
      EXPECT_EQ(got[i].fit.totals, want[i].fit.totals);
      EXPECT_EQ(got[i].fit.count, want[i].fit.count);
    }
  };
  expect_same(run(7, 2));
  expect_same(run(20, 2, 0, 6'000'000));
  EXPECT_GT(passes, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, CollectGramsOf, testing::Values("resnet", "mobilenet", "vit"),
                         [](const auto& p) { return std::string(p.param); });

TEST_F(CollectGrams, HeldOutSamplesHaveAMatrixOfTheirOwn) {
  const std::vector<GramPair> all = run(20, 1), cut = run(8, 1, 5);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(cut[i].fit.count + cut[i].held_out.count, all[i].fit.count);
    EXPECT_EQ(cut[i].held_out.count * 4, all[i].fit.count);
    for (std::int64_t c = 0; c < all[i].fit.n; ++c)
      EXPECT_NEAR(cut[i].fit.at(0, c, c) + cut[i].held_out.at(0, c, c), all[i].fit.at(0, c, c),
                  1e-4 * all[i].fit.at(0, c, c));
  }
  EXPECT_ERROR(run(8, 1, 20), "usage", "held out");
}

TEST_F(CollectGrams, RefusesANodeWithoutAWeight) {
  for (const NodeId id : graph.nodes())
    if (graph.node(id).op == "Softmax") targets = {{{}, id}};
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_ERROR(run(8, 1), "usage", "no constant weight");
}

}  // namespace
}  // namespace pare
