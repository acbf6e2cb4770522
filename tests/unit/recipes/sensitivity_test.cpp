// Layer by layer on a network whose layers differ in what rounding does to them.
#include "recipes/study/sensitivity.h"

#include <gtest/gtest.h>

#include "calib/calibrate.h"
#include "datasets/npy.h"
#include "datasets/random.h"
#include "engine/base/error.h"
#include "recipes/study/bisect.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/graphsurgeon/text_model.h"
#include "tests/unit/recipes/normal.h"

namespace pare {
namespace {

// `first_row`: what the weights of the first input channel are multiplied by.
std::string weight(const std::string& name, std::uint64_t seed, float first_row) {
  const Tensor values = normal({32 * 32}, seed);
  std::string text = "float[32,32] " + name + " = {";
  for (int i = 0; i < 32 * 32; ++i)
    text += (i != 0 ? "," : "") + std::to_string(values.as<float>()[i] * (i < 32 ? first_row : 1.0F) * 0.1F);
  return text + "}";
}

// One channel is 50 times larger than the others: their steps are 50 times too coarse in the first layer.
Tensor samples() {
  Tensor x = normal({24, 32}, 9);
  for (int i = 0; i < 24; ++i) x.mut<float>()[i * 32] *= 50;
  return x;
}

class SensitivityTest : public testing::Test {
 protected:
  SensitivityTest() {
    write_npy(folder.file("x.npy"), samples().view());
    data = std::make_unique<Dataset>(parse_data_argument(folder.file("x.npy") + ":batch=8"),
                                     model_inputs(graph));
    options.choices.spec.method = "rtn";
    options.choices.calibrator = "minmax";
    CalibrateOptions calibrate_options;
    calibrate_options.pool = &pool;
    input.graph = &graph;
    input.stats = calibrate(graph, values_to_watch(graph, options.choices.spec), *data, calibrate_options)
                      .statistics.tensors;
    input.data = data.get();
    input.pool = &pool;
  }

  TemporaryFolder folder;
  ThreadPool pool{1};
  Graph graph = text_graph(
      21, "g (float[N,32] x) => (float[N,32] y) <" + weight("w0", 1, 0.02F) + ", " + weight("w1", 2, 1) +
              ", " + weight("w2", 3, 1) +
              "> { h = MatMul(x, w0) a = Tanh(h) i = MatMul(a, w1) b = Tanh(i) y = MatMul(b, w2) }");
  std::unique_ptr<Dataset> data;
  SensitivityInput input;
  SensitivityOptions options;
};

TEST_F(SensitivityTest, TheMostSensitiveLayerComesFirst) {
  const std::vector<LayerSensitivity> rows = measure_sensitivity(input, options);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "h") << "its input has an outlier channel";
  EXPECT_LT(rows[0].sqnr_db, rows[1].sqnr_db - 3);
  EXPECT_LE(rows[1].sqnr_db, rows[2].sqnr_db);
  // Alone, and all but one: leaving the worst layer float wins most.
  options.all_but_one = true;
  const std::vector<LayerSensitivity> left = measure_sensitivity(input, options);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left[0].name, "h");
  EXPECT_GT(left[0].drop, 0);
}

TEST_F(SensitivityTest, ARuleOfTheRecipeHolds) {
  quant::Rule rule;
  rule.match.name = {"h"};
  rule.quantize = false;
  options.choices.spec.rules.push_back(rule);
  for (const LayerSensitivity& row : measure_sensitivity(input, options)) EXPECT_NE(row.name, "h");
}

TEST_F(SensitivityTest, UnknownNamesAreRefused) {
  input.metric = "output_sqnr";
  EXPECT_THROW(measure_sensitivity(input, options), Error);
  input.metric = "output_sqnr_db";
  SearchOptions search;
  search.choices = options.choices;
  EXPECT_THROW(search_formats(input, search), Error);
  search.schemes = {"int8", "int99"};
  EXPECT_THROW(search_formats(input, search), Error);
}

TEST_F(SensitivityTest, TheSearchLeavesTheWorstLayerFloatWhenItMust) {
  SearchOptions search;
  search.choices = options.choices;
  search.schemes = {"int8", "float"};
  search.points = 4;  // the whole path: 3 steps
  const SearchResult all = search_formats(input, search);
  ASSERT_EQ(all.front.size(), 4u);
  for (std::size_t i = 1; i < all.front.size(); ++i)
    EXPECT_LT(all.front[i].bits_per_weight, all.front[i - 1].bits_per_weight);
  EXPECT_TRUE(all.front.back().chosen) << "the fewest bits keep at least 0 dB";
  // Between the last two points: everything but the worst layer.
  ASSERT_GT(all.front[2].metric, all.front[3].metric);
  search.least = (all.front[2].metric + all.front[3].metric) / 2;
  const SearchResult kept = search_formats(input, search);
  ASSERT_TRUE(kept.front[2].chosen);
  for (const SearchChoice& layer : kept.front[2].layers)
    EXPECT_EQ(layer.format, layer.name == "h" ? "float" : "int8") << layer.name;
  search.least = 1000;  // nothing quantized reaches that: float does
  EXPECT_TRUE(search_formats(input, search).front[0].chosen);
}

