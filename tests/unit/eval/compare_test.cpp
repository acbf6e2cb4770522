// Accumulators: the formulas against plain loops, every ugly case, and that batches change no bit.
#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "eval/evaluate.h"
#include "eval/metric_table.h"

namespace pare {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor floats(Dims dims, const std::vector<float>& values) {
  return Tensor::from(DType::kF32, std::move(dims), values);
}

Comparison compare(const Tensor& a, const Tensor& b) {
  Comparison c;
  c.add(a.view(), b.view());
  return c;
}

TEST(Comparison, MatchesTheFormulas) {
  const Comparison c = compare(floats({2, 2}, {1, 2, 3, 4}), floats({2, 2}, {1, 2.5, 3, 3}));
  // signal 1+4+9+16 = 30, noise .25+1 = 1.25
  EXPECT_DOUBLE_EQ(c.sqnr_db(), 10 * std::log10(30 / 1.25));
  const double first = (1 + 5.0) / std::sqrt(5.0) / std::sqrt(1 + 6.25);
  const double second = (9 + 12.0) / 5.0 / std::sqrt(18.0);
  EXPECT_NEAR(c.cosine(), (first + second) / 2, 1e-15);
  EXPECT_EQ(c.max_abs(), 1);
}

TEST(Comparison, UglyCases) {
  const Tensor zero = floats({1, 3}, {0, 0, 0}), one = floats({1, 3}, {1, 0, 0});
  EXPECT_EQ(compare(one, one).sqnr_db(), HUGE_VAL);
  EXPECT_EQ(compare(zero, zero).sqnr_db(), HUGE_VAL);
  EXPECT_EQ(compare(zero, zero).cosine(), 1);
  EXPECT_EQ(compare(zero, one).sqnr_db(), -HUGE_VAL);
  EXPECT_EQ(compare(zero, one).cosine(), 0);
  EXPECT_EQ(compare(one, zero).sqnr_db(), 0);
  const Tensor huge = floats({1, 3}, {3e38f, 0, 0});
  EXPECT_EQ(compare(huge, huge).cosine(), 1);  // squares do not overflow in double
  const Tensor none = floats({0, 3}, {});
  EXPECT_EQ(compare(none, none).samples(), 0);
  for (const float bad : {kNan, kInf, -kInf}) {
    const Comparison c = compare(floats({2, 2}, {1, 1, 1, 1}), floats({2, 2}, {1, bad, 1, bad}));
    EXPECT_TRUE(std::isnan(c.sqnr_db()));
    EXPECT_TRUE(std::isnan(c.cosine()));
    EXPECT_TRUE(std::isnan(c.max_abs()));
    EXPECT_EQ(c.not_finite_candidate(), 2);
    EXPECT_EQ(c.not_finite_reference(), 0);
  }
  EXPECT_THROW(compare(one, floats({1, 2}, {1, 0})), Error);
}

TEST(Comparison, BatchesChangeNoBit) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  constexpr std::int64_t n = 37, size = 1003;
  std::vector<float> a, b;
  for (std::int64_t i = 0; i < n * size; ++i) {
    a.push_back(normal(rng));
    b.push_back(a.back() + 0.01f * normal(rng));
  }
  const Comparison whole = compare(floats({n, size}, a), floats({n, size}, b));
  for (const std::int64_t batch : {1, 7, 36}) {
    Comparison parts;
    for (std::int64_t begin = 0; begin < n; begin += batch) {
      const std::int64_t end = std::min(begin + batch, n);
      const auto cut = [&](const std::vector<float>& v) {
        return floats({end - begin, size},
                      std::vector<float>(v.begin() + begin * size, v.begin() + end * size));
      };
      parts.add(cut(a).view(), cut(b).view());
    }
    EXPECT_EQ(parts.sqnr_db(), whole.sqnr_db()) << batch;
    EXPECT_EQ(parts.cosine(), whole.cosine()) << batch;
    EXPECT_EQ(parts.max_abs(), whole.max_abs()) << batch;
  }
  EXPECT_NEAR(whole.sqnr_db(), 40, 0.5);  // noise of a hundredth
}

