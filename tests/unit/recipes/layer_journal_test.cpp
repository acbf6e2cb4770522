// Finished layers on disk: what a killed run takes over, and that the result has the same bytes wherever it
// was killed.
#include "recipes/quantize/layer_journal.h"

#include <gtest/gtest.h>

#include "datasets/npy.h"
#include "datasets/random.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "graphsurgeon/onnx/write.h"
#include "recipes/quantize/quantize_model.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/graphsurgeon/text_model.h"
#include "tests/unit/recipes/normal.h"

namespace pare {
namespace {

std::string constant(const std::string& dims, const std::string& name, std::int64_t count,
                     std::uint64_t seed) {
  const Tensor values = normal({count}, seed);
  std::string text = "float[" + dims + "] " + name + " = {";
  for (std::int64_t i = 0; i < count; ++i)
    text += (i != 0 ? "," : "") + std::to_string(values.as<float>()[i] * 0.3F);
  return text + "}";
}

constexpr int kLayers = 4;

Graph network() {
  return text_graph(21, "g (float[N,6] x) => (float[N,3] y) <" + constant("6,8", "w0", 48, 1) + ", " +
                            constant("8,8", "w1", 64, 2) + ", " + constant("8,8", "w2", 64, 3) + ", " +
                            constant("8,3", "w3", 24, 4) +
                            "> { h0 = MatMul(x, w0) a0 = Relu(h0) h1 = MatMul(a0, w1) a1 = Tanh(h1) "
                            "h2 = MatMul(a1, w2) a2 = Relu(h2) y = MatMul(a2, w3) }");
}

class Counted final : public Progress {
 public:
  void begin(const std::string&, std::int64_t whole) override {
    total = whole;
    done = 0;
  }
  void advance(std::int64_t count) override {
    EXPECT_GT(count, 0);
    done += count;
  }
  std::int64_t total = 0, done = 0;
};

class LayerJournalTest : public testing::Test {
 protected:
  std::vector<quant::WeightPlan> plan(LayerJournal* journal, int stop_after, int* calls = nullptr) {
    int made = 0;
    const auto one = [&](const quant::Placement& unit, const Advance& advance) {
      if (made == stop_after) fail(ErrorCode::kInterrupted, "killed");
      ++made;
      if (calls != nullptr) *calls = made;
      for (int i = 0; i < 7; ++i) advance(0.3);  // more than all: what a method thinks it is
      return quant::plan_weights(graph, unit, "search", pool);
    };
    return plan_layers(
        graph, placement, [](const quant::Placement&) { return std::string("search"); }, journal, counted,
        one);
  }
  std::unique_ptr<LayerJournal> open(const std::string& base = "b") const {
    auto journal = std::make_unique<LayerJournal>(folder.file("layers"), base);
    journal->keep_seconds = 0;
    return journal;
  }
  static void expect_same(const std::vector<quant::WeightPlan>& a, const std::vector<quant::WeightPlan>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(equal_bytes(a[i].codes, b[i].codes)) << i;
      EXPECT_TRUE(equal_bytes(a[i].scales, b[i].scales)) << i;
      EXPECT_EQ(a[i].mse, b[i].mse);
      EXPECT_EQ(a[i].sqnr_db, b[i].sqnr_db);
      EXPECT_EQ(a[i].clipped, b[i].clipped);
    }
  }