TEST_F(SensitivityTest, PointsAreTimedWhenTheFastestIsWanted) {
  SearchOptions search;
  search.choices = options.choices;
  search.schemes = {"int8", "float"};
  search.points = 2;
  for (const SearchPoint& point : search_formats(input, search).front) EXPECT_EQ(point.latency_ms, 0);
  search.by_latency = true;
  const SearchResult timed = search_formats(input, search);
  ASSERT_EQ(timed.front.size(), 2u);
  for (const SearchPoint& point : timed.front) EXPECT_GT(point.latency_ms, 0);
  const bool first = timed.front[0].latency_ms <= timed.front[1].latency_ms;
  EXPECT_TRUE(timed.front[first ? 0 : 1].chosen) << "both keep 0 dB";
}

// A recipe whose codes are solved with moments of the layers' inputs is studied with the same codes.
TEST_F(SensitivityTest, MethodsThatLookAtDataAreFedWithIt) {
  for (const char* method : {"gptq", "awq", "learned", "smoothquant"}) {
    BisectOptions bisect;
    bisect.choices = options.choices;
    bisect.choices.spec.method = method;
    bisect.least = -100;
    input.calibration = nullptr;
    EXPECT_THROW(bisect_layers(input, bisect), Error) << method;
    input.calibration = data.get();
    const LayerBisection all = bisect_layers(input, bisect);
    QuantizeInput direct;
    direct.graph = &graph;
    direct.stats = input.stats;
    direct.calibration = data.get();
    direct.pool = &pool;
    const StudyJudge::Verdict want =
        StudyJudge(input, bisect.choices).judge(quantize_model(direct, bisect.choices).quantized);
    EXPECT_EQ(all.quantized, want.metric) << method;
    // Alone, and again with the codes that are known by now.
    options.choices.spec.method = method;
    const std::vector<LayerSensitivity> rows = measure_sensitivity(input, options);
    EXPECT_EQ(rows.size(), 3u);
    bisect.least = all.quantized + 3;
    const LayerBisection one = bisect_layers(input, bisect);
    ASSERT_FALSE(one.layers.empty()) << method;
    bisect.choices.spec.rules.push_back(rule_for(one.layers[0].rule_name, false));
    const StudyJudge::Verdict without =
        StudyJudge(input, bisect.choices).judge(quantize_model(direct, bisect.choices).quantized);
    EXPECT_EQ(one.layers[0].metric, without.metric) << method;
  }
}

TEST_F(SensitivityTest, BisectionFindsTheLayerThatIsToBlame) {
  BisectOptions bisect;
  bisect.choices = options.choices;
  bisect.least = -100;
  const LayerBisection fine = bisect_layers(input, bisect);
  EXPECT_TRUE(fine.reached);
  EXPECT_TRUE(fine.layers.empty());
  EXPECT_EQ(fine.candidates, 1);

  bisect.least = fine.quantized + 3;  // the outlier channel costs more than that
  const LayerBisection one = bisect_layers(input, bisect);
  ASSERT_EQ(one.layers.size(), 1u);
  EXPECT_EQ(one.layers[0].name, "h");
  EXPECT_GE(one.layers[0].metric, bisect.least);
  EXPECT_TRUE(one.reached);
  EXPECT_LE(one.candidates, 1 + 2 * 2) << "three layers are two halvings";

  bisect.least = 1000;
  bisect.most = 2;
  const LayerBisection two = bisect_layers(input, bisect);
  EXPECT_EQ(two.layers.size(), 2u);
  EXPECT_FALSE(two.reached);
  bisect.most = 16;
  const LayerBisection all = bisect_layers(input, bisect);
  EXPECT_EQ(all.layers.size(), 3u);
  EXPECT_TRUE(all.reached) << "nothing is quantized any more, so the outputs are equal";
  bisect.most = 0;
  EXPECT_THROW(bisect_layers(input, bisect), Error);
  bisect.most = 1;
  bisect.choices.spec.rules.push_back(rule_for("re:.*", false));
  EXPECT_THROW(bisect_layers(input, bisect), Error);
}

}  // namespace
}  // namespace pare
