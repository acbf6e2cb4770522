// Operators in small models that other tools got wrong, by the thread that reported them. Read from ONNX's
// text form, inferred, run; the values are those of the thread or of the specification.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/run/session.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {
namespace {

Tensor halves(const std::vector<float>& values) {
  Tensor t = Tensor::allocate(DType::kF16, {static_cast<std::int64_t>(values.size())});
  encode(DType::kF16, values.data(), t.mut<std::uint16_t>(), t.size());
  return t;
}
Tensor floats(Dims dims, const std::vector<float>& values) {
  return Tensor::from(DType::kF32, std::move(dims), values);
}

std::vector<Tensor> run(const Graph& source, const std::vector<Tensor>& in) {
  ThreadPool pool(1);
  SessionOptions options;
  options.pool = &pool;
  Session session(std::make_shared<const Graph>(source), options);
  return session.run(in);
}
std::vector<Tensor> run(int opset, const char* graph, const std::vector<Tensor>& in) {
  return run(text_graph(opset, graph), in);
}

std::vector<double> numbers(const Tensor& t) {
  Tensor wide = Tensor::allocate(DType::kF64, t.dims());
  convert(t.view(), {DType::kF64, t.dims(), wide.mut<double>()});
  return {wide.as<double>(), wide.as<double>() + wide.size()};
}
using Numbers = std::vector<double>;

constexpr const char* kHalfQuantizer =
    "g (float16[N] x, float16 s) => (int8[N] y) <int8 z = {0}> { y = QuantizeLinear(x, s, z) }";
Tensor half(float v) { return halves({v}).reshaped({}); }

TEST(Reported, HalfQuotientsRoundToEven) {  // onnxruntime#22741, #18576, #32452
  EXPECT_EQ(numbers(run(19, kHalfQuantizer,
                        {halves({.050018310546875F, -.050018310546875F}), half(.0999755859375F)})[0]),
            (Numbers{1, -1}));
  EXPECT_EQ(numbers(run(19, kHalfQuantizer,
                        {halves({2.11F, 2.5F, 2.6F, 5.3F, 5.5F, 5.9F, 61.3F, 62.5F, 80.9F}), half(1)})[0]),
            (Numbers{2, 2, 3, 5, 6, 6, 61, 62, 81}));
}

TEST(Reported, HalfAndFloatQuantizersAgreeOnEveryLength) {  // onnxruntime#22741: vector loops of 32
  std::vector<float> x;
  for (int i = 0; i < 37; ++i) x.push_back(0.5F * static_cast<float>(i) - 9.25F);
  const auto wide =
      run(19, "g (float[N] x) => (int8[N] y) <float s = {1}, int8 z = {0}> { y = QuantizeLinear(x, s, z) }",
          {floats({37}, x)});
  EXPECT_EQ(numbers(run(19, kHalfQuantizer, {halves(x), half(1)})[0]), numbers(wide[0]));
}

TEST(Reported, CodesSaturateAtBothEnds) {  // onnxruntime#3442
  EXPECT_EQ(
      numbers(run(
          13, "g (float[7] x) => (int8[7] y) <float s = {1}, int8 z = {0}> { y = QuantizeLinear(x, s, z) }",
          {floats({7}, {-129, -128, -127, -126, 126, 127, 128})})[0]),
      (Numbers{-128, -128, -127, -126, 126, 127, 127}));
}

TEST(Reported, OutputTypeBesideAZeroPointOfThatType) {  // onnxruntime#25526
  EXPECT_EQ(numbers(run(21,
                        "g (float[1] x) => (int8[1] y) <float s = {1}, int8 z = {3}> { y = QuantizeLinear "
                        "<output_dtype = 3> (x, s, z) }",
                        {floats({1}, {4})})[0]),
            (Numbers{7}));
}

TEST(Reported, E4M3RoundsToTheNearest) {  // onnx#7222, onnxruntime#16938
  const Tensor y = run(19, "g (float[1] x) => (float8e4m3fn[1] y) { y = Cast <to = 17> (x) }",
                       {floats({1}, {1.8131605F})})[0];
  EXPECT_EQ(y.as<std::uint8_t>()[0], 0x3F);
}

TEST(Reported, ClipWithoutOneBound) {  // onnxruntime#5586
  const Tensor x = floats({3}, {-1e30F, 0, 1e30F});
  EXPECT_EQ(numbers(run(11, "g (float[3] x, float b) => (float[3] y) { y = Clip(x, , b) }",
                        {x, floats({}, {1})})[0])[2],
            1);
  EXPECT_EQ(numbers(run(11, "g (float[3] x, float b) => (float[3] y) { y = Clip(x, b) }",
                        {x, floats({}, {1})})[0])[0],
            1);
  EXPECT_EQ(numbers(run(11, "g (float[3] x) => (float[3] y) { y = Clip(x) }", {x})[0])[0],
            static_cast<double>(-1e30F));
}

TEST(Reported, RangeTakesVectorsOfOne) {  // onnxruntime#26788
  const Tensor one = Tensor::ints({1}), five = Tensor::ints({5}), two = Tensor::ints({2});
  EXPECT_EQ(numbers(run(11, "g (int64[1] a, int64[1] b, int64[1] c) => (int64[N] y) { y = Range(a, b, c) }",
                        {one, five, two})[0]),
            (Numbers{1, 3}));
  try {
    run(11, "g (int64[N] a, int64[N] b, int64[N] c) => (int64[M] y) { y = Range(a, b, c) }",
        {Tensor::ints({1, 2}), Tensor::ints({3, 4}), Tensor::ints({1, 1})});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE((std::string(error.what()) + error.where()).find("Range"), std::string::npos) << error.what();
  }
}

TEST(Reported, BackwardSliceOfNothing) {  // onnx#7735
  const auto y =
      run(13,
          "g (float[M,4] x) => (float[K,4] y) <int64[1] s = {-1}, int64[1] e = {-9223372036854775807}, "
          "int64[1] a = {0}, int64[1] t = {-1}> { y = Slice(x, s, e, a, t) }",
          {floats({0, 4}, {})});
  EXPECT_EQ(y[0].dims(), (Dims{0, 4}));
}

TEST(Reported, IntegerProductsNeverSaturate) {  // onnxruntime#16105, #7524
  const Tensor a = Tensor::from<std::uint8_t>(DType::kU8, {1, 3}, {210, 198, 234});
  const Tensor b = Tensor::from<std::int8_t>(DType::kI8, {3, 1}, {-81, -80, 127});
  EXPECT_EQ(numbers(run(10, "g (uint8[1,3] a, int8[3,1] b) => (int32[1,1] y) { y = MatMulInteger(a, b) }",
                        {a, b})[0]),
            (Numbers{-3132}));
  const Tensor c =
      Tensor::from<std::uint8_t>(DType::kU8, {3, 3}, {238, 115, 94, 245, 111, 102, 158, 225, 48});
  const Tensor d = Tensor::from<std::int8_t>(DType::kI8, {3, 3}, {25, 36, 125, 42, -123, 76, -81, -86, 35});
  EXPECT_EQ(numbers(run(10,
                        "g (uint8[3,3] a, int8[3,3] b) => (int32[3,3] y) <uint8 p = {42}, int8 q = {-26}> { "
                        "y = MatMulInteger(a, b, p, q) }",
                        {c, d})[0]),
            (Numbers{12100, 1951, 40214, 11745, 2293, 41351, 18030, -10919, 36548}));
}

TEST(Reported, SizesThroughConcatsOfNothing) {  // onnx#6276
  const Graph graph = text_graph(13,
                                 "g (float[6] x) => (float[A,B,C] y) <int64[0] e = {}, int64[3] s = {1,2,3}> "
                                 "{ t = Concat <axis = 0> (e, s) y = Reshape(x, t) }");
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[1,2,3]");
}

TEST(Reported,
     SlicesKeepSymbols) {  // onnx#2619; one step of a sequence that may be empty: 1 where the file says so
  const char* const graph =
      "g (float[batch,seq,768] x) => (float[P,1,R] y) <int64[3] s = {0,0,0}, "
      "int64[3] e = {2147483647,1,2147483647}> { y = Slice(x, s, e) }";
  const Graph read = text_graph(13, graph);
  EXPECT_EQ(to_string(read.value(read.outputs[0]).shape), "[batch,1,768]");
  EXPECT_EQ(run(read, {Tensor::allocate(DType::kF32, {2, 5, 768})})[0].dims(), (Dims{2, 1, 768}));
}

TEST(Reported, ReshapeByAComputedBatchIsNoConflict) {  // onnx#7445
  const Graph graph = text_graph(
      13,
      R"(g (float[N,4] x) => (float[N,2,2] y) <int64[2] rest = {2,2}, int64 zero = {0}, int64[1] front = {0}> {
        s = Shape(x) n = Gather(s, zero) u = Unsqueeze(n, front) t = Concat <axis = 0> (u, rest) y = Reshape(x, t) })");
  EXPECT_EQ(to_string(graph.value(graph.outputs[0]).shape), "[N,2,2]");
  EXPECT_EQ(run(graph, {floats({0, 4}, {})})[0].dims(), (Dims{0, 2, 2}));
}

