// Elementwise on all threads: vector code where unary_f32 has it, the formula elsewhere.
#include "engine/base/error.h"
#include "engine/ops/elementwise/elementwise_unary.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto params = std::make_shared<UnaryParams>();
  PARE_ASSERT(unary_params(*call.node, *params));
  return params;
}

std::string vector_why_not(const OpCall& call) {
  UnaryParams params;
  if (!unary_params(*call.node, params) || !has_unary_f32(params.op)) return "has no vector code";
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16});
}

std::string scalar_why_not(const OpCall& call) {
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
}

template <typename Row>
void in_chunks(const OpCall& call, Row row) {
  const TensorView &x = call.in[0], &y = call.out[0];
  call.pool->parallel_for(x.size(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype == DType::kF32) return row(x.as<float>() + begin, y.mut<float>() + begin, end - begin);
    float in[kFloatChunk], out[kFloatChunk];
    for (std::int64_t at = begin; at < end; at += kFloatChunk) {
      const std::int64_t n = std::min(kFloatChunk, end - at);
      row(read_floats(x, at, n, in), out, n);
      write_floats(y, at, n, out);
    }
  });
}

void run_vector(const OpCall& call) {
  const auto& params = *static_cast<const UnaryParams*>(call.prepared);
  const auto row = PARE_SIMD_PICK(unary_f32);
  in_chunks(call, [&](const float* x, float* y, std::int64_t n) { row(params, x, y, n); });
}

void run_scalar(const OpCall& call) {
  const auto& params = *static_cast<const UnaryParams*>(call.prepared);
  if (call.in[0].dtype == DType::kF64) {
    const double* x = call.in[0].as<double>();
    double* y = call.out[0].mut<double>();
    return call.pool->parallel_for(call.in[0].size(), kElementGrain / 8,
                                   [&](std::int64_t begin, std::int64_t end) {
                                     for (std::int64_t i = begin; i < end; ++i)
                                       y[i] = unary_value(params, x[i]);
                                   });
  }
  in_chunks(call, [&](const float* x, float* y, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
      y[i] = static_cast<float>(unary_value(params, static_cast<double>(x[i])));
  });
}

}  // namespace

void add_elementwise_unary_kernels(Registry& registry) {
  int count = 0;
  const UnaryName* const ops = unary_names(count);
  for (int i = 0; i < count; ++i) {
    Kernel kernel;
    kernel.op = ops[i].name;
    kernel.prepare = prepare;
    kernel.in_place = 1;
    if (has_unary_f32(ops[i].op)) {
      kernel.name = kernel_name(kernel.op, "vector");
      kernel.why_not = vector_why_not;
      kernel.run = run_vector;
      registry.add(kernel);
    }
    kernel.name = kernel_name(kernel.op, "scalar");
    kernel.why_not = scalar_why_not;
    kernel.run = run_scalar;
    registry.add(kernel);
  }
}

}  // namespace pare
