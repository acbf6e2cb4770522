// Each family against transformers in float32, on tiny random models (tests/golden/families/make.py): a
// prefill, then eight steps with the cache, and the same tokens in one call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/sequence/cached_attention.h"
#include "engine/run/session.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

constexpr std::int64_t kPrefill = 12, kSteps = 8;

// Both sides compute in float32 with sums in other orders. A step of three layers of width 32 has some 300
// operations in a row behind each other, each within 2^-24 of values up to about 10 in size, so 300 * 10 *
// 2^-24 = 1.8e-4 bounds it; a rounded frequency or a wrong rule gives 1e-2 and more.
constexpr double kTolerance = 1.8e-4;

Tensor columns(const Tensor& from, std::int64_t begin, std::int64_t count) {
  Tensor part = Tensor::allocate(DType::kI64, {from.dims()[0], count});
  for (std::int64_t b = 0; b < from.dims()[0]; ++b)
    for (std::int64_t i = 0; i < count; ++i)
      part.mut<std::int64_t>()[b * count + i] = from.as<std::int64_t>()[b * from.dims()[1] + begin + i];
  return part;
}

// want [batch, n, vocabulary] against positions [at, at + n) of got.
double difference(const Tensor& got, std::int64_t at, const Tensor& want) {
  const std::int64_t n = want.dims()[1], v = want.dims()[2], length = got.dims()[1];
  EXPECT_EQ(got.dims()[2], v);
  double worst = 0;
  for (std::int64_t b = 0; b < want.dims()[0]; ++b)
    for (std::int64_t i = 0; i < n * v; ++i) {
      const double d = std::fabs(static_cast<double>(got.as<float>()[(b * length + at) * v + i]) -
                                 want.as<float>()[b * n * v + i]);
      worst = d > worst || std::isnan(d) ? d : worst;
    }
  return worst;
}

class Families : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return source_path(std::string("tests/golden/families/") + GetParam()); }
  std::vector<Tensor> run(const BuildOptions& options, const std::vector<Tensor>& inputs) {
    auto graph = std::make_shared<const Graph>(build_graph(open_checkpoint(folder()), options));
    return Session(graph, session_options()).run(inputs);
  }
  SessionOptions session_options() {
    SessionOptions options;
    options.pool = &pool_;
    return options;
  }
  ThreadPool pool_{2};
};

class Decoders : public Families {};

TEST_P(Decoders, WholeTextIsThatOfTransformers) {
  const auto want = read_safetensors(folder() + "/expected.safetensors");
  for (const bool views : {false, true}) {
    BuildOptions options;
    options.views = views;
    // longrope turns all of a text by its length: the prefill alone is what was recorded.
    const bool by_length = std::string(GetParam()) == "phi3_longrope";
    const Tensor& ids = want.at("input_ids");
    const Tensor logits = run(options, {by_length ? columns(ids, 0, kPrefill) : ids})[0];
    EXPECT_LT(difference(logits, 0, want.at("prefill")), kTolerance);
    if (by_length) continue;
    EXPECT_LT(difference(logits, kPrefill, want.at("steps")), kTolerance);
  }
}

TEST_P(Decoders, StepsWithTheCacheAreThoseOfTransformers) {
  const auto want = read_safetensors(folder() + "/expected.safetensors");
  const Tensor& ids = want.at("input_ids");
  const Checkpoint checkpoint = open_checkpoint(folder());
  BuildOptions options;
  options.with_cache = true;
  auto graph = std::make_shared<const Graph>(build_graph(checkpoint, options));
  Session session(graph, session_options());
  const ModelConfig& c = checkpoint.config;
  std::vector<Tensor> feed = {columns(ids, 0, kPrefill)};
  for (std::int64_t i = 0; i < 2 * c.layers; ++i)
    feed.push_back(Tensor::allocate(DType::kF32, {2, c.kv_heads, 0, c.head_size}));
  std::vector<Tensor> out = session.run(feed);
  EXPECT_LT(difference(out[0], 0, want.at("prefill")), kTolerance);
  Tensor steps = Tensor::allocate(DType::kF32, {2, kSteps, c.vocabulary});
  for (std::int64_t s = 0; s < kSteps; ++s) {
    for (std::size_t i = 1; i < out.size(); ++i) feed[i] = out[i];
    feed[0] = columns(ids, kPrefill + s, 1);
    out = session.run(feed);
    for (std::int64_t b = 0; b < 2; ++b)
      std::copy_n(out[0].as<float>() + b * c.vocabulary, c.vocabulary,
                  steps.mut<float>() + (b * kSteps + s) * c.vocabulary);
  }
  EXPECT_LT(difference(steps, 0, want.at("steps")), kTolerance);
}

