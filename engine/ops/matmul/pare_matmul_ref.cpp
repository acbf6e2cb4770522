// pare.MatMul in double, straight from its definition (matmul.h).
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/register_linear.h"
#include "engine/ops/registry.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  MatMulShape shape;
  return resolve_matmul(call, shape);
}

void run(const OpCall& call) {
  MatMulShape s;
  resolve_matmul(call, s);
  const TensorView &bias = call.input(2), &residual = call.input(3);
  for (std::size_t i = 0; i < s.a_index.size(); ++i) {
    const float* a = call.in[0].as<float>() + s.a_index[i] * s.m * s.k;
    const float* b = call.in[1].as<float>() + s.b_index[i] * s.k * s.n;
    const std::int64_t first = static_cast<std::int64_t>(i) * s.m * s.n;
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += static_cast<double>(a[m * s.k + k]) *
                 static_cast<double>(b[k * s.b_stride_k + n * s.b_stride_n]);
        sum *= static_cast<double>(s.alpha);
        const std::int64_t at = first + m * s.n + n;
        if (bias.present()) sum += static_cast<double>(bias.as<float>()[n]);
        if (residual.present()) sum += static_cast<double>(residual.as<float>()[at]);
        call.out[0].mut<float>()[at] = static_cast<float>(s.act(sum));
      }
    }
  }
}

}  // namespace

void register_pare_matmul_ref(Registry& registry) {
  Kernel kernel;
  kernel.domain = "pare";
  kernel.op = "MatMul";
  kernel.name = "pare.MatMul/cpu:reference";
  kernel.why_not = why_not;
  kernel.run = run;
  kernel.in_place = 1u << 3;  // the residual
  registry.add(kernel);
}

}  // namespace pare
