// MatMul, Gemm and pare.MatMul: every kernel against the definition in double, and the same bits for every
// batch, number of threads and instruction class.
#include <gtest/gtest.h>

#include "engine/ops/matmul/matmul.h"
#include "tests/unit/ops/kernel_run.h"

namespace pare {
namespace {

using testing::Argument;
using testing::random_floats;
using testing::run_kernel;

struct Case {
  const char* what;
  const char* domain;
  const char* op;
  Dims a, b, out;
  bool constant_b = true;
  Dims bias = {}, residual = {};  // for Gemm, bias is c
  bool has_bias = false;
  Attributes attrs = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

const Case kCases[] = {
    {"square", "", "MatMul", {64, 64}, {64, 64}, {64, 64}},
    {"ragged", "", "MatMul", {13, 37}, {37, 51}, {13, 51}},
    {"one row", "", "MatMul", {1, 100}, {100, 33}, {1, 33}},
    {"one column", "", "MatMul", {29, 70}, {70, 1}, {29, 1}},
    {"one value", "", "MatMul", {1, 1}, {1, 1}, {1, 1}},
    {"vectors", "", "MatMul", {9}, {9}, {}},
    {"vector times matrix", "", "MatMul", {9}, {9, 5}, {5}},
    {"matrix times vector", "", "MatMul", {5, 9}, {9}, {5}, false},
    {"no inner dimension", "", "MatMul", {3, 0}, {0, 4}, {3, 4}},
    {"no rows", "", "MatMul", {0, 4}, {4, 4}, {0, 4}},
    {"batch of one weight", "", "MatMul", {7, 50, 48}, {48, 72}, {7, 50, 72}},
    {"attention", "", "MatMul", {2, 3, 50, 32}, {2, 3, 32, 50}, {2, 3, 50, 50}, false},
    {"broadcast a", "", "MatMul", {1, 5, 8}, {6, 8, 4}, {6, 5, 4}, false},
    {"broadcast both", "", "MatMul", {2, 1, 3, 8}, {5, 8, 4}, {2, 5, 3, 4}, false},
    {"batch of constants", "", "MatMul", {4, 5, 8}, {4, 8, 34}, {4, 5, 34}, true},
    {"many rows", "", "MatMul", {500, 20}, {20, 40}, {500, 40}},
    {"gemm", "", "Gemm", {64, 480}, {10, 480}, {64, 10}, true, {10}, {}, true, {{"transB", std::int64_t{1}}}},
    {"gemm alpha beta",
     "",
     "Gemm",
     {7, 30},
     {30, 20},
     {7, 20},
     false,
     {7, 20},
     {},
     true,
     {{"alpha", 0.3f}, {"beta", -2.0f}}},
    {"gemm column c", "", "Gemm", {7, 30}, {30, 20}, {7, 20}, true, {7, 1}, {}, true, {}},
    {"gemm scalar c, transA",
     "",
     "Gemm",
     {30, 7},
     {30, 20},
     {7, 20},
     true,
     {},
     {},
     true,
     {{"transA", std::int64_t{1}}, {"beta", 0.5f}}},
    {"fused",
     "pare",
     "MatMul",
     {2, 25, 40},
     {40, 70},
     {2, 25, 70},
     true,
     {70},
     {2, 25, 70},
     true,
     {{"activation", std::string("Relu")}}},
    {"fused gelu",
     "pare",
     "MatMul",
     {2, 25, 40},
     {40, 70},
     {2, 25, 70},
     true,
     {70},
     {},
     true,
     {{"activation", std::string("Gelu")}}},
    {"fused hard swish",
     "pare",
     "MatMul",
     {3, 40},
     {40, 19},
     {3, 19},
     false,
     {19},
     {3, 19},
     true,
     {{"activation", std::string("HardSwish")}, {"alpha", 2.0f}}},
    {"fused sigmoid, transposed",
     "pare",
     "MatMul",
     {2, 6, 50, 32},
     {2, 6, 50, 32},
     {2, 6, 50, 50},
     false,
     {},
     {},
     false,
     {{"trans_b", std::int64_t{1}}, {"alpha", 0.17677669f}, {"activation", std::string("Sigmoid")}}},
};

Node node_of(const Case& c) {
  Node node;
  node.domain = c.domain;
  node.op = c.op;
  node.attrs = c.attrs;
  return node;
}

std::vector<Argument> arguments_of(const Case& c) {
  std::vector<Argument> in = {{random_floats(c.a, 1), false}, {random_floats(c.b, 2), c.constant_b}};
  if (c.has_bias || !c.residual.empty())
    in.push_back({c.has_bias ? random_floats(c.bias, 3) : Tensor(), c.has_bias && c.constant_b});
  if (!c.residual.empty()) in.push_back({random_floats(c.residual, 4), false});
  return in;
}

struct Expected {
  std::vector<double> y, bound;
};

// The definition, with a bound on the error of any kernel that sums in float32 in any order:
// |s' - s| <= K eps sum |a b|, and one rounding for alpha, bias, residual, each at most eps of the
// magnitude so far. Activations here have slopes of at most 1.5 and errors of at most 4 ulp.
Expected expect(const Case& c, const std::vector<Argument>& in) {
  OpCall call;
  const Node node = node_of(c);
  std::vector<TensorView> views, out = {{DType::kF32, c.out, nullptr}};
  for (const Argument& a : in) views.push_back(a.tensor.empty() ? TensorView{} : a.tensor.view());
  call.node = &node;
  call.in = views;
  call.out = out;
  MatMulShape s;
  EXPECT_EQ(resolve_matmul(call, s), "");
  Expected e;
  constexpr double kEps = 0x1p-24;
  for (std::size_t p = 0; p < s.a_index.size(); ++p) {
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n; ++n) {
        double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < s.k; ++k) {
          const double a = static_cast<double>(
              views[0].as<float>()[s.a_index[p] * s.m * s.k + (s.trans_a ? k * s.m + m : m * s.k + k)]);
          const double b = static_cast<double>(
              views[1].as<float>()[s.b_index[p] * s.k * s.n + k * s.b_stride_k + n * s.b_stride_n]);
          sum += a * b;
          magnitude += std::fabs(a * b);
        }
        sum *= static_cast<double>(s.alpha);
        magnitude *= std::fabs(static_cast<double>(s.alpha));
        const auto at = static_cast<std::int64_t>(p) * s.m * s.n + m * s.n + n;
        if (call.has(2)) {
          const Dims& d = views[2].dims;
          const std::int64_t columns = d.empty() ? 1 : d.back(), rows = d.size() < 2 ? 1 : d[0];
          const double v = static_cast<double>(s.beta) *
                           static_cast<double>(
                               views[2].as<float>()[(rows == 1 ? 0 : m * columns) + (columns == 1 ? 0 : n)]);
          sum += v;
          magnitude += std::fabs(v);
        }
        if (call.has(3)) {
          const double v = static_cast<double>(views[3].as<float>()[at]);
          sum += v;
          magnitude += std::fabs(v);
        }
        e.y.push_back(s.act(sum));
        e.bound.push_back(1.5 * static_cast<double>(s.k + 4) * kEps * magnitude +
                          8 * kEps * std::fmax(std::fabs(sum), std::fabs(e.y.back())));
      }
    }
  }
  return e;
}

