// Engines for the CPU: the graph comes back from the file as it was, outputs have the bits of the session
// that runs the lowered graph, every context gives them, and shapes outside of the profile are refused by
// name.
#include "engine/build/cpu_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/build/bench_contexts.h"
#include "engine/build/engine.h"
#include "engine/build/graph_json.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "tests/unit/build/networks.h"

namespace pare {
namespace {

Tensor ramp(const Dims& dims) {
  Tensor x = Tensor::allocate(DType::kF32, dims);
  for (std::int64_t i = 0; i < x.size(); ++i) x.mut<float>()[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  return x;
}

// image [batch,2,4] -> Gemm of each row -> Relu, the batch open.
Graph open_network() {
  Graph g;
  Value x;
  x.name = "image";
  x.dtype = DType::kF32;
  x.shape = Shape(std::vector<Dim>{Dim::named("batch"), Dim::of(6)});
  const ValueId in = g.add_value(x);
  g.inputs = {in};
  const ValueId w = g.add_constant("w", ramp({6, 2048}));
  Value y;
  y.name = "product";
  y.dtype = DType::kF32;
  Node product;
  product.op = "MatMul";
  product.name = "product";
  product.in = {in, w};
  product.out = {g.add_value(y)};
  const ValueId mid = product.out[0];
  g.add_node(product);
  y.name = "result";
  Node relu;
  relu.op = "Relu";
  relu.name = "relu";
  relu.in = {mid};
  relu.out = {g.add_value(y)};
  g.outputs = relu.out;
  g.add_node(relu);
  return g;
}

ShapeProfile one_to_eight() { return {{"batch", 1, 2, 8}}; }

class CpuEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = make_temporary_directory();
    const Graph open = open_sizes(open_network(), 1, {}, one_to_eight());
    engine_ = build_cpu_engine(open, one_to_eight(), {ramp({2, 6})}, true, pool_);
  }
  void TearDown() override { remove_tree(folder_); }
  std::string path(const char* name) const { return join_path(folder_, name); }
  Engine ready(EngineFile file) {
    EngineOptions options;
    options.pool = &pool_;
    return Engine(std::move(file), options);
  }
  ThreadPool pool_{2};
  std::string folder_;
  EngineFile engine_;
};

std::string round_trip(const Graph& graph) {
  std::map<std::string, Tensor> kept;
  const Json json = graph_to_json(graph, [&](const Tensor& t) {
    const std::string key = std::to_string(kept.size());
    kept[key] = t;
    return key;
  });
  const Graph read = graph_from_json(
      parse_json(dump(json), "test"),
      [&](const std::string& key, DType type, const Dims& dims) {
        const Tensor& t = kept.at(key);
        EXPECT_EQ(t.dtype(), type);
        EXPECT_EQ(t.dims(), dims);
        return t;
      },
      "test");
  return to_text(read);
}

TEST(GraphJson, GraphsComeBack) {
  for (const Graph& graph : {test::resnet50(), test::vit(2), test::bert(1, 2), open_network()}) {
    EXPECT_EQ(round_trip(graph), to_text(graph));
    const Lowered lowered = lower_for_cpu(graph);  // operators of lowering, channels-last values
    EXPECT_EQ(round_trip(*lowered.graph), to_text(*lowered.graph));
  }
}

TEST(GraphJson, AttributesSubgraphsAndStrings) {
  Graph g;
  g.name = "all kinds";
  g.opset = 21;
  Value v;
  v.name = "x";
  v.dtype = DType::kF32;
  v.shape = Shape(std::vector<Dim>{Dim::named("n"), Dim{}, Dim::of(0)});
  const ValueId x = g.add_value(v);
  g.inputs = {x};
  Tensor words = Tensor::allocate(DType::kString, {2});
  words.mut<std::string>()[0] = "a \"quoted\" word";
  g.add_constant("words", words);
  auto body = std::make_shared<Graph>();
  Value inner;
  inner.name = "inner";
  inner.dtype = DType::kF32;
  body->captures = {{1, body->add_value(inner)}};
  body->outputs = {body->captures[0].inner};
  Node node;
  node.op = "If";
  node.name = "branch";
  const ValueId condition = g.add_constant("yes", Tensor::from<std::uint8_t>(DType::kBool, {}, {1}));
  node.in = {condition, x};
  node.declared_inputs = 1;
  Value y;
  y.name = "y";
  y.dtype = DType::kF32;
  node.out = {g.add_value(y)};
  node.attrs["then_branch"] = body;
  node.attrs["else_branch"] = std::make_shared<Graph>(*body);
  node.attrs["real"] = 0.1f;
  node.attrs["endless"] = std::numeric_limits<float>::infinity();
  node.attrs["whole"] = std::int64_t{-7};
  node.attrs["text"] = std::string("nearest");
  node.attrs["reals"] = std::vector<float>{1.5f, -0.0f, std::numeric_limits<float>::quiet_NaN()};
  node.attrs["wholes"] = std::vector<std::int64_t>{1, -1, std::int64_t{1} << 60};
  node.attrs["texts"] = std::vector<std::string>{"", "b"};
  node.attrs["tensor"] = ramp({3});
  g.outputs = node.out;
  g.add_node(node);
  EXPECT_EQ(round_trip(g), to_text(g));
}

TEST(GraphJson, WhatLiesIsRefused) {
  const Json good = graph_to_json(open_network(), [](const Tensor&) { return std::string("w"); });
  const auto find = [](const std::string&, DType, const Dims& dims) { return ramp(dims); };
  EXPECT_NO_THROW(graph_from_json(good, find, "good"));
  using Change = void (*)(Json&);
  const Change changes[] = {
      [](Json& j) { j["nodes"][0]["in"][0] = 99; },
      [](Json& j) { j["nodes"][0]["out"][0] = -5; },
      [](Json& j) { j["nodes"][1]["out"] = j["nodes"][0]["out"]; },  // computed twice
      [](Json& j) { j["nodes"][0]["out"] = j["inputs"]; },           // an input that is computed
      [](Json& j) { std::swap(j["nodes"][0], j["nodes"][1]); },      // used before it is computed
      [](Json& j) { j["nodes"][0]["op"] = "NoSuchOperator"; },
      [](Json& j) { j["values"][1]["name"] = j["values"][0]["name"]; },
      [](Json& j) { j["values"][0]["shape"][0] = -3; },
      [](Json& j) { j["values"][0]["type"] = "float7"; },
      [](Json& j) { j["values"][0]["layout"] = 9; },
      [](Json& j) { j["inputs"].push_back(j["inputs"][0]); },
      [](Json& j) { j["outputs"][0] = 0.5; },
      [](Json& j) {
        j["nodes"][0]["attrs"] = {{"a", {{"i", 1}, {"f", 2}}}};
      },
      [](Json& j) { j["nodes"][0]["declared"] = 3; },
      [](Json& j) { j.erase("values"); },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    Json bad = good;
    changes[i](bad);
    try {
      graph_from_json(bad, find, "bad");
      ADD_FAILURE() << "change " << i;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported)
          << i << error.what();
    }
  }
}

