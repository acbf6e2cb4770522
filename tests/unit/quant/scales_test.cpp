// Factors that move between an activation and the weights that read it: where they can, that the float
// function stays, and which are chosen.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "quant/grid/grid.h"
#include "quant/transform/channel_shift.h"
#include "quant/transform/scale_group.h"
#include "quant/transform/scale_search.h"
#include "tests/unit/graphsurgeon/text_model.h"
#include "tests/unit/quant/build_graph.h"

namespace pare::quant {
namespace {

Tensor noise(Dims dims, unsigned seed) {
  Tensor tensor = Tensor::allocate(DType::kF32, std::move(dims));
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.mut<float>()[i] = normal(rng);
  return tensor;
}

// "<float[8,3] name = {...}>" of random numbers.
std::string weight(const std::string& dims, const std::string& name, std::int64_t count, unsigned seed) {
  const Tensor values = noise({count}, seed);
  std::string text = "float[" + dims + "] " + name + " = {";
  for (std::int64_t i = 0; i < count; ++i)
    text += (i != 0 ? "," : "") + std::to_string(values.as<float>()[i] * 0.3f);
  return text + "}";
}

std::vector<float> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  ThreadPool pool(1);
  Session session(std::make_shared<Graph>(graph), {&pool, true, false});
  const Tensor y = session.run(inputs)[0];
  return {y.as<float>(), y.as<float>() + y.size()};
}

struct Expectation {
  const char* value;
  bool folded;
};

// Every group is found as expected, and takes powers of two without moving a bit of the outputs.
void check_groups(Graph graph, const std::vector<Tensor>& inputs, const std::vector<Expectation>& expected,
                  bool clips = false) {
  const std::vector<float> before = run(graph, inputs);
  std::vector<ScaleGroup> groups = find_scale_groups(graph, clips);
  ASSERT_EQ(groups.size(), expected.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Graph& here = subgraph_at(graph, groups[i].path);
    EXPECT_EQ(here.value(groups[i].value).name, expected[i].value);
    EXPECT_EQ(groups[i].folded, expected[i].folded) << expected[i].value;
  }
  unsigned seed = 0;
  for (ScaleGroup& group : groups) {
    std::mt19937 rng(++seed);
    std::vector<float> s;
    for (std::int64_t c = 0; c < group.channels; ++c)
      s.push_back(std::exp2(static_cast<float>(static_cast<int>(rng() % 9)) - 4));
    ASSERT_TRUE(apply_scales(graph, group, s));
  }
  verify(graph);
  EXPECT_EQ(run(graph, inputs), before);
}

TEST(ScaleGroups, ConvolutionsBehindARelu) {
  // relu1 is made by a convolution and read by one; x is an input. The Gemm reads a mean of relu2, a sum of
  // two convolutions: both take the factor.
  check_groups(test::residual_block(), {noise({3, 8, 6, 6}, 2)},
               {{"x", false}, {"relu1", true}, {"flat", true}});
}

// One q/k/v product whose result is cut, three ways of it scaled by one norm, the values through the heads,
// an activation function that does not commute.
std::string attention() {
  return "g (float[N,5,12] x) => (float[N,5,12] y) <" + weight("12", "n1", 12, 1) + "," +
         weight("12", "n1b", 12, 2) + "," + weight("12,36", "wqkv", 432, 3) + "," +
         weight("36", "bqkv", 36, 4) + "," + weight("12,12", "wo", 144, 5) + "," + weight("12", "n2", 12, 6) +
         "," + weight("12,24", "w1", 288, 7) + "," + weight("24", "b1", 24, 8) + "," +
         weight("24,12", "w2", 288, 9) +
         R"(, int64[5] cut = {0,5,3,2,6}, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2},
            int64[1] i3 = {3}, int64[3] back = {0,5,12}> {
    a = LayerNormalization<axis = -1>(x, n1, n1b)
    p = MatMul(a, wqkv)
    pb = Add(p, bqkv)
    r = Reshape(pb, cut)
    t = Transpose<perm = [2,0,3,1,4]>(r)
    q1 = Slice(t, i0, i1, i0)
    q = Squeeze(q1, i0)
    k1 = Slice(t, i1, i2, i0)
    k = Squeeze(k1, i0)
    v1 = Slice(t, i2, i3, i0)
    v = Squeeze(v1, i0)
    kt = Transpose<perm = [0,1,3,2]>(k)
    s = MatMul(q, kt)
    w = Softmax<axis = -1>(s)
    h = MatMul(w, v)
    ht = Transpose<perm = [0,2,1,3]>(h)
    o = Reshape(ht, back)
    z = MatMul(o, wo)
    x2 = Add(x, z)
    b = RMSNormalization<axis = -1>(x2, n2)
    u = MatMul(b, w1)
    ub = Add(u, b1)
    g = Gelu(ub)
    d = MatMul(g, w2)
    y = Add(x2, d)
  })";
}

