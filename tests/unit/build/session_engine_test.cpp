// Sessions on a device: the outputs and the watched values of the CPU's session, to the order of float32
// sums. The device here is the plan's reference, so what is tested is everything but kernels.
#include "engine/build/session_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/run/session.h"
#include "tests/unit/build/networks.h"

namespace pare {
namespace {

class ReferenceRunner final : public EngineRunner {
 public:
  explicit ReferenceRunner(const EnginePlan& plan) : plan_(plan) {}
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override {
    return run_plan_reference(plan_, inputs);
  }
  std::unique_ptr<EngineRunner> context(int) override { return std::make_unique<ReferenceRunner>(plan_); }
  void repeat(int) override {}
  BenchTimes bench(int, int) override { return {}; }
  std::vector<LayerTime> profile(int) override { return {}; }
  EngineMemory memory() const override { return {}; }
  std::vector<double> check_layers(const std::vector<Tensor>&) override { return {}; }

 private:
  EnginePlan plan_;
};

class ReferenceBackend final : public EngineBackend {
 public:
  int loaded = 0;
  std::int64_t free_bytes = std::int64_t{1} << 30;
  std::vector<BackendPart> parts() override { return {}; }
  DeviceFacts facts() override {
    DeviceFacts facts;
    facts.free_bytes = free_bytes;
    return facts;
  }
  TuneReport tune(EnginePlan&, const TuneOptions&) override { return {}; }
  CompileReport compile(EnginePlan&, const std::vector<std::string>&, int) override { return {}; }
  void adopt(EnginePlan& plan, const EnginePlan&) override {
    for (PlanLayer& layer : plan.layers) layer.tactic = "reference";
  }
  std::unique_ptr<EngineRunner> load(const EnginePlan& plan, EngineRunner*) override {
    ++loaded;
    return std::make_unique<ReferenceRunner>(plan);
  }
  std::vector<TacticCheck> check_tactics(const EnginePlan&) override { return {}; }
};

// The device is set as long as it lives.
struct OnDevice {
  explicit OnDevice(SessionDevice* device) { set_session_device(device); }
  ~OnDevice() { set_session_device(nullptr); }
};

Tensor random_input(const Value& value, unsigned seed) {
  Dims dims = value.shape.sizes();
  Tensor x = Tensor::allocate(value.dtype, dims);
  unsigned state = seed * 2654435761u + 12345;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    if (value.dtype == DType::kF32)
      x.mut<float>()[i] = static_cast<float>(state >> 8) / 8388608.0f - 1;
    else
      x.mut<std::int64_t>()[i] = (state >> 10) % 8;
  }
  return x;
}

// Values in the order of the graph, by name.
using Seen = std::vector<std::pair<std::string, std::vector<float>>>;

Seen watch_all(const Graph& source, unsigned seed, std::vector<Tensor>& outputs) {
  LowerOptions options;
  for (const NodeId id : source.nodes())
    for (const ValueId out : source.node(id).out)
      if (out != ValueId::kNone && source.value(out).dtype == DType::kF32) options.keep.push_back(out);
  const Lowered lowered = lower_for_cpu(source, options);
  ThreadPool pool(1);
  SessionOptions session_options;
  session_options.pool = &pool;
  Session session(lowered.graph, session_options);
  Seen seen;
  std::map<ValueId, std::size_t> places;
  for (const ValueId id : options.keep) {
    const ValueId moved = lowered.find(id);
    if (moved == ValueId::kNone || lowered.graph->is_constant(moved) || places.count(moved) != 0) continue;
    places[moved] = seen.size();
    seen.emplace_back(source.value(id).name, std::vector<float>{});
    session.watch(moved, [&seen, &places](ValueId value, const TensorView& x) {
      seen[places.at(value)].second.assign(x.as<float>(), x.as<float>() + x.size());
    });
  }
  std::vector<Tensor> inputs;
  for (const ValueId id : source.inputs) inputs.push_back(random_input(source.value(id), seed));
  outputs = session.run(inputs);
  return seen;
}

// Values that a watcher sees differ by roundings of sums only. A layer of n terms adds at most (n + 2) 2^-24
// of the sum of magnitudes, and hands on what it got; the networks here have n <= 768 and about 60 layers in
// a row, whose errors add at random: sqrt(60) * 770 * 2^-24 = 3.6e-4 of the largest value, taken as 5e-4.
void expect_near(const Seen& want, const Seen& got) {
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(want[i].second.size(), got[i].second.size()) << want[i].first;
    float largest = 0, worst = 0;
    for (std::size_t k = 0; k < want[i].second.size(); ++k) {
      largest = std::max(largest, std::fabs(want[i].second[k]));
      worst = std::max(worst, std::fabs(want[i].second[k] - got[i].second[k]));
    }
    EXPECT_LE(worst, 5e-4f * largest + 1e-30f) << want[i].first;
  }
}

