// Files that are odd but mean something are read; files that mean nothing are refused, naming what, where and
// what to do.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/onnx/proto.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

using Edit = std::function<void(onnx::ModelProto&)>;

const char* const kChain = R"(<ir_version: 8, opset_import: ["": 17]>
  g (float[2,3] x) => (float[2,3] y) <float[3] b = {1,2,3}> { [add] a = Add(x, b) [relu] r = Relu(a) [softmax] y = Softmax <axis = -1> (r) })";

onnx::ModelProto edited(const char* text, const Edit& edit) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(text_model_bytes(text)));
  edit(model);
  return model;
}

std::vector<float> run(const Graph& graph, std::vector<Tensor> in) {
  static ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::make_shared<const Graph>(graph), options);
  const Tensor out = session.run(std::move(in)).at(0);
  EXPECT_EQ(out.dtype(), DType::kF32);
  return {out.as<float>(), out.as<float>() + out.size()};
}

Tensor floats(Dims dims, const std::vector<float>& values) {
  return Tensor::from(DType::kF32, std::move(dims), values);
}

// --- refused

struct Bad {
  const char* name;
  const char* text;
  Edit edit;
  const char* what;
  const char* where;
  ErrorCode code = ErrorCode::kBadFile;
};

void PrintTo(const Bad& b, std::ostream* out) { *out << b.name; }

void nothing(onnx::ModelProto&) {}

onnx::NodeProto& node(onnx::ModelProto& m, int i) { return *m.mutable_graph()->mutable_node(i); }

const Bad kBad[] = {
    {"cycle_of_two", kChain, [](auto& m) { node(m, 0).set_input(1, "r"); },
     "nodes form a cycle: 'relu' (Relu) -> 'add' (Add) -> 'relu' (Relu)", "test model"},
    {"cycle_of_one", kChain, [](auto& m) { node(m, 1).set_input(0, "r"); },
     "nodes form a cycle: 'relu' (Relu) -> 'relu' (Relu)", "test model"},
    {"two_nodes_make_one_value", kChain, [](auto& m) { node(m, 1).set_output(0, "a"); },
     "the name 'a' is given to two values", "node 'relu' (Relu)"},
    {"a_node_makes_a_weight", kChain, [](auto& m) { node(m, 1).set_output(0, "b"); },
     "the name 'b' is given to two values", "node 'relu' (Relu)"},
    {"two_weights_of_one_name", kChain,
     [](auto& m) { *m.mutable_graph()->add_initializer() = m.graph().initializer(0); },
     "the name 'b' is given to two values", "test model"},
    {"missing_weight", kChain, [](auto& m) { m.mutable_graph()->clear_initializer(); },
     "input 'b' is made by no node, and is no initializer and no graph input", "node 'add' (Add)"},
    {"missing_output", kChain, [](auto& m) { m.mutable_graph()->mutable_output(0)->set_name("z"); },
     "graph output 'z' is computed by no node", "test model"},
    {"weight_without_a_name", kChain,
     [](auto& m) { m.mutable_graph()->mutable_initializer(0)->clear_name(); }, "an initializer has no name",
     "test model"},
    {"input_without_a_name", kChain, [](auto& m) { m.mutable_graph()->mutable_input(0)->clear_name(); },
     "a graph input has no name", "test model"},
    {"attribute_of_the_wrong_type", kChain,
     [](auto& m) {
       auto& a = *node(m, 2).mutable_attribute(0);
       a.Clear();
       a.set_name("axis");
       a.set_type(onnx::AttributeProto::STRING);
       a.set_s("last");
     },
     "axis", "node 'softmax' (Softmax)"},
    {"attribute_nobody_knows", kChain,
     [](auto& m) {
       auto& a = *node(m, 1).add_attribute();
       a.set_name("alpha");
       a.set_type(onnx::AttributeProto::FLOAT);
     },
     "alpha", "node 'relu' (Relu)"},
    {"shapes_that_do_not_broadcast", kChain,
     [](auto& m) {
       auto& b = *m.mutable_graph()->mutable_initializer(0);
       b.set_dims(0, 2);
       b.mutable_float_data()->RemoveLast();
     },
     "do not", "node 'add' (Add)"},
    {"capture_of_nothing", R"(<ir_version: 8, opset_import: ["": 17]>
       g (bool c, float[2] x) => (float[2] y) { [choose] y = If (c) <
         then_branch = t () => (float[2] a) { [inner] a = Relu(nowhere) },
         else_branch = e () => (float[2] b) { b = Relu(x) }> })",
     nothing,
     "input 'nowhere' is made by no node, and is no initializer and no graph input, here or in an enclosing "
     "graph",
     "node 'inner' (Relu)"},
    {"an_input_of_2_to_the_60_elements", R"(<ir_version: 8, opset_import: ["": 17]>
       g (float[1152921504606846976] x) => (float[1152921504606846976] y) { y = Relu(x) })",
     nothing, "value 'x' is declared [1152921504606846976], too large", "test model"},
    {"a_weight_of_2_to_the_60_elements", kChain,
     [](auto& m) { m.mutable_graph()->mutable_initializer(0)->set_dims(0, INT64_C(1) << 60); },
     "reading tensor 'b'", "test model"},
    {"more_elements_than_numbers", kChain,
     [](auto& m) {
       auto& b = *m.mutable_graph()->mutable_initializer(0);
       b.set_dims(0, INT64_C(1) << 40);
       b.add_dims(INT64_C(1) << 40);
     },
     "reading tensor 'b'", "test model"},
    {"no_opset", kChain, [](auto& m) { m.clear_opset_import(); }, "imports no opset", "test model"},
    {"no_graph", kChain, [](auto& m) { m.clear_graph(); }, "holds no ONNX graph", "test model"},
    {"opset_of_the_future", kChain, [](auto& m) { m.mutable_opset_import(0)->set_version(99); },
     "opset 99 of ai.onnx is not read; 1 to 27 are", "test model", ErrorCode::kUnsupported},
    {"unknown_operator", kChain, [](auto& m) { node(m, 1).set_op_type("Rleu"); },
     "operator 'Rleu' (domain 'ai.onnx', opset 17) is not known", "node 'relu' (Rleu)",
     ErrorCode::kUnsupported},
    {"weight_in_a_segment", kChain,
     [](auto& m) { m.mutable_graph()->mutable_initializer(0)->mutable_segment()->set_begin(1); }, "segment",
     "test model", ErrorCode::kUnsupported},
    {"a_type_that_is_none", kChain,
     [](auto& m) { m.mutable_graph()->mutable_initializer(0)->set_data_type(99); },
     "99 is not an element type of ONNX", "test model"},
};