TEST(TopK, CountsTiesNanAndLabelsOutside) {
  const Tensor outputs = floats({5, 3}, {1, 2, 3,     //
                                         2, 2, 0,     // a tie: the lower index is larger
                                         0, 1, kNan,  //
                                         5, 1, 0,     //
                                         5, 1, 0});
  const auto share = [&](int k, std::vector<std::int64_t> labels) {
    TopK top(k);
    top.add(outputs.view(), Tensor::ints(labels).view());
    return top.share();
  };
  EXPECT_EQ(share(1, {2, 0, 1, 0, 1}), 3.0 / 5);
  EXPECT_EQ(share(1, {2, 1, 1, 0, 1}), 2.0 / 5);
  EXPECT_EQ(share(2, {2, 1, 1, 0, 1}), 4.0 / 5);
  EXPECT_EQ(share(3, {2, 1, 1, 3, -1}), 2.0 / 5);
}

TEST(ClipCount, CountsOutsideAndNan) {
  ClipCount count;
  count.low = -1;
  count.high = 2;
  count.add(floats({6}, {-1, 2, 2.5f, -1.5f, kNan, 0}).view());
  EXPECT_EQ(count.outside, 3);
  EXPECT_EQ(count.seen, 6);
}

TEST(ToPlainOrder, MovesChannelsToTheFront) {
  // [1,2,2,3] channels-last: value = 10 * pixel + channel
  const Tensor plain =
      to_plain_order(floats({1, 2, 2, 3}, {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}).view());
  EXPECT_EQ(plain.dims(), (Dims{1, 3, 2, 2}));
  const std::vector<float> want = {0, 10, 20, 30, 1, 11, 21, 31, 2, 12, 22, 32};
  EXPECT_EQ(std::vector<float>(plain.as<float>(), plain.as<float>() + 12), want);
}

struct GateCase {
  const char* gate;
  double reference, candidate;
  double value;
  bool passed;
};

TEST(Gates, ValueDropAndRelative) {
  const GateCase cases[] = {
      {"top1>=0.9", 0.95, 0.94, 0.94, true},         {"top1_drop<=0.005", 0.5, 0.5, 0, true},
      {"top1_drop<=-1", 0.5, 0.5, 0, false},         {"top1_drop <= 0.25", 0.75, 0.5, 0.25, true},
      {"top1_drop_rel<=0.3", 0.5, 0.25, 0.5, false}, {"top1_drop_rel<=0", 0, 0, 0, true},
      {"top1>=0.1", 0.5, NAN, NAN, false},           {"top1<=0.1", 0.5, NAN, NAN, false},
      {"top1_drop<=1", NAN, 0.5, NAN, false},
  };
  for (const GateCase& c : cases) {
    const GateResult r =
        judge(parse_gate(c.gate), {{"top1", c.candidate}}, {{"top1", c.reference}}, nullptr, 0);
    EXPECT_EQ(r.passed, c.passed) << c.gate;
    if (!std::isnan(c.value)) {
      EXPECT_EQ(r.value, c.value) << c.gate;
    }
  }
  // perplexity: lower is better, so growth is a drop in quality
  EXPECT_EQ(metric_drop(*find_metric("perplexity"), GateKind::kDrop, 36, 37), 1);
  // And back.
  for (const char* name : {"top1", "perplexity", "kl"})
    for (const GateKind kind : {GateKind::kValue, GateKind::kDrop, GateKind::kDropRelative})
      EXPECT_EQ(
          metric_at_drop(*find_metric(name), kind, 0.5, metric_drop(*find_metric(name), kind, 0.5, 0.75)),
          0.75)
          << name;
  // outputs that were not finite never pass, whatever the figure says
  EXPECT_FALSE(judge(parse_gate("top1>=0"), {{"top1", 1}}, {}, nullptr, 3).passed);
  const MetricValues baseline = {{"top1", 0.75}};
  const GateResult against =
      judge(parse_gate("top1_drop<=0.1"), {{"top1", 0.5}}, {{"top1", 0.5}}, &baseline, 0);
  EXPECT_EQ(against.value, 0.25);
  EXPECT_EQ(against.against, "baseline");
}

TEST(Gates, WrongOnesAreUsageErrors) {
  for (const char* text :
       {"", "top1", "<=1", "top1<0.5", "top1<=x", "top1<=nan", "top1<=1e999", "nothing<=1"})
    EXPECT_THROW(parse_gate(text), Error) << text;
  EXPECT_THROW(judge(parse_gate("top5<=1"), {{"top1", 1}}, {}, nullptr, 0), Error);
  EXPECT_THROW(judge(parse_gate("top1_drop<=1"), {{"top1", 1}}, {}, nullptr, 0), Error);
}

}  // namespace
}  // namespace pare
