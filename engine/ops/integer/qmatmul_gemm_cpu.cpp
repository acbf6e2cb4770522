// Constant w is packed once; in attention, where w is an activation, each call packs each matrix.
#include <algorithm>

#include "engine/ops/integer/qgemm_rows.h"
#include "engine/ops/integer/qmatmul.h"

namespace pare::qmatmul {
namespace {

struct Plan {
  const QKernels* kernels;
  std::vector<QPacked> weights;  // by w_matrix; empty when w is no constant
  QFinishPlan finish;
};

class Rows final : public QRowSource {
 public:
  Rows(const std::uint8_t* x, std::int64_t k) : x_(x), k_(k) {}
  void gather(const QPacked& b, std::int64_t row, std::int64_t rows, std::uint8_t* a) const override {
    const std::int64_t stride = b.row_bytes();
    if (k_ * b.code_bytes() == stride) return b.copy(x_ + row * k_, rows * k_, a);
    for (std::int64_t r = 0; r < rows; ++r) b.copy(x_ + (row + r) * k_, k_, a + r * stride);
  }

 private:
  const std::uint8_t* x_;
  std::int64_t k_;
};

std::string gemm_why_not(const OpCall& call) {
  if (q_kernels() == nullptr) return "needs AVX2";
  return why_not(call);
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  const Geometry g = geometry(call);
  auto plan = std::make_shared<Plan>();
  plan->kernels = q_kernels();
  plan->finish = plan_finish(call, g.n, 1);
  const TensorView& w = call.input(kQW);
  if (w.data == nullptr || g.k * g.n == 0) return plan;
  if (call.prepared != nullptr) {
    plan->weights = static_cast<const Plan*>(call.prepared)->weights;  // they share their memory
    return plan;
  }
  const std::int64_t matrices = w.size() / (g.k * g.n);
  for (std::int64_t i = 0; i < matrices; ++i)
    plan->weights.push_back(qgemm_pack(plan->kernels, q_type(call, kQX, kQXZero), q_type(call, kQW, kQWZero),
                                       w.as<std::uint8_t>() + i * g.k * g.n, g.k, g.n, g.trans_b ? 1 : g.n,
                                       g.trans_b ? g.k : 1));
  return plan;
}

void run(const OpCall& call) {
  const auto& plan = *static_cast<const Plan*>(call.prepared);
  const Geometry g = geometry(call);
  const QFinish finish = plan.finish.finish_of(call, 0, g.n);
  const auto* x = call.input(kQX).as<std::uint8_t>();
  const auto* w = call.input(kQW).as<std::uint8_t>();
  const QType x_type = q_type(call, kQX, kQXZero), w_type = q_type(call, kQW, kQWZero);
  const auto batches = static_cast<std::int64_t>(g.x_matrix.size());

  const auto one = [&](std::int64_t i, ThreadPool* pool) {
    const auto at = static_cast<std::size_t>(i);
    QPacked packed;
    const QPacked* b = &packed;
    if (plan.weights.empty()) {
      thread_local Tensor memory;
      const std::int64_t bytes = qgemm_pack_bytes(g.k, g.n);
      if (memory.empty() || memory.bytes() < bytes) memory = Tensor::allocate(DType::kU8, {bytes});
      qgemm_pack_into(plan.kernels, x_type, w_type, w + g.w_matrix[at] * g.k * g.n, g.k, g.n,
                      g.trans_b ? 1 : g.n, g.trans_b ? g.k : 1, memory.mut<std::uint8_t>(), packed);
    } else {
      b = &plan.weights[static_cast<std::size_t>(g.w_matrix[at])];
    }
    QFinish own = finish;
    const auto advance = [&](const void* p, DType type) {
      return static_cast<const std::uint8_t*>(p) + i * g.rows * g.n * (type == DType::kF32 ? 4 : 1);
    };
    own.y = const_cast<std::uint8_t*>(advance(finish.y, finish.y_type));
    if (finish.residual != nullptr) own.residual = advance(finish.residual, finish.residual_type);
    qgemm_rows(*b, Rows(x + g.x_matrix[at] * g.rows * g.k, g.k), g.rows, own, pool);
  };
  if (batches < call.pool->threads()) {
    for (std::int64_t i = 0; i < batches; ++i) one(i, call.pool);
  } else {
    call.pool->parallel_for(batches, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) one(i, nullptr);
    });
  }
}

}  // namespace

Kernel gemm_kernel() {
  Kernel kernel{"pare", "QMatMul", Backend::kCpu, "pare.QMatMul/cpu:gemm", gemm_why_not, prepare, run};
  kernel.share = PreparedShare::kConstants;
  return kernel;
}

}  // namespace pare::qmatmul