TEST(Reported, ConsecutiveSlices) {  // OnnxSlim#277: values, before any pass
  std::vector<float> x;
  for (int i = 0; i < 20; ++i) x.push_back(static_cast<float>(i));
  EXPECT_EQ(
      numbers(run(
          13,
          R"(g (float[20] x) => (float[4] y) <int64[1] a = {2}, int64[1] b = {10}, int64[1] c = {1}, int64[1] d = {5}> {
        t = Slice(x, a, b) y = Slice(t, c, d) })",
          {floats({20}, x)})[0]),
      (Numbers{3, 4, 5, 6}));
  EXPECT_EQ(
      numbers(run(
          13,
          R"(g (float[20] x) => (float[2] y) <int64[1] a = {2}, int64[1] b = {10}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] c = {1}, int64[1] d = {3}> {
        t = Slice(x, a, b, zero, two) y = Slice(t, c, d) })",
          {floats({20}, x)})[0]),
      (Numbers{4, 6}));
}

TEST(Reported, ShapeWithAnEnd) {  // OnnxSlim#38
  EXPECT_EQ(numbers(run(15, "g (float[1,3,224,224] x) => (int64[2] y) { y = Shape <start = 2, end = 4> (x) }",
                        {Tensor::allocate(DType::kF32, {1, 3, 224, 224})})[0]),
            (Numbers{224, 224}));
}