TEST_F(CpuEngineTest, RunsFromItsFileAtAnyShapeOfTheProfile) {
  write_engine(path("a"), engine_);
  Engine engine = ready(read_engine(path("a")));
  EXPECT_EQ(engine.file().profile.size(), 1u);
  EXPECT_EQ(engine.file().rows.size(), engine_.rows.size());
  EXPECT_GT(engine_.rows.size(), 0u);
  for (const EngineRow& row : engine_.rows) EXPECT_FALSE(row.kernel.empty()) << row.name;
  SessionOptions options;
  options.pool = &pool_;
  Session session(lower_for_cpu(open_network()).graph, options);
  for (const std::int64_t batch : {1, 2, 5, 8}) {
    const Tensor x = ramp({batch, 6});
    EXPECT_TRUE(equal_bytes(engine.run({x})[0], session.run({x})[0])) << batch;
  }
  for (const Dims& dims : {Dims{9, 6}, Dims{0, 6}, Dims{2, 5}, Dims{6}}) {
    try {
      engine.run({ramp(dims)});
      ADD_FAILURE() << to_string(dims);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(error.what()).find("image"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(engine.run({}), Error);
}

TEST_F(CpuEngineTest, BuiltTwiceIsTheSameGraph) {
  const Graph open = open_sizes(open_network(), 1, {}, one_to_eight());
  EngineFile again = build_cpu_engine(open, one_to_eight(), {ramp({2, 6})}, true, pool_);
  EXPECT_EQ(to_text(*again.graph), to_text(*engine_.graph));
}

TEST_F(CpuEngineTest, ContextsGiveTheBitsOfOne) {
  Engine engine = ready(engine_);
  std::vector<std::unique_ptr<EngineRunner>> owned;
  std::vector<EngineRunner*> all = {&engine.main()};
  for (int i = 1; i < 4; ++i) {
    owned.push_back(engine.main().context(1));
    all.push_back(owned.back().get());
  }
  const ContextTimes times = bench_contexts(all, {ramp({2, 6})}, 5);
  EXPECT_TRUE(times.same_bits);
  EXPECT_GT(times.all_per_second, 0);
}

TEST_F(CpuEngineTest, MemoryIsPredicted) {
  Engine engine = ready(engine_);
  engine.run({ramp({8, 6})});
  const CpuMemory m = predict_cpu_memory(engine_, sizes_at(one_to_eight(), ProfilePoint::kMax));
  EXPECT_EQ(m.io, 8 * 6 * 4 + 8 * 2048 * 4);
  EXPECT_EQ(m.weights, engine.main().memory().weights);
  EXPECT_GE(m.weights, 6 * 2048 * 4);
  EXPECT_EQ(engine.main().memory().io, m.io);
}

// Two engines beside each other keep one copy of a weight; without it there is a clear error.
TEST_F(CpuEngineTest, WeightsApartAreSharedAndMissed) {
  engine_.weights_apart = true;
  write_engine(path("a"), engine_);
  engine_.profile[0].max = 16;
  write_engine(path("b"), engine_);
  const std::string folder = path(kWeightsFolder);
  const std::vector<std::string> files = list_directory(folder);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_LT(MappedFile(path("a")).bytes().size(), 6u * 2048 * 4);
  Engine engine = ready(read_engine(path("b")));
  EXPECT_EQ(engine.run({ramp({16, 6})})[0].dims(), Dims({16, 2048}));
  const std::string file = join_path(folder, files[0]);
  const std::string good(reinterpret_cast<const char*>(MappedFile(file).bytes().data()),
                         MappedFile(file).bytes().size());
  const auto refused = [&](const char* word) {
    try {
      read_engine(path("a"));
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  std::string other = good;
  other[5] = static_cast<char>(other[5] ^ 1);
  write_file_atomically(file, other);
  refused("not those");
  write_file_atomically(file, good.substr(1));
  refused("not those");
  remove_tree(folder);
  refused("missing");
}

TEST(Profile, Text) {
  const ProfileDim d = parse_profile("image.0=1x8x32");
  EXPECT_EQ(d.name, "image.0");
  EXPECT_EQ(d.min, 1);
  EXPECT_EQ(d.opt, 8);
  EXPECT_EQ(d.max, 32);
  for (const char* bad : {"", "batch", "=1x2x3", "batch=1x2", "batch=1x2x3x4", "batch=0x1x2", "batch=2x1x3",
                          "batch=1x3x2", "batch=1xx3", "batch=axbxc", "batch=1x2x9999999999"})
    EXPECT_THROW(parse_profile(bad), Error) << bad;
}

TEST(Profile, OpenSizes) {
  Graph g = open_network();
  g.value(g.inputs[0]).shape.dims[0].symbol.clear();  // a size without a name goes by input and axis
  const Graph open = open_sizes(g, 1, {}, {{"image.0", 1, 2, 4}});
  EXPECT_EQ(to_string(open.value(open.outputs[0]).shape), "[image.0,2048]");
  EXPECT_EQ(shapes_at(open, {{"image.0", 3}})[0].second, Dims({3, 6}));
  const Graph fixed = open_sizes(open_network(), 5, {}, {});
  EXPECT_EQ(fixed.value(fixed.outputs[0]).shape.sizes(), Dims({5, 2048}));
  try {
    open_sizes(open_network(), 1, {}, {{"batsch", 1, 2, 3}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.hint()).find("batch"), std::string::npos);
  }
}

}  // namespace
}  // namespace pare