TEST(ScaleGroups, NormsValuesThroughHeadsAndAMulBehindGelu) {
  check_groups(text_graph(23, attention()), {noise({2, 5, 12}, 3)},
               {{"a", true}, {"o", true}, {"b", true}, {"g", false}});
}

// The cuts of attention() as one Split: q and k, its other outputs, must not take the factor of v.
TEST(ScaleGroups, ValuesFromOneOutputOfASplit) {
  std::string text = attention();
  const std::size_t begin = text.find("q1 = Slice"), end = text.find("kt = Transpose");
  text.replace(begin, end - begin,
               "q1, k1, v1 = Split<axis = 0, num_outputs = 3>(t) q = Squeeze(q1, i0) k = Squeeze(k1, i0) "
               "v = Squeeze(v1, i0) ");
  check_groups(text_graph(23, text), {noise({2, 5, 12}, 3)},
               {{"a", true}, {"o", true}, {"b", true}, {"g", false}});
}

// Every head multiplies the same values: a factor a channel of the result has no place in them.
TEST(ScaleGroups, ValuesThatHeadsShare) {
  const std::string text = "g (float[N,5,12] x) => (float[N,5,12] y) <" + weight("12,12", "wq", 144, 1) +
                           "," + weight("12,4", "wk", 48, 2) + "," + weight("12,4", "wv", 48, 3) + "," +
                           weight("12,12", "wo", 144, 4) +
                           R"(, int64[4] cut = {0,5,3,4}, int64[3] back = {0,5,12}, int64[1] i1 = {1}> {
    q1 = MatMul(x, wq)
    q2 = Reshape(q1, cut)
    q = Transpose<perm = [0,2,1,3]>(q2)
    k1 = MatMul(x, wk)
    k2 = Unsqueeze(k1, i1)
    k = Transpose<perm = [0,1,3,2]>(k2)
    v1 = MatMul(x, wv)
    v = Unsqueeze(v1, i1)
    s = MatMul(q, k)
    w = Softmax<axis = -1>(s)
    h = MatMul(w, v)
    ht = Transpose<perm = [0,2,1,3]>(h)
    o = Reshape(ht, back)
    y = MatMul(o, wo)
  })";
  check_groups(text_graph(21, text), {noise({2, 5, 12}, 3)}, {{"x", false}, {"o", false}});
}

// Behind Flatten each pixel is a channel of its own: a pool mixes them.
TEST(ScaleGroups, PoolsMixPixels) {
  for (const char* pool : {"AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>",
                           "MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>"}) {
    const std::string text = "g (float[N,2,4,4] x) => (float[N,3] y) <" + weight("2,1,1", "row", 2, 1) + "," +
                             weight("32,3", "w", 96, 2) + "> { a = Mul(x, row) p = " + pool +
                             "(a) f = Flatten(p) y = MatMul(f, w) }";
    check_groups(text_graph(21, text), {noise({2, 2, 4, 4}, 1)}, {{"f", false}});
  }
  const std::string text = "g (float[N,2,4,4] x) => (float[N,3] y) <" + weight("2,1,1", "row", 2, 1) + "," +
                           weight("2,3", "w", 6, 2) +
                           "> { a = Mul(x, row) p = MaxPool<kernel_shape = [4,4]>(a) f = Flatten(p) "
                           "y = MatMul(f, w) }";
  check_groups(text_graph(21, text), {noise({2, 2, 4, 4}, 1)}, {{"f", true}});
}