class Refusals : public testing::TestWithParam<Bad> {};

TEST_P(Refusals, SayWhatWhereAndWhatToDo) {
  const Bad& b = GetParam();
  const std::string bytes = edited(b.text, b.edit).SerializeAsString();
  try {
    read_bytes(bytes);
    ADD_FAILURE() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), b.code) << error.what();
    EXPECT_NE(std::string(error.what()).find(b.what), std::string::npos) << error.what();
    EXPECT_NE(error.where().find(b.where), std::string::npos) << error.where() << " | " << error.what();
    EXPECT_FALSE(error.hint().empty()) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Refusals, testing::ValuesIn(kBad),
                         [](const auto& p) { return std::string(p.param.name); });

// --- read

TEST(OddFiles, NodesInAnyOrder) {
  const onnx::ModelProto model =
      edited(kChain, [](auto& m) { m.mutable_graph()->mutable_node()->SwapElements(0, 2); });
  EXPECT_EQ(hex(graph_hash(read_bytes(model.SerializeAsString()))), hex(graph_hash(text_model(kChain))));
}

TEST(OddFiles, NodesOfBranchesInAnyOrder) {
  const Graph graph = read_bytes(edited(R"(<ir_version: 8, opset_import: ["": 17]>
      g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = Add(h, n) n = Neg(x) }, else_branch = e () => (float[2] b) { b = Relu(h) }>
        h = Abs(x) })",
                                        nothing)
                                     .SerializeAsString());
  EXPECT_EQ(run(graph, {Tensor::from(DType::kBool, {}, std::vector<std::uint8_t>{1}), floats({2}, {-3, 5})}),
            (std::vector<float>{6, 0}));
}

TEST(OddFiles, DeclaredShapesThatAreStale) {
  const onnx::ModelProto model = edited(kChain, [](auto& m) {
    auto& info = *m.mutable_graph()->add_value_info();
    info = m.graph().output(0);
    info.set_name("a");
    info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_value(7);
  });
  const Graph graph = read_bytes(model.SerializeAsString());
  EXPECT_EQ(to_string(graph.value(graph.find_value("a")).shape), "[2,3]");
}

