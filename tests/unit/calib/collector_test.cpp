#include "calib/collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "calib/bin_kernel.h"
#include "tests/unit/calib/values.h"
#include "tests/unit/datasets/errors.h"

namespace pare {
namespace {

TensorView view(const float* values, Dims dims) {
  return {DType::kF32, std::move(dims), const_cast<float*>(values)};
}

// Collects `values` in pieces of `batch` values.
TensorStats collect(const std::vector<float>& values, std::int64_t batch, int threads) {
  ThreadPool pool(threads);
  Collector collector(pool);
  const int index = collector.add("");
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); i += batch)
    collector.collect(index,
                      view(values.data() + i,
                           {std::min<std::int64_t>(batch, static_cast<std::int64_t>(values.size()) - i)}));
  return collector.stats()[0];
}

std::vector<Isa> classes() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512})
    if (isa <= best_isa()) all.push_back(isa);
  return all;
}

class EveryIsa : public testing::Test {
 protected:
  ~EveryIsa() override { set_isa(best_isa()); }
};

void expect_same(const TensorStats& a, const TensorStats& b) {
  EXPECT_EQ(a.exponent, b.exponent);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(a.min), std::bit_cast<std::uint32_t>(b.min))
      << a.min << " " << b.min;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(a.max), std::bit_cast<std::uint32_t>(b.max))
      << a.max << " " << b.max;
  EXPECT_EQ(a.total, b.total);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.nan, b.nan);
  EXPECT_EQ(a.positive_inf, b.positive_inf);
  EXPECT_EQ(a.negative_inf, b.negative_inf);
  EXPECT_TRUE(a.bins == b.bins);
  EXPECT_TRUE(a.channel_amax == b.channel_amax);
  EXPECT_TRUE(a.channels == b.channels);
}

TEST(WidthExponent, IsTheNarrowestThatHoldsTheValue) {
  EXPECT_EQ(width_exponent(0.0f), kNarrowest);
  EXPECT_EQ(width_exponent(std::numeric_limits<float>::denorm_min()), kNarrowest);
  EXPECT_EQ(width_exponent(1.0f), -11);
  EXPECT_EQ(width_exponent(std::nextafter(1.0f, 0.0f)), -12);
  EXPECT_EQ(width_exponent(std::numeric_limits<float>::max()), kWidest);
}

using Collect = EveryIsa;