  TemporaryFolder folder;
  Counted counted;
  ThreadPool pool{1};
  Graph graph = network();
  quant::Placement placement = quant::place(graph, quant::Spec{});
};

TEST_F(LayerJournalTest, ARunKilledAtAnyLayerGoesOnThere) {
  const std::vector<quant::WeightPlan> whole = plan(nullptr, -1);
  ASSERT_EQ(whole.size(), static_cast<std::size_t>(kLayers));
  EXPECT_EQ(counted.total, 48 + 64 + 64 + 24);  // weights
  EXPECT_EQ(counted.done, counted.total);
  for (int stop = 0; stop <= kLayers; ++stop) {
    remove_tree(folder.file("layers"));
    if (stop < kLayers) {
      EXPECT_THROW(plan(open().get(), stop), Error);
    } else {
      plan(open().get(), -1);
    }
    int calls = 0;
    const std::vector<quant::WeightPlan> rest = plan(open().get(), -1, &calls);
    EXPECT_EQ(calls, kLayers - stop);
    EXPECT_EQ(counted.done, counted.total);
    expect_same(rest, whole);
  }
}

TEST_F(LayerJournalTest, NothingIsTakenFromElsewhere) {
  plan(open().get(), -1);
  int calls = 0;
  plan(open("other statistics").get(), -1, &calls);
  EXPECT_EQ(calls, kLayers);
  // Another weight, another format: that layer alone.
  Value& w1 = graph.value(graph.find_value("w1"));
  w1.constant = w1.constant.clone();
  w1.constant.mut<float>()[5] += 1;
  plan(open().get(), -1, &calls);
  EXPECT_EQ(calls, 1);
  placement.weights[2].format.granularity = quant::Granularity::kTensor;
  plan(open().get(), -1, &calls);
  EXPECT_EQ(calls, 1);
}

TEST_F(LayerJournalTest, ADamagedFileIsComputedAgain) {
  const std::vector<quant::WeightPlan> whole = plan(open().get(), -1);
  std::string victim;
  for (const std::string& name : list_directory(folder.file("layers")))
    if (name.size() > 6 && name.compare(name.size() - 6, 6, ".layer") == 0) victim = name;
  ASSERT_FALSE(victim.empty());
  const std::string path = join_path(folder.file("layers"), victim);
  const std::string sound = read_text_file(path, 1 << 20);
  std::vector<std::string> damaged;
  for (std::size_t size = 0; size < sound.size(); size += 7) damaged.push_back(sound.substr(0, size));
  for (std::size_t at = 0; at < sound.size(); at += 11) {
    damaged.push_back(sound);
    damaged.back()[at] ^= 0x11;
  }
  for (const std::string& bytes : damaged) {
    write_file_atomically(path, std::string_view(bytes));
    int calls = 0;
    const std::vector<quant::WeightPlan> again = plan(open().get(), -1, &calls);
    // A changed blank of the header changes nothing that counts.
    EXPECT_LE(calls, 1);
    expect_same(again, whole);
  }
}

TEST_F(LayerJournalTest, ATemporaryOneLeavesNothing) {
  const std::string output = folder.file("model.onnx");
  const auto files = [&] { return list_directory(parent_path(output)); };
  const std::vector<std::string> before = files();
  {
    const std::unique_ptr<LayerJournal> journal = LayerJournal::temporary(output);
    journal->keep_seconds = 0;
    expect_same(plan(journal.get(), -1), plan(nullptr, -1));
    EXPECT_GT(files().size(), before.size());
  }
  EXPECT_EQ(files(), before);
  // What a killed process left (no process has this number) is removed by the next.
  make_directories(join_path(parent_path(output), ".model.onnx.2000000000.layers"));
  LayerJournal::temporary(output).reset();
  EXPECT_EQ(files(), before);
}

TEST_F(LayerJournalTest, ScoresSurviveAndAHalfLineNeverHappened) {
  open()->keep_score("mse", 31.25);
  open()->keep_score("minmax", -std::numeric_limits<double>::infinity());
  const std::string path = join_path(folder.file("layers"), "scores.jsonl");
  const std::string text = read_text_file(path, 1 << 20);
  write_file_atomically(path, std::string_view(text + "{\"base\":\"b\",\"candi"));
  EXPECT_EQ(open()->score("mse"), 31.25);
  EXPECT_EQ(open()->score("minmax"), -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(open()->score("entropy").has_value());
  EXPECT_FALSE(open("other")->score("mse").has_value());
  open()->keep_score("entropy", 1);
  EXPECT_EQ(open()->score("entropy"), 1);
}

// The whole flow: layers, candidates and their corrections, stopped wherever it says how far it is.
class StopAt final : public Progress {
 public:
  explicit StopAt(int calls) : left_(calls) {}
  void advance(std::int64_t) override {
    if (left_-- == 0) fail(ErrorCode::kInterrupted, "killed");
  }
  bool fired() const { return left_ < 0; }

 private:
  int left_;
};

TEST_F(LayerJournalTest, AQuantizationStoppedAnywhereEndsWithTheSameBytes) {
  write_npy(folder.file("x.npy"), normal({64, 6}, 7).view());
  QuantizeChoices choices;
  Dataset data(parse_data_argument(folder.file("x.npy") + ":batch=8"), model_inputs(graph));
  CalibrateOptions calibrate_options;
  calibrate_options.pool = &pool;
  const std::vector<TensorStats> stats =
      calibrate(graph, values_to_watch(graph, choices.spec), data, calibrate_options).statistics.tensors;
  const auto run = [&](LayerJournal* journal, Progress& progress) {
    QuantizeInput input;
    input.graph = &graph;
    input.stats = stats;
    input.calibration = &data;
    input.held_out = &data;
    input.held_out_range = {32, 64};
    input.pool = &pool;
    input.progress = &progress;
    input.journal = journal;
    const QuantizeOutcome outcome = quantize_model(input, choices);
    std::string text = onnx_bytes(outcome.quantized);
    for (const ScoredCandidate& candidate : outcome.candidates)
      text += fmt::format("{} {} {}\n", candidate.name, candidate.held_out_sqnr_db, candidate.chosen);
    return text;
  };
  const std::string good = run(nullptr, no_progress());
  bool stopped = true;
  for (int calls = 0; stopped; calls += calls < 10 ? 1 : 9) {
    remove_tree(folder.file("layers"));
    StopAt stop(calls);
    try {
      EXPECT_EQ(run(open().get(), stop), good);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInterrupted);
    }
    stopped = stop.fired();
    EXPECT_EQ(run(open().get(), no_progress()), good) << "stopped after " << calls;
  }
}

}  // namespace
}  // namespace pare
