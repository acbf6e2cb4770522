#include <vector>

#include "engine/ops/integer/qmatmul.h"

namespace pare::qmatmul {
namespace {

std::int32_t code(const TensorView& t, std::int64_t i) {
  return t.dtype == DType::kI8 ? t.as<std::int8_t>()[i] : t.as<std::uint8_t>()[i];
}

void run(const OpCall& call) {
  const Geometry g = geometry(call);
  const QFinishPlan plan = plan_finish(call, g.n, 1);
  const QFinish finish = plan.finish_of(call, 0, g.n);
  const std::int32_t zx = q_type(call, kQX, kQXZero).zero, zw = q_type(call, kQW, kQWZero).zero;
  std::vector<std::int32_t> acc(static_cast<std::size_t>(plan.padded));
  for (std::size_t matrix = 0; matrix < g.x_matrix.size(); ++matrix) {
    const std::int64_t x0 = g.x_matrix[matrix] * g.rows * g.k, w0 = g.w_matrix[matrix] * g.k * g.n;
    for (std::int64_t r = 0; r < g.rows; ++r) {
      for (std::int64_t c = 0; c < g.n; ++c) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < g.k; ++k)
          sum += static_cast<std::int64_t>(code(call.in[kQX], x0 + r * g.k + k) - zx) *
                 (code(call.in[kQW], w0 + (g.trans_b ? c * g.k + k : k * g.n + c)) - zw);
        acc[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(sum);
      }
      simd_scalar::q_finish(finish, acc.data(), 0, static_cast<std::int64_t>(matrix) * g.rows + r, 1, 0, g.n);
    }
  }
}

}  // namespace

Kernel ref_kernel() {
  return {"pare", "QMatMul", Backend::kCpu, "pare.QMatMul/cpu:ref", why_not, nullptr, run};
}

}  // namespace pare::qmatmul