class MatMulKernels : public ::testing::TestWithParam<Case> {};

TEST_P(MatMulKernels, AgreeWithTheDefinition) {
  const Case& c = GetParam();
  const std::vector<Argument> in = arguments_of(c);
  const Expected expected = expect(c, in);
  int ran = 0;
  for (const Kernel* kernel : cpu_registry().candidates(c.domain, c.op, Backend::kCpu)) {
    std::vector<float> first;
    for (const Isa isa_class : testing::isa_classes()) {
      const testing::WithIsa with(isa_class);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        std::vector<float> y;
        ASSERT_EQ(run_kernel(*kernel, node_of(c), in, c.out, pool, y), "") << kernel->name;
        ASSERT_EQ(y.size(), expected.y.size());
        for (std::size_t i = 0; i < y.size(); ++i)
          ASSERT_LE(std::fabs(static_cast<double>(y[i]) - expected.y[i]), expected.bound[i])
              << kernel->name << " " << name(isa_class) << " element " << i << " is " << y[i];
        if (first.empty()) first = y;
        EXPECT_TRUE(testing::same_bits(first, y)) << kernel->name << " " << name(isa_class) << " " << threads;
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, MatMulKernels, ::testing::ValuesIn(kCases));

// Rows of a large product equal the product of those rows alone.
TEST(MatMulInvariance, ARowDependsOnNoOther) {
  Node node;
  node.domain = "pare";
  node.op = "MatMul";
  node.attrs["activation"] = std::string("Gelu");
  const Kernel& kernel = *cpu_registry().candidates("pare", "MatMul", Backend::kCpu)[0];
  const Tensor a = random_floats({211, 90}, 5), b = random_floats({90, 77}, 6);
  ThreadPool pool(2);
  for (const Isa isa_class : testing::isa_classes()) {
    const testing::WithIsa with(isa_class);
    std::vector<float> whole, part;
    ASSERT_EQ(run_kernel(kernel, node, {{a, false}, {b, true}}, {211, 77}, pool, whole), "");
    for (const std::int64_t rows : {1, 2, 5, 7, 12, 13, 96, 100}) {
      const std::int64_t first = 211 - rows;
      const Tensor some = Tensor::copy_of(DType::kF32, {rows, 90}, a.as<float>() + first * 90,
                                          static_cast<std::size_t>(rows) * 90 * sizeof(float));
      ASSERT_EQ(run_kernel(kernel, node, {{some, false}, {b, true}}, {rows, 77}, pool, part), "");
      EXPECT_TRUE(testing::same_bits(part, {whole.begin() + first * 77, whole.end()})) << rows;
    }
  }
}

TEST(MatMulKernels, DeclineWhatTheyCannotDo) {
  Node node;
  node.domain = "pare";
  node.op = "MatMul";
  const Kernel& kernel = *cpu_registry().candidates("pare", "MatMul", Backend::kCpu)[0];
  ThreadPool pool(1);
  std::vector<float> y;
  EXPECT_NE(run_kernel(kernel, node, {{random_floats({2, 3}, 1), false}, {random_floats({4, 2}, 2), true}},
                       {2, 2}, pool, y),
            "");
  EXPECT_NE(run_kernel(kernel, node, {{random_floats({2, 3}, 1), false}, {Tensor::ints({1, 2, 3}), true}},
                       {2}, pool, y),
            "");
  node.attrs["activation"] = std::string("Softsign");
  EXPECT_NE(run_kernel(kernel, node, {{random_floats({2, 3}, 1), false}, {random_floats({3, 2}, 2), true}},
                       {2, 2}, pool, y),
            "");
}

}  // namespace
}  // namespace pare
