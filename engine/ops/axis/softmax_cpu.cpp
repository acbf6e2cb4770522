#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/axis/softmax.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

struct Line {
  std::int64_t outer = 1, n = 1, inner = 1;
};

// A scalar is a line of one.
Line line_of(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  if (dims.empty()) return {};
  const auto axis =
      static_cast<std::size_t>(axis_of(*call.node, "axis", -1, static_cast<std::int64_t>(dims.size())));
  return {product_of(dims, 0, axis), dims[axis], product_of(dims, axis + 1, dims.size())};
}

std::string vector_why_not(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16});
}

void run_vector(const OpCall& call) {
  const Line line = line_of(call);
  const TensorView &x = call.in[0], &y = call.out[0];
  const std::int64_t block = line.n * line.inner;
  if (line.outer * block == 0) return;
  const bool logarithm = call.node->op == "LogSoftmax";
  const auto rows = PARE_SIMD_PICK(softmax_rows);
  const auto columns = PARE_SIMD_PICK(softmax_columns);
  const std::int64_t grain = grain_for(kElementGrain / 4, block);
  if (x.dtype == DType::kF32 && line.outer == 1 && line.inner > 1) {
    const std::int64_t wide = grain_for(kElementGrain / 4, line.n, 16);
    return call.pool->parallel_for(line.inner, wide, [&](std::int64_t begin, std::int64_t end) {
      columns(x.as<float>(), y.mut<float>(), line.n, line.inner, begin, end, logarithm);
    });
  }
  call.pool->parallel_for(line.outer, grain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype == DType::kF32 && line.inner == 1)
      return rows(x.as<float>() + begin * block, y.mut<float>() + begin * block, end - begin, line.n,
                  logarithm);
    std::vector<float> in(static_cast<std::size_t>(block)), out(in.size());
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = read_floats(x, r * block, block, in.data());
      float* to = floats_to_write(y, r * block, out.data());
      if (line.inner == 1)
        rows(from, to, 1, line.n, logarithm);
      else
        columns(from, to, line.n, line.inner, 0, line.inner, logarithm);
      write_floats(y, r * block, block, to);
    }
  });
}

std::string why_not(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
}

template <typename T>
void one_line(const std::string& op, const T* x, T* y, std::int64_t n, std::int64_t step) {
  double largest = static_cast<double>(x[0]), sum = 0;
  std::int64_t first = 0;
  for (std::int64_t i = 1; i < n; ++i) {
    const auto value = static_cast<double>(x[i * step]);
    if (value > largest) first = i;
    largest = value > largest || value != value ? value : largest;
  }
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i * step]) - largest);
  for (std::int64_t i = 0; i < n; ++i) {
    const double shifted = static_cast<double>(x[i * step]) - largest;
    if (op == "Hardmax")
      y[i * step] = i == first ? T{1} : T{0};
    else
      y[i * step] = static_cast<T>(op == "Softmax" ? std::exp(shifted) / sum : shifted - std::log(sum));
  }
}

template <typename T>
void all_lines(const OpCall& call, const T* x, T* y) {
  const Line line = line_of(call);
  if (line.n == 0) return;
  for (std::int64_t o = 0; o < line.outer; ++o)
    for (std::int64_t i = 0; i < line.inner; ++i)
      one_line(call.node->op, x + o * line.n * line.inner + i, y + o * line.n * line.inner + i, line.n,
               line.inner);
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (x.dtype == DType::kF64) return all_lines(call, x.as<double>(), y.mut<double>());
  if (x.dtype == DType::kF32) return all_lines(call, x.as<float>(), y.mut<float>());
  std::vector<float> in, out(static_cast<std::size_t>(y.size()));
  all_lines(call, all_floats(x, in), out.data());
  write_floats(y, 0, y.size(), out.data());
}

}  // namespace

void add_softmax_kernels(Registry& registry) {
  Kernel kernel;
  kernel.in_place = 1;
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    kernel.op = op;
    if (kernel.op != "Hardmax") {
      kernel.name = kernel_name(op, "vector");
      kernel.why_not = vector_why_not;
      kernel.run = run_vector;
      registry.add(kernel);
    }
    kernel.name = kernel_name(op, "reference");
    kernel.why_not = why_not;
    kernel.run = run;
    registry.add(kernel);
  }
}

}  // namespace pare