// The definition, all classes, batches from one value up, one and two threads, ugly values included.
TEST_F(Collect, CountsAsDefined) {
  const std::vector<std::pair<const char*, std::vector<float>>> tables = {
      {"normal", normal_values(100'000, 1)},
      {"relu", normal_values(100'000, 2, 3, true)},
      {"small", normal_values(50'000, 3, 1e-30f)},
      {"subnormal", normal_values(50'000, 4, 1e-39f)},
      {"huge", normal_values(50'000, 5, 4e37f)},
      {"wild", wild_values(100'000, 6)},
      {"constant", std::vector<float>(70'000, -2.5f)},
      {"zeros", std::vector<float>(70'000, -0.0f)},
      {"nan", std::vector<float>(70'000, std::nanf(""))},
      {"one", {5.0f}},
  };
  for (const auto& [name, values] : tables) {
    const TensorStats expected = count_plainly(values);
    for (const Isa isa : classes())
      for (const std::int64_t batch : {1, 3, 977, 8191, 8192, 1'000'000})
        for (const int threads : {1, 2}) {
          if (batch < 100 && values.size() > 1000 && threads == 2) continue;
          SCOPED_TRACE(std::string(name) + " " + pare::name(isa) + " " + std::to_string(batch));
          set_isa(isa);
          expect_same(collect(values, batch, threads), expected);
        }
  }
}

TEST_F(Collect, OrderAndMergeDoNotMatter) {
  std::vector<float> values = normal_values(60'000, 7);
  const std::vector<float> ugly = wild_values(500, 8);
  for (std::size_t i = 0; i < ugly.size(); ++i)
    if (std::abs(ugly[i]) < 1e6f || !std::isfinite(ugly[i])) values[i * 100] = ugly[i];
  const TensorStats whole = collect(values, 10'000, 1);
  std::vector<float> backwards(values.rbegin(), values.rend());
  expect_same(collect(backwards, 777, 2), whole);
  std::sort(values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  expect_same(collect(values, 5'000, 2), whole);  // as good as sorted: the width grows again and again
  for (const std::size_t cut : {std::size_t{1}, std::size_t{20'000}, std::size_t{59'999}}) {
    const std::vector<float> a(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(cut)),
        b(values.begin() + static_cast<std::ptrdiff_t>(cut), values.end());
    TensorStats ab = collect(a, 4'096, 1), ba = collect(b, 9'000, 2);
    const TensorStats first = ab, second = ba;
    merge(ab, second);
    merge(ba, first);
    expect_same(ab, whole);
    expect_same(ba, whole);
  }
  TensorStats nothing;
  merge(nothing, whole);
  expect_same(nothing, whole);
}

TEST_F(Collect, ChannelMaximaOnAnyAxis) {
  std::vector<float> values = normal_values(2 * 3 * 40 * 50, 9);
  values[17] = std::nanf("");
  values[18] = -std::numeric_limits<float>::infinity();
  values[19] = -7.5f;
  const Dims shapes[] = {{2, 3, 40, 50}, {2, 40, 50, 3}, {6, 2000}, {12000}};
  const int axes[] = {1, 3, 0, 0};
  for (int k = 0; k < 4; ++k)
    for (const int threads : {1, 2}) {
      ThreadPool pool(threads);
      Collector collector(pool);
      const int index = collector.add("x", axes[k]);
      collector.collect(index, view(values.data(), shapes[k]));
      const Dims& dims = shapes[k];
      std::int64_t inner = 1;
      for (std::size_t d = static_cast<std::size_t>(axes[k]) + 1; d < dims.size(); ++d) inner *= dims[d];
      const std::int64_t channels = dims[static_cast<std::size_t>(axes[k])];
      std::vector<float> expected(static_cast<std::size_t>(channels));
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(values[i])) {
          float& e = expected[i / static_cast<std::size_t>(inner) % static_cast<std::size_t>(channels)];
          e = std::max(e, std::abs(values[i]));
        }
      EXPECT_EQ(collector.stats()[0].channel_amax, expected) << to_string(dims);
    }
}

// Each channel's histogram is what counting that channel alone by the definition gives, with 128 bins a side.
TEST_F(Collect, ChannelHistogramsOnAnyAxis) {
  std::vector<float> values = normal_values(2 * 3 * 40 * 50, 9);
  const std::vector<float> ugly = wild_values(300, 10);
  for (std::size_t i = 0; i < ugly.size(); ++i) values[i * 37] = ugly[i];
  for (std::size_t i = 5; i < values.size(); i += 12000) values[i] = 0;
  struct Case {
    Dims dims;
    int axis;
  };
  for (const Case& c :
       {Case{{2, 3, 40, 50}, 1}, Case{{2, 40, 50, 3}, 3}, Case{{6, 2000}, 0}, Case{{1, 12000}, 1}})
    for (const int threads : {1, 2}) {
      ThreadPool pool(threads);
      Collector collector(pool);
      const int index = collector.add("x", c.axis, true);
      collector.collect(index, view(values.data(), c.dims));
      const TensorStats s = collector.stats()[0];
      std::int64_t inner = 1;
      for (std::size_t d = static_cast<std::size_t>(c.axis) + 1; d < c.dims.size(); ++d) inner *= c.dims[d];
      const auto channels = static_cast<std::size_t>(c.dims[static_cast<std::size_t>(c.axis)]);
      ASSERT_EQ(s.channels.size(), channels);
      std::vector<std::vector<float>> apart(channels);
      for (std::size_t i = 0; i < values.size(); ++i)
        apart[i / static_cast<std::size_t>(inner) % channels].push_back(values[i]);
      for (std::size_t k = 0; k < channels; k += 1 + channels / 50) {
        TensorStats plain = count_plainly(apart[k], "x");
        const ChannelStats& got = s.channels[k];
        EXPECT_TRUE(static_cast<const ValueCounts&>(got) == static_cast<const ValueCounts&>(plain)) << k;
        const int exponent = width_exponent(plain.amax(), kChannelBins);
        EXPECT_EQ(got.exponent, exponent);
        std::vector<std::uint64_t> expected(2 * kChannelBins);
        for (int b = 0; b < 2 * kBins; ++b)
          expected[static_cast<std::size_t>((b % kBins >> (exponent - plain.exponent)) +
                                            b / kBins * kChannelBins)] +=
              plain.bins[static_cast<std::size_t>(b)];
        ASSERT_TRUE(got.bins == expected) << k;
        // Spread over the bins of a tensor it loses nothing and stays below the extremes.
        const TensorStats one = channel_stats(s, k);
        EXPECT_EQ(one.exponent, width_exponent(one.amax()));
        std::uint64_t sum = 0;
        for (int b = 0; b < kBins; ++b) {
          sum += one.positive()[b] + one.negative()[b];
          EXPECT_TRUE(one.positive()[b] == 0 || b * one.width() <= one.max) << b;
          EXPECT_TRUE(one.negative()[b] == 0 || b * one.width() <= -one.min) << b;
        }
        EXPECT_EQ(sum + one.zeros, one.finite());
      }
    }
}

TEST_F(Collect, OtherFloatTypesAreConverted) {
  ThreadPool pool(1);
  Collector collector(pool);
  const std::vector<double> doubles = {1.0, -2.0, 0.1, 0};
  const std::vector<std::uint16_t> halves = {0x3C00, 0xC000, 0x0000}, brains = {0x3F80, 0xC000, 0x7F80};
  collector.collect(collector.add("d"), {DType::kF64, {4}, const_cast<double*>(doubles.data())});
  collector.collect(collector.add("h"), {DType::kF16, {3}, const_cast<std::uint16_t*>(halves.data())});
  collector.collect(collector.add("b"), {DType::kBF16, {3}, const_cast<std::uint16_t*>(brains.data())});
  const std::vector<TensorStats> all = collector.stats();  // b, d, h
  expect_same(all[0], count_plainly({1.0f, -2.0f, std::numeric_limits<float>::infinity()}));
  expect_same(all[1], count_plainly({1.0f, -2.0f, 0.1f, 0.0f}));
  expect_same(all[2], count_plainly({1.0f, -2.0f, 0.0f}));
  const int ints = collector.add("i");
  const std::int32_t one = 1;
  EXPECT_ERROR(collector.collect(ints, {DType::kI32, {1}, const_cast<std::int32_t*>(&one)}), "usage",
               "'i' is int32");
  EXPECT_ERROR(collector.add("d"), "'d' is watched twice");
}

// cases.md C2: other maxima in later batches must not break or lose anything (microsoft/onnxruntime#18792).
TEST_F(Collect, LaterBatchesMayBeLarger) {
  std::vector<float> all(24, 3.0f), second(40, 5.0f);
  second[7] = 1000;
  all.insert(all.end(), second.begin(), second.end());
  const TensorStats s = collect(all, 24, 1);
  std::uint64_t sum = 0;
  for (const std::uint64_t count : s.bins) sum += count;
  EXPECT_EQ(sum, 64u);
  expect_same(s, count_plainly(all));
}

// cases.md C4: counts stay exact beyond 2^24, where float32 counters stop.
TEST_F(Collect, CountsBeyondTwentyFourBits) {
  ThreadPool pool(2);
  Collector collector(pool);
  const int index = collector.add("x");
  const std::vector<float> ones(1 << 20, 1.0f);
  for (int i = 0; i < 20; ++i) collector.collect(index, view(ones.data(), {1 << 20}));
  const std::uint64_t expected = 20u << 20;
  EXPECT_GT(expected, std::uint64_t{1} << 24);
  EXPECT_EQ(collector.stats()[0].positive()[2048], expected);
}

TEST_F(Collect, KernelsAgreeOnEveryLengthAndAlignment) {
  const std::vector<float> values = normal_values(300, 11, 1, true);
  std::vector<std::uint16_t> expected(400), got(400);
  for (const Isa isa : classes())
    for (std::int64_t offset = 0; offset < 5; ++offset)
      for (std::int64_t n = 1; n < 100; ++n) {
        const BinKernel &scalar = bin_kernel(Isa::kScalar), &kernel = bin_kernel(isa);
        const BlockScan a = scalar.scan(values.data() + offset, n, 512, expected.data());
        const BlockScan b = kernel.scan(values.data() + offset, n, 512, got.data());
        EXPECT_EQ(a.largest, b.largest);
        EXPECT_EQ(a.min, b.min);
        EXPECT_EQ(a.max, b.max);
        ASSERT_EQ(a.listed, b.listed);
        const std::int64_t count = a.listed;
        EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + count, got.begin()))
            << name(isa) << " " << n;
      }
}

}  // namespace
}  // namespace pare