TEST(SessionEngine, WatchersSeeWhatTheCpuSees) {
  ReferenceBackend backend;
  for (const Graph& graph : {test::vit(1), test::bert(1, 2)}) {
    EngineSessions sessions(backend);
    std::vector<Tensor> here, there;
    const Seen want = watch_all(graph, 1, here);
    ASSERT_GT(want.size(), 10u);
    Seen got;
    {
      const OnDevice on(&sessions);
      got = watch_all(graph, 1, there);
    }
    EXPECT_EQ(sessions.runs(), 1);
    EXPECT_TRUE(sessions.declined().empty()) << sessions.declined()[0];
    expect_near(want, got);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t o = 0; o < here.size(); ++o) EXPECT_EQ(here[o].dims(), there[o].dims());
  }
}

// One plan for each graph and shape, however often it runs.
TEST(SessionEngine, PlansAreKept) {
  ReferenceBackend backend;
  EngineSessions sessions(backend);
  const OnDevice on(&sessions);
  const Graph graph = test::vit(1);
  ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(lower_for_cpu(graph).graph, options);
  const Tensor x = random_input(graph.value(graph.inputs[0]), 1),
               y = random_input(graph.value(graph.inputs[0]), 2);
  const std::vector<Tensor> first = session.run({x}), second = session.run({y}), again = session.run({x});
  EXPECT_EQ(backend.loaded, 1);
  EXPECT_EQ(sessions.runs(), 3);
  EXPECT_TRUE(equal_bytes(first[0], again[0]));  // whatever came between
  EXPECT_FALSE(equal_bytes(first[0], second[0]));
}

// More than the device has is an error that names what would fit, not a run on the CPU.
TEST(SessionEngine, TooLittleMemoryIsSaid) {
  ReferenceBackend backend;
  backend.free_bytes = 100 << 10;
  EngineSessions sessions(backend);
  const OnDevice on(&sessions);
  const Graph graph = test::bert(1, 8);
  ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(lower_for_cpu(graph).graph, options);
  try {
    session.run({random_input(graph.value(graph.inputs[0]), 1)});
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(error.what()).find("at batch 8"), std::string::npos) << error.what();
  }
  EXPECT_EQ(backend.loaded, 0);
}

// What the device has no layer for runs on the CPU, and the reason is kept.
TEST(SessionEngine, DeclinedGraphsRunHere) {
  Graph g;
  Value x;
  x.name = "x";
  x.dtype = DType::kF32;
  x.shape = Shape(Dims{8});
  g.inputs = {g.add_value(x)};
  Value y;
  y.name = "sums";
  y.dtype = DType::kF32;
  Node node;
  node.op = "CumSum";
  node.name = "sums";
  node.in = {g.inputs[0], g.add_constant("axis", Tensor::from<std::int64_t>(DType::kI64, {}, {0}))};
  node.out = {g.add_value(y)};
  g.outputs = node.out;
  g.add_node(node);
  ReferenceBackend backend;
  EngineSessions sessions(backend);
  const OnDevice on(&sessions);
  ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::make_shared<const Graph>(g), options);
  const Tensor ones = Tensor::from<float>(DType::kF32, {8}, std::vector<float>(8, 1.0f));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(session.run({ones})[0].as<float>()[7], 8.0f);
  EXPECT_EQ(sessions.runs(), 0);
  ASSERT_EQ(sessions.declined().size(), 1u);
  EXPECT_NE(sessions.declined()[0].find("CumSum"), std::string::npos) << sessions.declined()[0];
}

TEST(Portable, TheRightArchitectureIsTaken) {
  EnginePlan plan;
  EXPECT_TRUE(portable_architectures(plan).empty());
  for (const char* key : {"sm_80/a", "sm_90a/a", "sm_100/a", "b"}) plan.binaries[key] = Tensor();
  EXPECT_EQ(portable_architectures(plan).size(), 3u);
  EXPECT_EQ(portable_architecture(plan, "sm_90a"), "sm_90a");
  EXPECT_EQ(portable_architecture(plan, "sm_80"), "sm_80");
  EXPECT_EQ(portable_architecture(plan, "sm_86"), "sm_80");  // the same generation, younger
  EXPECT_EQ(portable_architecture(plan, "sm_103"), "sm_100");
  EXPECT_EQ(portable_architecture(plan, "sm_75"), "");
  EXPECT_EQ(portable_architecture(plan, "sm_120"), "");
}

}  // namespace
}  // namespace pare
