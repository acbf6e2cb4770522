// Files that are damaged or lie: always Error kBadFile (or kUnsupported), with something to do about it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <span>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/passes/passes.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

const char* const kSmall = R"(<ir_version: 8, opset_import: ["": 17]>
  g (float[N,3,H,W] x) => (float[N,C] y)
  <float[2,3,1,1] w = {1,2,3,4,5,6}, float[2] b = {1,-1}, int64[2] shape = {0,-1}> {
    c = Conv <kernel_shape = [1,1]> (x, w, b)
    r = Relu(c)
    y = Reshape(r, shape)
  })";

// The model with its weight grown so that the payload leaves the message (wire_scan.h).
std::string with_large_weight() {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(text_model_bytes(kSmall)));
  auto* w = model.mutable_graph()->mutable_initializer(0);
  w->Clear();
  w->set_name("w");
  w->set_data_type(1);
  for (const int d : {200, 3, 1, 1}) w->add_dims(d);
  w->set_raw_data(std::string(200 * 3 * 4, '\0'));
  auto* b = model.mutable_graph()->mutable_initializer(1);
  b->Clear();
  b->set_name("b");
  b->set_data_type(1);
  b->add_dims(200);
  b->set_raw_data(std::string(200 * 4, '\0'));
  return model.SerializeAsString();
}

// The error of reading the bytes; fails the test when they are taken.
Error error_of(const std::string& bytes) {
  try {
    read_bytes(bytes);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "was read";
  return Error(ErrorCode::kInternal, "was read");
}

void expect_bad(const Error& error, const std::string& word) {
  EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
  EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  EXPECT_FALSE(error.where().empty()) << error.what();
  EXPECT_FALSE(error.hint().empty()) << error.what();
}

TEST(HostileOnnx, EveryTruncationIsRefused) {
  for (const std::string& whole : {text_model_bytes(kSmall), with_large_weight()}) {
    read_bytes(whole);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      const Error error = error_of(whole.substr(0, n));
      ASSERT_EQ(error.code(), ErrorCode::kBadFile) << n << ": " << error.what();
      ASSERT_FALSE(error.hint().empty()) << n;
    }
  }
}

TEST(HostileOnnx, EveryBitFlipIsReadOrRefused) {
  const std::string whole = text_model_bytes(kSmall);
  for (std::size_t i = 0; i < whole.size() * 8; ++i) {
    std::string flipped = whole;
    flipped[i / 8] = static_cast<char>(static_cast<unsigned char>(flipped[i / 8]) ^ (1u << (i % 8)));
    try {
      read_bytes(flipped);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported)
          << "bit " << i << ": " << error.what();
    }
  }
}

TEST(HostileOnnx, RandomBytesAreRefused) {
  std::mt19937 random(5);
  for (int size : {1, 2, 7, 64, 1000, 100000})
    for (int round = 0; round < 20; ++round) {
      std::string bytes(static_cast<std::size_t>(size), '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      const Error error = error_of(bytes);
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
    }
}

TEST(HostileOnnx, EmptyFile) { expect_bad(error_of(""), "empty"); }

TEST(HostileOnnx, ClaimOfTenGigabytes) {
  // Field 7 (graph), length 10 GB as a varint.
  expect_bad(error_of(std::string("\x08\x08\x3A\x80\x90\xDF\xC0\x4A", 8)), "claims 20000000000 bytes");
}

TEST(HostileOnnx, TensorThatClaimsMoreThanItHas) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(text_model_bytes(kSmall)));
  auto* w = model.mutable_graph()->mutable_initializer(0);
  w->clear_float_data();
  w->set_raw_data(std::string(24, '\0'));
  w->set_dims(0, 2'500'000'000);
  expect_bad(error_of(model.SerializeAsString()), "needs 30000000000 bytes, its data has 24");
  w->set_dims(0, INT64_MAX);
  w->set_dims(1, INT64_MAX);
  EXPECT_EQ(error_of(model.SerializeAsString()).code(), ErrorCode::kBadFile);
  w->set_dims(0, -2);
  w->set_dims(1, 3);
  EXPECT_EQ(error_of(model.SerializeAsString()).code(), ErrorCode::kBadFile);
}

TEST(HostileOnnx, ForgedPayloadNumberIsIgnored) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(with_large_weight()));
  model.mutable_graph()->mutable_initializer(2)->set_doc_string("0");  // `shape`, small and inline
  EXPECT_NO_THROW(read_bytes(model.SerializeAsString()));
}

