// Work between DequantizeLinear and QuantizeLinear, on codes: the bytes of the graph run node by node.
#include "engine/build/lower/lower_codes.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "engine/build/lower/lower_cpu.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"
#include "tests/unit/build/add_op.h"

namespace pare {
namespace {

class Net {
 public:
  Graph graph;

  ValueId input(const char* name) {
    Value v;
    v.name = v.origin = name;
    v.dtype = DType::kF32;
    v.shape = Shape({Dim::named("batch"), Dim::of(5), Dim::of(6), Dim::of(7)});
    const ValueId id = graph.add_value(std::move(v));
    graph.inputs.push_back(id);
    return id;
  }
  ValueId op(const std::string& name, std::vector<ValueId> in, Attributes attrs = {}) {
    return add_op(graph, name, ++count_, std::move(in), std::move(attrs));
  }
  ValueId scalar(float value) { return graph.add_constant("scale", Tensor::scalar(value)); }
  ValueId quantize(ValueId x, float scale, DType type, int zero) {
    return op("QuantizeLinear", {x, scalar(scale), zero_point(type, zero)});
  }
  ValueId dequantize(ValueId x, float scale, DType type, int zero) {
    return op("DequantizeLinear", {x, scalar(scale), zero_point(type, zero)});
  }
  ValueId fake(ValueId x, float scale, DType type, int zero) {
    return dequantize(quantize(x, scale, type, zero), scale, type, zero);
  }

 private:
  ValueId zero_point(DType type, int zero) {
    const auto byte = static_cast<std::uint8_t>(zero);
    return graph.add_constant("zero", Tensor::copy_of(type, {}, &byte, 1));
  }
  int count_ = 0;
};

struct Case {
  const char* what;
  std::function<ValueId(Net&)> build;  // gives the output
  const char *ops, *why;               // of the lowered graph; of the one row
};

const Case kCases[] = {
    {"relu",
     [](Net& n) {
       return n.quantize(n.op("Relu", {n.fake(n.input("x"), 0.03f, DType::kI8, 0)}), 0.02f, DType::kI8, 0);
     },
     "QuantizeLinear QLookup", ""},
    {"two_functions",
     [](Net& n) {
       const ValueId x = n.fake(n.input("x"), 0.03f, DType::kU8, 120);
       return n.quantize(n.op("Sigmoid", {n.op("HardSwish", {x})}), 1.0f / 255, DType::kU8, 0);
     },
     "QuantizeLinear QLookup", ""},
    {"sum_relu",
     [](Net& n) {
       const ValueId x = n.input("x"), a = n.fake(x, 0.03f, DType::kI8, 0),
                     b = n.fake(x, 0.011f, DType::kU8, 77);
       return n.quantize(n.op("Relu", {n.op("Add", {a, b})}), 0.05f, DType::kU8, 3);
     },
     "QuantizeLinear QuantizeLinear QAdd", ""},
    {"read_twice",
     [](Net& n) {
       const ValueId y = n.op("Relu", {n.fake(n.input("x"), 0.03f, DType::kI8, 0)});
       return n.op("Add", {n.fake(y, 0.02f, DType::kI8, 0), y});
     },
     nullptr, "no integer kernel for this Relu"},
    {"average",
     [](Net& n) {
       const ValueId x = n.fake(n.input("x"), 0.03f, DType::kI8, 0);
       return n.quantize(n.op("GlobalAveragePool", {x}), 0.02f, DType::kI8, 0);
     },
     nullptr, "no integer kernel for this GlobalAveragePool"},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class LowerCodes : public testing::TestWithParam<Case> {};

TEST_P(LowerCodes, GivesTheBytesOfTheGraph) {
  Net net;
  net.graph.outputs.push_back(GetParam().build(net));
  infer_shapes(net.graph);
  LowerOptions options;
  options.integer = true;
  const Lowered lowered = lower_for_cpu(net.graph, options);
  ASSERT_GE(lowered.realized.size(), 1u);
  EXPECT_EQ(lowered.realized[0].why, GetParam().why);
  std::string ops;
  for (const NodeId id : lowered.graph->nodes()) ops += (ops.empty() ? "" : " ") + lowered.graph->node(id).op;
  if (GetParam().ops != nullptr) {
    EXPECT_EQ(ops, GetParam().ops);
  }

  Tensor x = Tensor::allocate(DType::kF32, {3, 5, 6, 7});
  std::mt19937 rng(4);
  std::normal_distribution<float> draw(0, 2);
  for (std::int64_t i = 0; i < x.size(); ++i) x.mut<float>()[i] = draw(rng);
  ThreadPool pool(2);
  Session plain(std::make_shared<Graph>(net.graph), {&pool}), codes(lowered.graph, {&pool});
  EXPECT_TRUE(equal_bytes(plain.run({x})[0], codes.run({x})[0]));
}

INSTANTIATE_TEST_SUITE_P(Cases, LowerCodes, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.what); });

TEST(LowerCodesKept, AWatchedValueStays) {
  Net net;
  const ValueId y = net.op("Relu", {net.fake(net.input("x"), 0.03f, DType::kI8, 0)});
  net.graph.outputs.push_back(net.quantize(y, 0.02f, DType::kI8, 0));
  infer_shapes(net.graph);
  lowering::Kept kept;
  kept.flags.assign(net.graph.value_count(), false);
  kept.flags[static_cast<std::size_t>(y)] = true;
  std::vector<Realized> rows;
  lowering::lower_codes(net.graph, kept, rows);
  ASSERT_NE(net.graph.producer(y), NodeId::kNone);
  EXPECT_EQ(net.graph.node(net.graph.producer(y)).op, "Relu");
}

}  // namespace
}  // namespace pare