// The way behind a number ends at a Sigmoid, after it has met a weight: the number takes the factor alone.
TEST(ScaleGroups, AWayThatEndsNowhereLeavesNothing) {
  const std::string text = "g (float[N,6] x) => (float[N,4] y) <" + weight("6,8", "w", 48, 1) + "," +
                           weight("6,8", "u", 48, 2) + "," + weight("8,4", "v", 32, 3) +
                           ", float half = {0.5}> { p = MatMul(x, w) q = MatMul(x, u) s = Sigmoid(q) "
                           "a = Add(p, s) m = Mul(a, half) y = MatMul(m, v) }";
  check_groups(text_graph(21, text), {noise({4, 6}, 1)}, {{"x", false}, {"m", true}});
}

// An element that is gathered twice, once for a reader that wants it as it was.
TEST(ScaleGroups, AnElementGatheredTwice) {
  const std::string text =
      "g (float[N,6] x) => (float[N,4] y, float[N,1] z) <" + weight("6,3", "w", 18, 1) + "," +
      weight("2,4", "v", 8, 2) +
      ", int64[3] twice = {0,0,1}, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i3 = {3}> {"
      " p = MatMul(x, w) g = Gather<axis = 1>(p, twice) z = Slice(g, i0, i1, i1) "
      "c = Slice(g, i1, i3, i1) y = MatMul(c, v) }";
  check_groups(text_graph(21, text), {noise({4, 6}, 1)}, {{"x", false}, {"c", false}});
}

// Both halves of a limited value in one sum: the limits cannot become rows twice.
TEST(ScaleGroups, AClipReachedTwice) {
  const std::string text = "g (float[N,6] x) => (float[N,3] y) <" + weight("6,8", "w", 48, 1) + "," +
                           weight("4,3", "v", 12, 2) +
                           ", float low = {0}, float high = {0.5}> { a = MatMul(x, w) c = Clip(a, low, high) "
                           "h, t = Split<axis = 1, num_outputs = 2>(c) m = Add(h, t) y = MatMul(m, v) }";
  check_groups(text_graph(21, text), {noise({4, 6}, 1)}, {{"x", false}, {"m", false}}, true);
}

TEST(ScaleGroups, TheOtherSideOfAGate) {
  const std::string text =
      "g (float[N,6] x) => (float[N,6] y) <" + weight("6,8", "wg", 48, 1) + "," + weight("6,8", "wu", 48, 2) +
      "," + weight("8,6", "wd", 48, 3) +
      "> { g = MatMul(x, wg) s = Sigmoid(g) c = Mul(g, s) u = MatMul(x, wu) m = Mul(c, u) "
      "y = MatMul(m, wd) }";
  check_groups(text_graph(21, text), {noise({4, 6}, 1)}, {{"x", false}, {"m", true}});
}

TEST(ScaleGroups, DepthwiseChainThroughClip) {
  const std::string text =
      "g (float[N,3,6,6] x) => (float[N,4,6,6] y) <" + weight("8,3,1,1", "w1", 24, 1) + "," +
      weight("8", "b1", 8, 2) + "," + weight("8,1,3,3", "w2", 72, 3) + "," + weight("8", "b2", 8, 4) + "," +
      weight("4,8,1,1", "w3", 32, 5) +
      ", float low = {0}, float high = {0.5}> { a = Conv(x, w1, b1) b = Clip(a, low, high) "
      "c = Conv<pads = [1,1,1,1], group = 8>(b, w2, b2) d = Clip(c, low, high) y = Conv(d, w3) }";
  check_groups(text_graph(21, text), {noise({2, 3, 6, 6}, 1)}, {{"x", false}, {"b", false}, {"d", false}});
  check_groups(text_graph(21, text), {noise({2, 3, 6, 6}, 1)}, {{"x", false}, {"b", true}, {"d", true}},
               true);
}

TEST(ScaleGroups, InsideABranch) {
  const std::string branch = " () => (float[N,4] y) <" + weight("6,8", "w", 48, 1) + "," +
                             weight("8,4", "v", 32, 2) +
                             "> { a = MatMul(x, w) r = Relu(a) y = MatMul(r, v) }";
  const Graph graph =
      text_graph(21, "g (bool c, float[N,6] x) => (float[N,4] z) { z = If(c) <then_branch = t" + branch +
                         ", else_branch = e" + branch + "> }");
  check_groups(graph, {Tensor::from<std::uint8_t>(DType::kBool, {}, {1}), noise({4, 6}, 1)},
               {{"x", false}, {"r", true}, {"x", false}, {"r", true}});
}