// Any number but 0 is true, wherever it stands: other bytes than 0 and 1 would be undefined as a bool.
TEST(HostileOnnx, BooleansBecomeZeroOrOne) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(text_model_bytes(
      R"(<ir_version: 8, opset_import: ["": 17]> g (bool[3] x) => (bool[3] y) <bool[3] w = {1,0,1}> { y = And(x, w) })")));
  auto* w = model.mutable_graph()->mutable_initializer(0);
  const auto flags = [&] {
    const Graph graph = read_bytes(model.SerializeAsString());
    return graph.value(graph.find_value("w")).constant.to_ints();
  };
  w->set_int32_data(0, 256);
  w->set_int32_data(2, -64);
  EXPECT_EQ(flags(), (std::vector<std::int64_t>{1, 0, 1}));
  w->clear_int32_data();
  w->set_raw_data(std::string("\xC0\x00\x02", 3));
  EXPECT_EQ(flags(), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(HostileOnnx, DeepSubgraphs) {
  std::string inner;  // a GraphProto
  for (int depth = 0; depth < 500; ++depth) {
    onnx::GraphProto graph;
    graph.set_name("g");
    auto* attribute = graph.add_node()->add_attribute();
    attribute->set_name("then_branch");
    attribute->set_type(onnx::AttributeProto::GRAPH);
    std::string bytes = graph.SerializeAsString();
    if (depth > 0) {
      auto parsed = std::make_unique<onnx::GraphProto>();
      if (!parsed->ParseFromString(inner)) break;  // protobuf's own limit is reached
      *attribute->mutable_g() = *parsed;
      bytes = graph.SerializeAsString();
    }
    inner = bytes;
  }
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  std::string bytes = model.SerializeAsString();
  // graph = 7, by hand, so that nothing has to parse it here.
  bytes += '\x3A';
  for (std::size_t size = inner.size();; size >>= 7) {
    bytes += static_cast<char>((size & 0x7F) | (size >= 0x80 ? 0x80 : 0));
    if (size < 0x80) break;
  }
  expect_bad(error_of(bytes + inner), "");
}

TEST(HostileOnnx, RecursiveFunctions) {
  const std::string text = R"(<ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[3] x) => (float[3] y) { y = own.f(x) }
    <domain: "own", opset_import: ["": 17, "own": 1]> f (a) => (b) { b = own.h(a) }
    <domain: "own", opset_import: ["": 17, "own": 1]> h (a) => (b) { b = own.f(a) })";
  expect_bad(error_of(text_model_bytes(text)), "unction");
}

TEST(HostileOnnx, FunctionsThatDoubleEachTime) {
  std::string text =
      R"(<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[3] x) => (float[3] y) { y = own.f0(x) })";
  for (int i = 0; i < 40; ++i)
    text += fmt::format(
        R"( <domain: "own", opset_import: ["": 17, "own": 1]> f{} (a) => (b) {{ c = own.f{}(a) b = own.f{}(c) }})",
        i, i + 1, i + 1);
  text += R"( <domain: "own", opset_import: ["": 17]> f40 (a) => (b) { b = Relu(a) })";
  expect_bad(error_of(text_model_bytes(text)), "functions inlined");
}

TEST(OnnxErrors, UnknownOperatorIsNamed) {
  const Error error =
      error_of(text_model_bytes(R"(<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
        { a = Relu(x) [bad] y = Wobble(a) })"));
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(std::string(error.what()).find("'Wobble' (domain 'ai.onnx'"), std::string::npos) << error.what();
  EXPECT_NE(error.where().find("node 'bad' (Wobble)"), std::string::npos) << error.where();
  EXPECT_NE(error.hint().find("ONNX has no such operator"), std::string::npos) << error.hint();
}

TEST(OnnxErrors, CheckerNamesTheNode) {
  const Error error = error_of(text_model_bytes(
      R"(<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { [odd] y = Relu <colour = 3> (x) })"));
  expect_bad(error, "colour");
  EXPECT_NE(error.where().find("node 'odd' (Relu)"), std::string::npos) << error.where();
}

TEST(OnnxErrors, OrderAndNames) {
  expect_bad(
      error_of(text_model_bytes(
          R"(<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Relu(z) })")),
      "'z' is made by no node");
  expect_bad(
      error_of(text_model_bytes(
          R"(<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Relu(x) y = Abs(x) })")),
      "'y' is given to two values");
  expect_bad(
      error_of(text_model_bytes(
          R"(<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] z) { y = Relu(x) })")),
      "output 'z' is computed by no node");
}

TEST(OnnxErrors, OpsetsOutOfRange) {
  for (const int opset : {0, 28, 99}) {
    const Error error = error_of(text_model_bytes(fmt::format(
        "<ir_version: 8, opset_import: [\"\": {}]> g (float[3] x) => (float[3] y) {{ y = Relu(x) }}",
        opset)));
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
}

// --- external data

class ExternalData : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = make_temporary_directory();
    make_directories(folder_ + "/model/sub");
    write("model/weights.bin", std::string(64, '\x3f'));
    write("secret.bin", std::string(64, '\x3f'));
  }
  void TearDown() override { remove_tree(folder_); }

  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }

  // Reads a model whose weight of 6 floats lies at `location`.
  Graph read(const std::string& location, const std::string& offset = "", const std::string& length = "") {
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(text_model_bytes(kSmall)));
    auto* w = model.mutable_graph()->mutable_initializer(0);
    w->clear_float_data();
    w->clear_raw_data();
    w->set_data_location(onnx::TensorProto::EXTERNAL);
    const auto entry = [&](const char* key, const std::string& value) {
      if (value.empty()) return;
      auto* e = w->add_external_data();
      e->set_key(key);
      e->set_value(value);
    };
    entry("location", location);
    entry("offset", offset);
    entry("length", length);
    entry("checksum", "not looked at");
    write("model/m.onnx", model.SerializeAsString());
    return load_model(folder_ + "/model/m.onnx");
  }

  void expect_refused(const std::string& location, const std::string& word, const std::string& offset = "",
                      const std::string& length = "") {
    try {
      read(location, offset, length);
      ADD_FAILURE() << location << " was read";
    } catch (const Error& error) {
      expect_bad(error, word);
    }
  }

  std::string folder_;
};