TEST(OddFiles, IrVersions3To13) {
  for (int ir = 3; ir <= 14; ++ir) {
    const onnx::ModelProto model = edited(kChain, [&](auto& m) {
      m.set_ir_version(ir);
      auto& input = *m.mutable_graph()->add_input();  // IR 3 wants a weight to be an input too
      input.set_name("b");
      input.mutable_type()->mutable_tensor_type()->set_elem_type(1);
      input.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(3);
    });
    std::vector<std::string> warnings;
    const std::string bytes = model.SerializeAsString();
    ReadOptions options;
    options.warnings = &warnings;
    const Graph graph = read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "m", options);
    EXPECT_EQ(graph.inputs.size(), 1u) << "a weight with a default is no input";
    EXPECT_EQ(hex(graph_hash(graph)), hex(graph_hash(text_model(kChain)))) << ir;
    EXPECT_EQ(warnings.size(), ir > 13 ? 1u : 0u);
  }
}

TEST(OddFiles, TrainingInformationIsLeftOutWithAWarning) {
  const std::string bytes = edited(kChain, [](auto& m) {
                              m.add_training_info()->mutable_algorithm()->set_name("t");
                            }).SerializeAsString();
  std::vector<std::string> warnings;
  ReadOptions options;
  options.warnings = &warnings;
  const Graph graph = read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "m", options);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("training_info"), std::string::npos);
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(onnx_bytes(graph)));
  EXPECT_EQ(written.training_info_size(), 0);
}

TEST(OddFiles, UnusedWeightsAreNotWritten) {
  const std::string bytes = edited(kChain, [](auto& m) {
                              auto& extra = *m.mutable_graph()->add_initializer();
                              extra = m.graph().initializer(0);
                              extra.set_name("spare");
                            }).SerializeAsString();
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(onnx_bytes(read_bytes(bytes))));
  EXPECT_EQ(written.graph().initializer_size(), 1);
}

TEST(OddFiles, SizesOfZero) {
  const Graph graph = text_graph(
      17, R"(g (float[0,3] x, float[2,3] z) => (float[2,3] y) { c = Concat <axis = 0> (x, z) y = Relu(c) })");
  EXPECT_EQ(run(graph, {floats({0, 3}, {}), floats({2, 3}, {1, -1, 2, -2, 3, -3})}),
            (std::vector<float>{1, 0, 2, 0, 3, 0}));
  EXPECT_EQ(hex(graph_hash(read_bytes(onnx_bytes(graph)))), hex(graph_hash(graph)));
}

// The size is known at once; nothing is allocated until somebody runs it, and then it is an error.
TEST(OddFiles, AComputedTensorOf2ToThe50Elements) {
  Graph graph = text_graph(17,
                           "g (float[1] x) => (float[P] y) <int64[1] s = {1125899906842624}> { c = "
                           "ConstantOfShape(s) y = Add(c, x) }");
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
  EXPECT_GE(graph.node_count(), 2u) << "not folded";
  try {
    run(graph, {floats({1}, {1})});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kDevice || error.code() == ErrorCode::kUnsupported ||
                error.code() == ErrorCode::kBadFile)
        << error.what();
  }
}

// --- sparse tensors

void set_sparse(onnx::SparseTensorProto& sparse, const std::vector<float>& values,
                const std::vector<std::int64_t>& indices, std::vector<std::int64_t> index_dims,
                std::vector<std::int64_t> dims) {
  auto& v = *sparse.mutable_values();
  v.set_name("b");
  v.set_data_type(1);
  v.add_dims(static_cast<std::int64_t>(values.size()));
  for (const float x : values) v.add_float_data(x);
  auto& i = *sparse.mutable_indices();
  i.set_data_type(7);
  for (const std::int64_t d : index_dims) i.add_dims(d);
  for (const std::int64_t x : indices) i.add_int64_data(x);
  for (const std::int64_t d : dims) sparse.add_dims(d);
}

std::string with_sparse(const std::vector<float>& values, const std::vector<std::int64_t>& indices,
                        const std::vector<std::int64_t>& index_dims, const std::vector<std::int64_t>& dims) {
  return edited(kChain,
                [&](auto& m) {
                  m.mutable_graph()->clear_initializer();
                  set_sparse(*m.mutable_graph()->add_sparse_initializer(), values, indices, index_dims, dims);
                })
      .SerializeAsString();
}