TEST(ScaleGroups, OtherReadersForbidFoldingButNotAMul) {
  const std::string head = "g (float[N,6] x) => (float[N,4] y, float[N,8] z) <" + weight("6,8", "w", 48, 1) +
                           "," + weight("8,4", "v", 32, 2) + "> { a = MatMul(x, w) r = Relu(a) ";
  check_groups(text_graph(21, head + "z = Sigmoid(r) y = MatMul(r, v) }"), {noise({4, 6}, 1)},
               {{"x", false}, {"r", false}});
  check_groups(text_graph(21, head + "z = Relu(a) y = MatMul(r, v) }"), {noise({4, 6}, 1)},
               {{"x", false}, {"r", false}});
  // A weight that two nodes share is nobody's to change.
  const Graph tied = text_graph(21, "g (float[N,6] x) => (float[N,6] y) <" + weight("6,6", "w", 36, 1) +
                                        "> { a = MatMul(x, w) r = Relu(a) y = MatMul(r, w) }");
  EXPECT_TRUE(find_scale_groups(tied, false).empty());
}

// --- constants

TEST(ChannelShift, MovesConstantsThroughNormsAndProducts) {
  Graph graph = text_graph(23, attention());
  const std::vector<ShiftGroup> groups = find_shift_groups(graph);
  // "a" makes q/k/v, which has a row behind it. "b" is an RMSNormalization: no bias. "o" and "g" are no sums.
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(graph.value(groups[0].value).name, "a");
  const Tensor x = noise({2, 5, 12}, 3);
  const std::vector<float> before = run(graph, {x});
  std::vector<float> z;
  for (int c = 0; c < 12; ++c) z.push_back(static_cast<float>(c - 6) * 0.25f);
  apply_shift(graph, groups[0], z);
  verify(graph);
  const std::vector<float> after = run(graph, {x});
  // Sums of 12 products near 1 in float32, through a softmax and two layers: some hundred ulps.
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-4);
}

TEST(ChannelShift, ChosenWhereChannelsLieAwayFromZero) {
  const Graph graph = text_graph(23, attention());
  const ShiftGroup group = find_shift_groups(graph)[0];
  const Tensor x = noise({64, 12}, 5);
  std::vector<float> sample(x.as<float>(), x.as<float>() + x.size());
  const ActivationRounding round = [](float* v, std::int64_t rows, std::int64_t channels, double largest) {
    const auto step = static_cast<float>(largest / 127);
    for (std::int64_t i = 0; i < rows * channels; ++i) v[i] = std::nearbyint(v[i] / step) * step;
  };
  for (std::size_t i = 3; i < sample.size(); i += 12) sample[i] += 40;
  const ShiftChoice choice = choose_shift(graph, group, sample, round);
  ASSERT_EQ(choice.z.size(), 12u);
  EXPECT_NEAR(choice.z[3], 40, 2);
  EXPECT_GT(choice.gain_db, 10);
  // Without a format nothing is to be gained.
  EXPECT_TRUE(choose_shift(graph, group, sample, nullptr).z.empty());
}

TEST(ChannelShift, PaddedConvolutionsAndOtherReadersAreLeftAlone) {
  const auto conv = [](const char* pads, const char* more) {
    return "g (float[N,3,6,6] x) => (float[N,4,6,6] y, float[N,8,6,6] z) <" + weight("8,3,1,1", "w1", 24, 1) +
           "," + weight("4,8,3,3", "w2", 288, 2) + "> { a = Conv(x, w1) y = Conv<pads = " + pads +
           ">(a, w2) " + more + " }";
  };
  EXPECT_EQ(find_shift_groups(text_graph(21, conv("[1,1,1,1]", "z = Relu(x)"))).size(), 0u);
  EXPECT_EQ(find_shift_groups(text_graph(21, conv("[0,0,0,0]", "z = Relu(x)"))).size(), 1u);
  EXPECT_EQ(find_shift_groups(text_graph(21, conv("[0,0,0,0]", "z = Relu(a)"))).size(), 0u);
}