TEST_F(ExternalData, IsMapped) {
  const Graph graph = read("weights.bin", "8", "24");
  const Tensor& w = graph.value(graph.find_value("w")).constant;
  EXPECT_EQ(w.dims(), (Dims{2, 3, 1, 1}));
  EXPECT_EQ(w.as<std::uint8_t>()[23], 0x3f);
  EXPECT_NO_THROW(read("./weights.bin"));
}

TEST_F(ExternalData, StaysInsideTheFolder) {
  expect_refused("../secret.bin", "'..' leads out");
  expect_refused("sub/../../secret.bin", "'..' leads out");
  expect_refused(folder_ + "/secret.bin", "absolute");
  expect_refused("", "is refused");
  expect_refused("sub", "not a plain file");
  expect_refused("nothing.bin", "missing");
  ASSERT_EQ(symlink("../secret.bin", (folder_ + "/model/link.bin").c_str()), 0);
  expect_refused("link.bin", "not a plain file");
  ASSERT_EQ(symlink("..", (folder_ + "/model/up").c_str()), 0);
  expect_refused("up/secret.bin", "not a plain file");
  ASSERT_EQ(link((folder_ + "/secret.bin").c_str(), (folder_ + "/model/hard.bin").c_str()), 0);
  expect_refused("hard.bin", "hard link");
  ASSERT_EQ(mkfifo((folder_ + "/model/pipe").c_str(), 0600), 0);
  expect_refused("pipe", "not a plain file");
}

TEST_F(ExternalData, OffsetsAndLengthsAreChecked) {
  expect_refused("weights.bin", "begins at 65", "65");
  expect_refused("weights.bin", "needs 24 bytes from 60", "60");
  expect_refused("weights.bin", "has 64", "0", "65");
  expect_refused("weights.bin", "from 0", "0", "8");
  expect_refused("weights.bin", "not a number", "-1");
  expect_refused("weights.bin", "begins at", "18446744073709551615");
  expect_refused("weights.bin", "not a number", "99999999999999999999999");
}

TEST(LoadModel, SaysWhatItCannotOpen) {
  const std::string folder = make_temporary_directory();
  std::ofstream(folder + "/m.engine") << "PARE and more";
  try {
    load_model(folder + "/m.engine");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
  for (const char* name : {"/nothing.onnx", ""}) {
    try {
      load_model(folder + name);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
    }
  }
  remove_tree(folder);
}

// Nodes that nobody reads from, that read nothing, or that leave everything out, known and unknown operators:
// what verify() takes, every pass takes.
TEST(Hostile, EveryPassTakesNodesWithoutInputsOrOutputs) {
  Graph graph;
  Value value;
  value.name = "x";
  value.dtype = DType::kF32;
  value.shape = Shape(Dims{2, 3});
  const ValueId x = graph.add_value(value);
  graph.inputs = {x};
  int taken = 0;
  const auto add = [&](std::string_view domain, std::string_view op, std::vector<ValueId> in,
                       std::size_t outputs, bool named) {
    Graph before = graph;
    Node node;
    node.domain = domain;
    node.op = op;
    node.in = std::move(in);
    for (std::size_t i = 0; i < outputs; ++i) {
      value.name = "v" + std::to_string(taken) + "_" + std::to_string(i);
      value.dtype = DType::kUndefined;
      value.shape = Shape();
      node.out.push_back(named ? graph.add_value(value) : ValueId::kNone);
    }
    try {
      graph.add_node(std::move(node));
      verify(graph);
      ++taken;
    } catch (const Error&) {
      graph = std::move(before);
    }
  };
  add("made.up", "Nothing", {}, 0, false);
  add("made.up", "Sink", {x}, 0, false);
  add("made.up", "LeftOut", {ValueId::kNone}, 1, false);
  add("made.up", "Source", {}, 1, true);
  for (const OpSchema* schema : all_schemas()) {
    const auto least = static_cast<std::size_t>(schema->min_in);
    const auto outputs = static_cast<std::size_t>(std::max(schema->min_out, 1));
    for (const ValueId id : {x, ValueId::kNone})
      for (const bool named : {false, true})
        add(schema->domain, schema->op, std::vector<ValueId>(least, id), outputs, named);
  }
  EXPECT_GT(taken, 100);
  graph.outputs = {x};
  for (const Pass* pass : all_passes()) {
    Graph changed = graph;
    const Pass* const alone[] = {pass};
    RunPassesOptions options;
    options.context.growth_left = 1 << 20;
    try {
      run_passes(changed, alone, options);
    } catch (const Error& error) {  // a shape that a node cannot have, said by the rule
      EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported)
          << pass->name << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace pare
