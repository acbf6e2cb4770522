// Text out of a tiny checkpoint: steps with the cache choose what the whole text without one would.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "datasets/text/tokenizer.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/run/session.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"
#include "recipes/generate.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

std::string model() { return source_path("tests/golden/generate"); }

class GenerateTest : public testing::Test {
 protected:
  GenerateOptions options(std::int64_t most) {
    GenerateOptions o;
    o.most = most;
    o.pool = &pool_;
    o.to_the_end = true;
    return o;
  }
  ThreadPool pool_{2};
  Generator generator_{model(), &pool_};
};

TEST_F(GenerateTest, GreedyTokensAreThoseOfTheWholeText) {
  const Generated got = generator_.run("abc def", options(12));
  ASSERT_EQ(got.tokens.size(), 12u);
  EXPECT_EQ(got.finish, "length");
  SessionOptions session_options;
  session_options.pool = &pool_;
  Session session(std::make_shared<const Graph>(build_graph(open_checkpoint(model()))), session_options);
  std::vector<std::int64_t> ids = got.prompt;
  for (const std::int64_t token : got.tokens) {
    const auto n = static_cast<std::int64_t>(ids.size());
    const Tensor logits = session.run({Tensor::from(DType::kI64, {1, n}, ids)})[0];
    const std::int64_t v = logits.dims()[2];
    const float* row = logits.as<float>() + (n - 1) * v;
    EXPECT_EQ(std::max_element(row, row + v) - row, token);
    ids.push_back(token);
  }
  EXPECT_EQ(got.text, Tokenizer(checkpoint_tokenizer(model())).decode(got.tokens));
}

TEST_F(GenerateTest, DialoguesBecomePrompts) {
  const Json messages = {{{"role", "system"}, {"content", " be "}}, {{"role", "user"}, {"content", "abc"}}};
  const std::string prompt = generator_.dialogue(messages);
  EXPECT_EQ(prompt, "s be u abc a ");
  GenerateOptions plain = options(2);
  plain.special = false;
  EXPECT_EQ(generator_.run(prompt, plain).prompt, Tokenizer(checkpoint_tokenizer(model())).encode(prompt));
  EXPECT_ERROR(generator_.dialogue(Json::array()), "no messages");
}

TEST_F(GenerateTest, SeedsDecideDraws) {
  GenerateOptions drawn = options(20);
  drawn.sampling.temperature = 2;
  drawn.sampling.seed = 5;
  const std::vector<std::int64_t> first = generator_.run("ab", drawn).tokens;
  EXPECT_EQ(generator_.run("ab", drawn).tokens, first);
  drawn.sampling.seed = 6;
  EXPECT_NE(generator_.run("ab", drawn).tokens, first);
  drawn.sampling.top_k = 1;
  EXPECT_EQ(generator_.run("ab", drawn).tokens, generator_.run("ab", options(20)).tokens);
}

TEST_F(GenerateTest, EndsWhereItMust) {
  const Generated all = generator_.run("abc", options(1000));
  EXPECT_EQ(all.finish, "context");
  EXPECT_EQ(all.prompt.size() + all.tokens.size(), 64u);
  GenerateOptions stop = options(12);
  const Generated whole = generator_.run("abc def", stop);
  stop.stop = {whole.text.substr(3, 2)};
  const Generated cut = generator_.run("abc def", stop);
  EXPECT_EQ(cut.finish, "stop");
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop.stop[0])));
  EXPECT_ERROR(generator_.run(std::string(70, 'x'), options(1)), "the prompt has 70 tokens");
  EXPECT_ERROR(generator_.run("", options(1)), "has no tokens");
}

TEST(TokenSamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0, 1, 2, -50, 2};
  SamplingOptions options;
  options.temperature = 1;
  TokenSampler sampler(options);
  std::vector<int> counts(5, 0);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sampler.next(logits))];
  const double e = 2.718281828459045, sum = 1 + e + 2 * e * e;
  const double shares[] = {1 / sum, e / sum, e * e / sum, 0, e * e / sum};
  // Five standard deviations of a share of kDraws draws are at most 5 * 0.5 / sqrt(kDraws) = 0.018.
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(counts[i] / static_cast<double>(kDraws), shares[i], 0.018);
  options.top_p = 0.7;  // the two largest have 0.80, the first of them alone 0.40
  TokenSampler narrow(options);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t token = narrow.next(logits);
    EXPECT_TRUE(token == 2 || token == 4);
  }
  EXPECT_EQ(TokenSampler({}).next(logits), 2);  // the first of equal ones
  EXPECT_ERROR(TokenSampler({.temperature = -1}), "temperature");
  EXPECT_ERROR(TokenSampler({.top_p = 0}), "top_p");
  EXPECT_ERROR(TokenSampler({}).next(std::vector<float>{0, NAN}), "NaN");
}

}  // namespace
}  // namespace pare