// --- which factors

GridFormat int4_groups() {
  GridFormat format;
  format.codes = DType::kI4;
  format.group = 16;
  return format;
}

void round_to(const GridFormat& format, WeightRows& rows) {
  ThreadPool pool(1);
  const Grid grid = amax_grid(format, rows.shape, rows.values.data(), pool);
  std::vector<std::uint8_t> codes(rows.values.size());
  encode(format, rows.shape, grid, rows.values.data(), codes.data(), pool);
  decode(format, rows.shape, grid, codes.data(), rows.values.data(), pool);
}

// One linear layer of 32 inputs, `loud` of which are ten times the others.
ScaleProblem problem_with(const std::vector<int>& loud, double factor) {
  ScaleProblem p;
  p.channels = 32;
  const Tensor x = noise({256, 32}, 7), w = noise({24, 32}, 8);
  p.sample.assign(x.as<float>(), x.as<float>() + x.size());
  for (const int c : loud)
    for (int r = 0; r < 256; ++r)
      p.sample[static_cast<std::size_t>(r * 32 + c)] *= static_cast<float>(factor);
  p.amax.assign(32, 0.0);
  std::vector<double> square(32, 0.0);
  for (std::size_t i = 0; i < p.sample.size(); ++i) {
    const double v = static_cast<double>(p.sample[i]);
    p.amax[i % 32] = std::max(p.amax[i % 32], std::fabs(v));
    square[i % 32] += v * v / 256;
  }
  ScaleLayer layer;
  layer.weight.shape = RowShape::whole(24, 32);
  layer.weight.values.assign(w.as<float>(), w.as<float>() + w.size());
  for (int c = 0; c < 32; ++c) layer.channel.push_back(c);
  layer.round = [](WeightRows& rows, const std::vector<float>&) { round_to(int4_groups(), rows); };
  layer.noise = [square](const WeightRows& e) {
    double sum = 0;
    for (std::size_t i = 0; i < e.values.size(); ++i)
      sum += static_cast<double>(e.values[i]) * static_cast<double>(e.values[i]) * square[i % 32];
    return sum;
  };
  p.layers.push_back(std::move(layer));
  return p;
}

TEST(ScaleSearch, AwqGivesLoudChannelsFinerSteps) {
  const ScaleProblem p = problem_with({3, 20}, 20);
  ScaleFamilies families;
  families.awq = true;
  const ScaleChoice choice = search_scales(p, families);
  ASSERT_EQ(choice.scales.size(), 32u);
  EXPECT_GT(choice.gain_db(), 2);
  EXPECT_GT(choice.scales[3], 1.5f * choice.scales[4]);
  EXPECT_GT(choice.scales[20], 1.5f * choice.scales[21]);
  // What is reported is what the loss of these factors is.
  EXPECT_EQ(choice.loss, scale_loss(p, choice.scales));
  EXPECT_EQ(choice.loss_before, scale_loss(p, {}));
  EXPECT_EQ(choice.skipped, 0);
}

// Rows that are tried stand for all: the middle of equal stretches, their noise times all by tried.
TEST(ScaleSearch, ALongLayerIsTriedOnSomeRows) {
  ScaleProblem p = problem_with({3, 20}, 20);
  const ScaleProblem whole = p;
  p.layers[0].tried = 6;  // of 24: rows 2, 6, 10, 14, 18, 22
  std::vector<float> seen;
  p.layers[0].round = [&](WeightRows& rows, const std::vector<float>& s) {
    EXPECT_EQ(rows.shape.rows, 6);
    if (s.empty()) seen = rows.values;
    round_to(int4_groups(), rows);
  };
  ScaleProblem some = whole;
  some.layers[0].weight.shape.rows = 6;
  std::vector<float>& rows = some.layers[0].weight.values;
  for (std::size_t k = 0; k < 6; ++k)
    std::copy_n(whole.layers[0].weight.values.begin() + static_cast<std::ptrdiff_t>((4 * k + 2) * 32), 32,
                rows.begin() + static_cast<std::ptrdiff_t>(32 * k));
  rows.resize(6 * 32);
  EXPECT_EQ(scale_loss(p, {}), 4 * scale_loss(some, {}));
  EXPECT_EQ(seen, rows);
  const std::vector<float> s(32, 1.25f);
  EXPECT_EQ(scale_loss(p, s), 4 * scale_loss(some, s));
  ScaleFamilies families;
  families.awq = true;
  const ScaleChoice choice = search_scales(p, families);
  ASSERT_EQ(choice.scales.size(), 32u);
  // Nearly what the choice by all rows gains, on all rows.
  const double best = search_scales(whole, families).loss;
  EXPECT_LT(scale_loss(whole, choice.scales), 1.15 * best);
  p.layers[0].tried = 24;
  p.layers[0].round = whole.layers[0].round;
  EXPECT_EQ(scale_loss(p, s), scale_loss(whole, s));
}