// The form that generates: caches beside the graph, both samples of the batch in them.
TEST_P(Decoders, StepwiseIsThatOfTransformers) {
  const auto want = read_safetensors(folder() + "/expected.safetensors");
  const Tensor& ids = want.at("input_ids");
  const Checkpoint checkpoint = open_checkpoint(folder());
  BuildOptions options;
  options.stepwise = true;
  Session session(std::make_shared<const Graph>(build_graph(checkpoint, options)), session_options());
  const ModelConfig& c = checkpoint.config;
  const std::int64_t blocks = (kPrefill + kSteps + kKeysOfBlock - 1) / kKeysOfBlock;
  std::vector<Tensor> feed(session.graph().inputs.size());
  std::int64_t past = 0;
  const auto step = [&](std::int64_t count) {
    std::vector<Tensor*> caches;
    for (std::size_t i = 0; i < feed.size(); ++i) {
      const std::string& name = session.graph().value(session.graph().inputs[i]).name;
      if (name == "input_ids") {
        feed[i] = columns(ids, past, count);
      } else if (name == "past") {
        feed[i] = Tensor::from<std::int64_t>(DType::kI64, {}, {past});
      } else {
        if (past == 0)
          feed[i] = Tensor::allocate(
              DType::kF32, caches.size() % 2 == 0 ? Dims{2, c.kv_heads, blocks, c.head_size, kKeysOfBlock}
                                                  : Dims{2, c.kv_heads, blocks * kKeysOfBlock, c.head_size});
        caches.push_back(&feed[i]);
      }
    }
    const std::vector<Tensor> out = session.run(feed);
    for (std::size_t i = 0; i < caches.size(); ++i)
      for (std::int64_t b = 0; b < 2; ++b) {
        const std::int64_t rows = count * c.kv_heads * c.head_size;
        (i % 2 == 0 ? store_keys : store_values)(
            out[i + 1].as<float>() + b * rows, count, c.kv_heads, c.head_size, blocks, past,
            caches[i]->mut<float>() + b * c.kv_heads * blocks * kKeysOfBlock * c.head_size);
      }
    past += count;
    return out[0];
  };
  // The last position of two calls (the second over a past), then token by token.
  const auto row = [&](const Tensor& from, std::int64_t at) {
    Tensor rows = Tensor::allocate(DType::kF32, {2, 1, c.vocabulary});
    for (std::int64_t b = 0; b < 2; ++b)
      std::copy_n(from.as<float>() + (b * from.dims()[1] + at) * c.vocabulary, c.vocabulary,
                  rows.mut<float>() + b * c.vocabulary);
    return rows;
  };
  EXPECT_LT(difference(step(3), 0, row(want.at("prefill"), 2)), kTolerance);
  EXPECT_LT(difference(step(kPrefill - 3), 0, row(want.at("prefill"), kPrefill - 1)), kTolerance);
  for (std::int64_t s = 0; s < kSteps; ++s)
    EXPECT_LT(difference(step(1), 0, row(want.at("steps"), s)), kTolerance) << s;
}