TEST(SparseTensors, AreFilledUp) {
  const auto values_of = [](const std::string& bytes) {
    const Graph graph = read_bytes(bytes);
    const Tensor& b = graph.value(graph.find_value("b")).constant;
    return std::vector<float>(b.as<float>(), b.as<float>() + b.size());
  };
  EXPECT_EQ(values_of(with_sparse({5, 7}, {0, 2}, {2}, {3})), (std::vector<float>{5, 0, 7}));
  EXPECT_EQ(values_of(with_sparse({5, 7}, {0, 1, 1, 2}, {2, 2}, {2, 3})),
            (std::vector<float>{0, 5, 0, 0, 0, 7}));
  EXPECT_EQ(values_of(with_sparse({}, {}, {0}, {3})), (std::vector<float>{0, 0, 0}));
}

TEST(SparseTensors, AsConstantNodes) {
  const std::string bytes = edited(kChain, [](auto& m) {
                              m.mutable_graph()->clear_initializer();
                              auto& constant = *m.mutable_graph()->add_node();
                              constant.set_op_type("Constant");
                              constant.add_output("b");
                              auto& a = *constant.add_attribute();
                              a.set_name("sparse_value");
                              a.set_type(onnx::AttributeProto::SPARSE_TENSOR);
                              set_sparse(*a.mutable_sparse_tensor(), {4}, {1}, {1}, {3});
                            }).SerializeAsString();
  const Graph graph = read_bytes(bytes);
  const Tensor& b = graph.value(graph.find_value("b")).constant;
  EXPECT_EQ((std::vector<float>(b.as<float>(), b.as<float>() + 3)), (std::vector<float>{0, 4, 0}));
}

TEST(SparseTensors, ThatContradictThemselvesAreRefused) {
  struct Row {
    std::string bytes;
    const char* word;
    ErrorCode code;
  };
  const Row rows[] = {
      {with_sparse({5, 7}, {0, 3}, {2}, {3}), "index 3 is outside", ErrorCode::kBadFile},
      {with_sparse({5, 7}, {0, -1}, {2}, {3}), "index -1 is outside", ErrorCode::kBadFile},
      {with_sparse({5, 7}, {2, 0}, {2}, {3}), "not ascending", ErrorCode::kBadFile},
      {with_sparse({5, 7}, {1, 1}, {2}, {3}), "not ascending, or one stands twice", ErrorCode::kBadFile},
      {with_sparse({5, 7}, {0, 1, 2}, {3}, {3}), "its indices are int64 [3]", ErrorCode::kBadFile},
      {with_sparse({5, 7}, {0, 0, 0, 9}, {2, 2}, {2, 3}), "index 9 of axis 1 is outside",
       ErrorCode::kBadFile},
      {with_sparse({5}, {7}, {1}, {INT64_C(1) << 40}),
       "has 4398046511104 bytes when dense; at most 2147483648 are made", ErrorCode::kUnsupported},
      {with_sparse({5}, {7}, {1}, {INT64_C(1) << 40, INT64_C(1) << 40}), "reading sparse tensor 'b'",
       ErrorCode::kBadFile},
  };
  for (const Row& row : rows) {
    try {
      read_bytes(row.bytes);
      ADD_FAILURE() << row.word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), row.code) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.word), std::string::npos) << error.what();
      EXPECT_FALSE(error.hint().empty()) << error.what();
    }
  }
}

// --- model-local functions

TEST(LocalFunctions, NestedWithAttributesOtherDomainsAndEqualNames) {
  // Inner names (h, y) are also names of the caller; `scale` passes through two levels; `twist` is called
  // twice.
  const Graph graph = text_model(R"(<ir_version: 10, opset_import: ["": 17, "mine": 1, "yours": 2]>
    g (float[3] x) => (float[3] y) {
      h = mine.twist <scale = 2.0> (x)
      y = mine.twist <scale = 3.0> (h)
    }
    <domain: "mine", opset_import: ["": 17, "yours": 2]>
    twist <scale> (x) => (y) {
      h = yours.stretch <by: float = @scale> (x)
      y = Neg(h)
    }
    <domain: "yours", opset_import: ["": 17]>
    stretch <by> (h) => (y) {
      c = Constant <value_float: float = @by> ()
      y = Mul(h, c)
    })");
  EXPECT_EQ(run(graph, {floats({3}, {1, -2, 0.5})}), (std::vector<float>{6, -12, 3}));
  for (const NodeId id : graph.nodes()) EXPECT_TRUE(graph.node(id).domain.empty());
}