TEST(Reported, SqueezeTwiceFromTheBack) {  // onnx/optimizer#35
  EXPECT_EQ(run(11,
                "g (float[1,5000,1,1] x) => (float[1,5000] y) { a = Squeeze <axes = [-1]> (x) y = Squeeze "
                "<axes = [-1]> (a) }",
                {Tensor::allocate(DType::kF32, {1, 5000, 1, 1})})[0]
                .dims(),
            (Dims{1, 5000}));
}

TEST(Reported, AGapInAListOfOperandsIsABadFile) {  // found by mutating models
  try {
    text_graph(13, "g (float[2] x) => (float[4] y) { y = Concat <axis = 0> ( , x) }");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
  }
}

TEST(Reported, ScanOfOpset8RunsEverySampleAlone) {
  // Two samples of three steps: running sums, and their last one.
  const auto y = run(8, R"(g (float[2,1] state, float[2,3,1] x) => (float[2,1] last, float[2,3,1] sums) {
        last, sums = Scan <num_scan_inputs = 1, body = b (float[1] s, float[1] e) => (float[1] t, float[1] u) { t = Add(s, e) u = Identity(t) }> ( , state, x) })",
                     {floats({2, 1}, {0, 10}), floats({2, 3, 1}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(numbers(y[0]), (Numbers{6, 25}));
  EXPECT_EQ(numbers(y[1]), (Numbers{1, 3, 6, 14, 19, 25}));
}

}  // namespace
}  // namespace pare