INSTANTIATE_TEST_SUITE_P(Golden, Decoders,
                         testing::Values("llama", "llama3", "llama_yarn", "llama_linear", "llama_dynamic",
                                         "mistral", "qwen2", "qwen2_window", "qwen3", "gemma", "gemma2",
                                         "gemma3", "gemma3_scaled", "phi3", "phi3_longrope", "mixtral",
                                         "qwen2_moe", "qwen3_moe", "gpt2", "opt", "opt_350m"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Families, EncoderIsThatOfTransformers) {
  const auto want = read_safetensors(folder() + "/expected.safetensors");
  const Tensor hidden =
      run({}, {want.at("input_ids"), want.at("attention_mask"), want.at("token_type_ids")})[0];
  EXPECT_LT(difference(hidden, 0, want.at("last_hidden_state")), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, testing::Values("bert"),
                         [](const auto& test) { return std::string(test.param); });

// --- spellings of config.json

void expect_same(const RopeConfig& a, const RopeConfig& b) {
  EXPECT_EQ(a.type, b.type);
  for (const auto field :
       {&RopeConfig::theta, &RopeConfig::factor, &RopeConfig::low_frequency, &RopeConfig::high_frequency,
        &RopeConfig::beta_fast, &RopeConfig::beta_slow, &RopeConfig::attention_factor, &RopeConfig::partial})
    EXPECT_EQ(a.*field, b.*field);
  EXPECT_EQ(a.original_context, b.original_context);
  EXPECT_EQ(a.short_factor, b.short_factor);
  EXPECT_EQ(a.long_factor, b.long_factor);
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  expect_same(a.rope, b.rope);
  expect_same(a.local_rope, b.local_rope);
  EXPECT_EQ(a.model_type, b.model_type);
  EXPECT_EQ(a.dtype, b.dtype);
  for (const auto field :
       {&ModelConfig::vocabulary, &ModelConfig::hidden, &ModelConfig::layers, &ModelConfig::heads,
        &ModelConfig::kv_heads, &ModelConfig::head_size, &ModelConfig::intermediate, &ModelConfig::context,
        &ModelConfig::window, &ModelConfig::experts, &ModelConfig::experts_used,
        &ModelConfig::expert_intermediate, &ModelConfig::shared_intermediate})
    EXPECT_EQ(a.*field, b.*field);
  for (const auto field : {&ModelConfig::norm_epsilon, &ModelConfig::attention_softcap,
                           &ModelConfig::final_softcap, &ModelConfig::query_scale})
    EXPECT_EQ(a.*field, b.*field);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.tied, b.tied);
  EXPECT_EQ(a.attention_bias, b.attention_bias);
  for (std::int64_t i = 0; i < a.layers; ++i) EXPECT_EQ(a.is_local(i), b.is_local(i)) << i;
}

// What transformers wrote before version 5: torch_dtype, rope_theta with rope_scaling, the windows of Gemma
// as a pattern.
Json older_spelling(Json config) {
  config["torch_dtype"] = config["dtype"];
  config.erase("dtype");
  if (const auto found = config.find("rope_parameters"); found != config.end()) {
    Json rope = *found;
    config.erase("rope_parameters");
    if (rope.contains("full_attention")) {
      config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"];
      rope = Json(rope["full_attention"]);
    }
    config["rope_theta"] = rope["rope_theta"];
    rope.erase("rope_theta");
    if (rope.contains("partial_rotary_factor"))
      config["partial_rotary_factor"] = rope["partial_rotary_factor"];
    rope.erase("partial_rotary_factor");
    if (rope["rope_type"] == "default") {
      config["rope_scaling"] = nullptr;
    } else {
      rope["type"] = rope["rope_type"] == "longrope" ? "su" : rope["rope_type"].get<std::string>();
      rope.erase("rope_type");
      config["rope_scaling"] = rope;
    }
  }
  if (config["model_type"] == "gemma3_text") {
    config.erase("layer_types");
    config["sliding_window_pattern"] = 3;
  }
  if (config["model_type"] == "gemma2") config.erase("layer_types");
  return config;
}

TEST(ConfigSpellings, OlderAndNewerSayTheSame) {
  int compared = 0;
  for (const std::string& name : list_directory(source_path("tests/golden/families"))) {
    const std::string file = source_path("tests/golden/families/" + name + "/config.json");
    if (!is_regular_file(file)) continue;
    SCOPED_TRACE(name);
    const Json newer = read_json_file(file);
    expect_same(parse_model_config(newer, "new"), parse_model_config(older_spelling(newer), "old"));
    // Models that also see have all of it one level down.
    Json outer = {{"model_type", "outer"}, {"architectures", newer["architectures"]}, {"text_config", newer}};
    expect_same(parse_model_config(newer, "new"), parse_model_config(outer, "inside"));
    ++compared;
  }
  EXPECT_GE(compared, 22);
}

}  // namespace
}  // namespace pare
