// Means by channel against plain double sums, and the same bits however the samples were cut.
//
// Tolerance: values are rounded to multiples of a unit of at most amax * 2^-20 (squares: amax^2 * 2^-20),
// each by at most half of it, so a mean is off by at most 2^-21 of amax (amax^2), and a mean error by twice
// that.
#include "calib/channel_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"

namespace pare {
namespace {

// x -> Relu -> y, [n, ...]; the input is what is watched.
std::shared_ptr<const Graph> one_node(const std::vector<Dim>& dims) {
  auto graph = std::make_shared<Graph>();
  Value x, y;
  x.name = "x";
  y.name = "y";
  x.dtype = y.dtype = DType::kF32;
  x.shape = Shape(dims);
  Node node;
  node.op = "Relu";
  node.in = {graph->add_value(x)};
  node.out = {graph->add_value(y)};
  graph->inputs = node.in;
  graph->outputs = node.out;
  graph->add_node(node);
  infer_shapes(*graph);
  return graph;
}

Tensor samples(Dims dims, unsigned seed) {
  Tensor tensor = Tensor::allocate(DType::kF32, std::move(dims));
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.3f, 1.0f);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.mut<float>()[i] = normal(rng);
  return tensor;
}

Tensor slice(const Tensor& all, std::int64_t begin, std::int64_t end) {
  Dims dims = all.dims();
  const std::int64_t each = all.size() / dims[0];
  dims[0] = end - begin;
  return Tensor::copy_of(DType::kF32, dims, all.as<float>() + begin * each,
                         sizeof(float) * static_cast<std::size_t>((end - begin) * each));
}

ChannelMoments collect(const Tensor& all, int axis, std::int64_t batch, int threads, MomentRequest request) {
  std::vector<Dim> dims = {Dim::named("n")};
  for (std::size_t i = 1; i < all.dims().size(); ++i) dims.push_back(Dim::of(all.dims()[i]));
  const std::shared_ptr<const Graph> graph = one_node(dims);
  ThreadPool pool(threads);
  Session session(graph, {&pool, true, false});
  MomentCollector collector(pool);
  request.value = {graph->inputs[0], "x", axis};
  collector.attach(session, {request});
  for (std::int64_t begin = 0; begin < all.dims()[0]; begin += batch)
    session.run({slice(all, begin, std::min(begin + batch, all.dims()[0]))});
  return collector.moments()[0];
}

MomentRequest int8_request() {
  MomentRequest request;
  request.amax = 6;
  request.scale = 0.01f;  // clips at 1.27: the mean error is not nothing
  return request;
}

TEST(ChannelMoments, AgreeWithPlainSums) {
  for (const int axis : {1, 2}) {
    const Tensor all = samples({23, 5, 7}, 4);
    const ChannelMoments got = collect(all, axis, 4, 2, int8_request());
    const std::int64_t channels = all.dims()[static_cast<std::size_t>(axis)];
    ASSERT_EQ(got.mean.size(), static_cast<std::size_t>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0, square = 0, error = 0, count = 0;
      for (std::int64_t i = 0; i < all.size(); ++i) {
        if ((axis == 1 ? i / 7 % 5 : i % 7) != c) continue;
        const double v = static_cast<double>(all.as<float>()[i]);
        const double code = std::fmin(127, std::fmax(-128, std::nearbyint(all.as<float>()[i] / 0.01f)));
        sum += v;
        square += v * v;
        error += static_cast<double>(static_cast<float>(code) * 0.01f) - v;
        count += 1;
      }
      const auto k = static_cast<std::size_t>(c);
      EXPECT_NEAR(got.mean[k], sum / count, 6 * std::exp2(-21));
      EXPECT_NEAR(got.mean_square[k], square / count, 36 * std::exp2(-21));
      EXPECT_NEAR(got.mean_error[k], error / count, 6 * std::exp2(-20));
      EXPECT_LT(got.mean_error[k], -0.01);  // the mean is 0.3, so more is clipped above than below
    }
  }
}

TEST(ChannelMoments, TheSameBitsForAnyBatchesOrderAndThreads) {
  const Tensor all = samples({64, 3, 50}, 7);
  const ChannelMoments want = collect(all, 2, 64, 1, int8_request());
  Tensor reversed = all.clone();
  for (std::int64_t i = 0; i < 64; ++i)
    std::copy_n(all.as<float>() + i * 150, 150, reversed.mut<float>() + (63 - i) * 150);
  for (const Tensor& order : {all, reversed})
    for (const std::int64_t batch : {1, 7, 64})
      for (const int threads : {1, 2}) {
        const ChannelMoments got = collect(order, 2, batch, threads, int8_request());
        EXPECT_EQ(got.mean, want.mean);
        EXPECT_EQ(got.mean_square, want.mean_square);
        EXPECT_EQ(got.mean_error, want.mean_error);
        EXPECT_EQ(got.count, want.count);
      }
}

TEST(ChannelMoments, ZeroPointsFloatFormatsAndNoScale) {
  const Tensor all = samples({8, 4}, 9);
  MomentRequest asymmetric = int8_request();
  asymmetric.code_dtype = DType::kU8;
  asymmetric.zero_point = 128;
  const ChannelMoments a = collect(all, 1, 3, 1, asymmetric), b = collect(all, 1, 3, 1, int8_request());
  EXPECT_EQ(a.mean_error, b.mean_error);  // the same grid, named by other codes
  MomentRequest e4m3;
  e4m3.amax = 6;
  e4m3.scale = 1;
  e4m3.code_dtype = DType::kE4M3FN;
  for (const double e : collect(all, 1, 8, 1, e4m3).mean_error) EXPECT_LT(std::fabs(e), 0.2);
  MomentRequest none;
  none.amax = 6;
  EXPECT_TRUE(collect(all, 1, 8, 1, none).mean_error.empty());
}

TEST(ChannelMoments, BrokenValuesCountAsNothing) {
  Tensor all = samples({4, 2}, 1);
  all.mut<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  all.mut<float>()[1] = std::numeric_limits<float>::infinity();
  const ChannelMoments got = collect(all, 1, 4, 1, int8_request());
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_TRUE(std::isfinite(got.mean[c]));
    EXPECT_TRUE(std::isfinite(got.mean_square[c]));
    EXPECT_TRUE(std::isfinite(got.mean_error[c]));
  }
}

}  // namespace
}  // namespace pare