TEST(LocalFunctions, WithASubgraphAndADefault) {
  const Graph graph = text_model(R"(<ir_version: 10, opset_import: ["": 17, "mine": 1]>
    g (bool c, float[2] x) => (float[2] y) { y = mine.pick (c, x) }
    <domain: "mine", opset_import: ["": 17]>
    pick <by: float = 4.0> (c, x) => (y) {
      k = Constant <value_float: float = @by> ()
      y = If (c) <then_branch = t () => (a) { a = Mul(x, k) }, else_branch = e () => (b) { b = Neg(x) }>
    })");
  const auto flag = [](bool on) { return Tensor::from(DType::kBool, {}, std::vector<std::uint8_t>{on}); };
  EXPECT_EQ(run(graph, {flag(true), floats({2}, {1, 2})}), (std::vector<float>{4, 8}));
  EXPECT_EQ(run(graph, {flag(false), floats({2}, {1, 2})}), (std::vector<float>{-1, -2}));
}

TEST(LocalFunctions, OfAnotherOpset) {
  // ReduceSum takes its axes as an attribute at 11 and as an input at 17.
  const Graph graph = text_model(R"(<ir_version: 10, opset_import: ["": 17, "mine": 1]>
    g (float[2,2] x) => (float[P,Q] y) { y = mine.rows (x) }
    <domain: "mine", opset_import: ["": 11]>
    rows (x) => (y) { y = ReduceSum <axes = [1]> (x) })");
  EXPECT_EQ(run(graph, {floats({2, 2}, {1, 2, 3, 4})}), (std::vector<float>{3, 7}));
}

// --- operators of others

TEST(CustomOperators, SurviveSimplifyUnchanged) {
  const char* const text = R"(<ir_version: 8, opset_import: ["": 17, "acme": 3]>
    g (float[2,3] x) => (float[2,3] y) <float[2,3] w = {1,2,3,4,5,6}, float[1] one = {1}> {
      i = Identity(x)
      m = Mul(w, one)
      [special] s, t = acme.Special <k = 3, mode = "fast", f = [1.5, 2.5]> (i, , m)
      y = Relu(s)
    })";
  Graph graph = text_model(text);
  const SimplifyReport report = simplify(graph);
  EXPECT_FALSE(report.check.done);
  EXPECT_NE(report.check.why_not.find("Special"), std::string::npos) << report.check.why_not;
  EXPECT_EQ(report.nodes_after, 2);
  onnx::ModelProto before, after;
  ASSERT_TRUE(before.ParseFromString(text_model_bytes(text)));
  ASSERT_TRUE(after.ParseFromString(onnx_bytes(graph)));
  ASSERT_EQ(after.opset_import_size(), 2);
  EXPECT_EQ(after.opset_import(1).domain(), "acme");
  EXPECT_EQ(after.opset_import(1).version(), 3);
  const auto& old_node = before.graph().node(2);
  const auto& new_node = after.graph().node(0);
  EXPECT_EQ(new_node.op_type(), "Special");
  EXPECT_EQ(new_node.domain(), "acme");
  EXPECT_EQ(new_node.name(), "special");
  ASSERT_EQ(new_node.input_size(), 3);
  EXPECT_EQ(new_node.input(0), "x");
  EXPECT_EQ(new_node.input(1), "");
  std::map<std::string, std::string> a, b;
  for (const auto& attribute : old_node.attribute()) a[attribute.name()] = attribute.SerializeAsString();
  for (const auto& attribute : new_node.attribute()) b[attribute.name()] = attribute.SerializeAsString();
  EXPECT_EQ(a, b);
}

TEST(CustomOperators, CannotBeRunAndSaySo) {
  const Graph graph = text_model(R"(<ir_version: 8, opset_import: ["": 17, "acme": 3]>
    g (float[2] x) => (float[2] y) { [special] y = acme.Special(x) })");
  try {
    run(graph, {floats({2}, {1, 2})});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    EXPECT_NE((error.where() + error.what()).find("Special"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pare