TEST(ScaleSearch, RowsToTry) {
  EXPECT_EQ(rows_to_try(1536, 512), 1536);
  EXPECT_EQ(rows_to_try(8192, 2048), 1024);
  EXPECT_EQ(rows_to_try(2048, 8192), 256);
  EXPECT_EQ(rows_to_try(100, std::int64_t{1} << 40), 100);
  EXPECT_EQ(rows_to_try(0, 0), 0);
}

TEST(ScaleSearch, SmoothingEqualizesAQuantizedActivation) {
  ScaleProblem p = problem_with({5}, 50);
  p.layers[0].round = [](WeightRows& rows, const std::vector<float>&) {
    GridFormat int8;
    round_to(int8, rows);
  };
  p.round_activation = [](float* x, std::int64_t rows, std::int64_t channels, double largest) {
    const auto amax = static_cast<float>(largest);
    for (std::int64_t i = 0; i < rows * channels; ++i) x[i] = std::nearbyint(x[i] / amax * 127) * amax / 127;
  };
  ScaleFamilies families;
  families.smooth = true;
  const ScaleChoice choice = search_scales(p, families);
  EXPECT_EQ(choice.family, "smoothquant");
  EXPECT_GT(choice.gain_db(), 6);
  EXPECT_GT(choice.scales[5], 3 * choice.scales[4]);
  // A strength that was asked for is taken whatever it costs.
  families.strength = 0.05;
  EXPECT_EQ(search_scales(p, families).strength, 0.05);
}

TEST(ScaleSearch, IdentityIsAlwaysACandidate) {
  // All channels alike, weights on the grid already: nothing beats s = 1.
  ScaleProblem p = problem_with({}, 1);
  for (float& w : p.layers[0].weight.values) w = w < 0 ? -0.5f : 0.5f;
  ScaleFamilies families;
  families.awq = families.smooth = families.equalize = true;
  const ScaleChoice choice = search_scales(p, families);
  EXPECT_TRUE(choice.scales.empty());
  EXPECT_EQ(choice.loss, 0);
}

TEST(ScaleSearch, DeadChannelsKeepOneAndBadLossesAreSkipped) {
  ScaleProblem p = problem_with({2}, 30);
  for (int r = 0; r < 256; ++r) p.sample[static_cast<std::size_t>(r * 32 + 9)] = 0;
  p.amax[9] = 0;
  for (int o = 0; o < 24; ++o) p.layers[0].weight.values[static_cast<std::size_t>(o * 32 + 11)] = 0;
  ScaleFamilies families;
  families.awq = families.smooth = true;
  const ScaleChoice choice = search_scales(p, families);
  ASSERT_FALSE(choice.scales.empty());
  EXPECT_EQ(choice.scales[9], 1.0f);
  EXPECT_EQ(choice.scales[11], 1.0f);
  // A quantizer that makes NaN of every changed weight, or refuses it: s = 1 stays, the skipped are counted.
  const std::vector<float> original = p.layers[0].weight.values;
  for (const bool throws : {false, true}) {
    p.layers[0].round = [&](WeightRows& rows, const std::vector<float>&) {
      if (rows.values == original) return round_to(int4_groups(), rows);
      if (throws) fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
      rows.values[5] = std::numeric_limits<float>::quiet_NaN();
    };
    const ScaleChoice none = search_scales(p, families);
    EXPECT_TRUE(none.scales.empty());
    EXPECT_GT(none.skipped, 20);
    EXPECT_EQ(none.skipped, none.tried - 1);
  }
}

}  // namespace
}  // namespace pare::quant
