// MatMul, Gemm and pare.MatMul on gemm_f32. A constant b is packed once, in prepare.
#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/register_linear.h"
#include "engine/ops/registry.h"
#include "engine/ops/thread_slots.h"

namespace pare {
namespace {

struct Prepared {
  MatMulShape shape;
  std::int64_t packed_floats = 0;  // of one b matrix, a multiple of 16 so that each starts aligned
  Tensor packed;                   // all b matrices, when b is constant
  Tensor bias;                     // beta * c, when c is constant and a row
};

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

std::string why_not(const OpCall& call) {
  MatMulShape shape;
  return resolve_matmul(call, shape);
}

// [n], [1,n] or a single value for n == 1: added to every row alike.
bool is_row(const TensorView& c, std::int64_t n) {
  return c.size() == n && !c.dims.empty() && c.dims.back() == n;
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  MatMulShape& s = p->shape;
  const std::string why = resolve_matmul(call, s);
  PARE_ASSERT(why.empty());
  p->packed_floats = round_up(packed_b_floats(s.k, s.n), 16);
  const TensorView& b = call.in[1];
  if (call.prepared != nullptr && b.data != nullptr) {  // then n is the same
    const auto& other = *static_cast<const Prepared*>(call.prepared);
    p->packed = other.packed;
    p->bias = other.bias;
    return p;
  }
  if (b.data != nullptr && s.b_matrices > 0) {
    p->packed = Tensor::allocate(DType::kF32, {s.b_matrices * p->packed_floats});
    for (std::int64_t i = 0; i < s.b_matrices; ++i)
      pack_b(b.as<float>() + i * s.k * s.n, s.b_stride_k, s.b_stride_n, s.k, s.n,
             p->packed.mut<float>() + i * p->packed_floats);
  }
  const TensorView& c = call.input(2);
  if (c.present() && c.data != nullptr && is_row(c, s.n)) {
    p->bias = Tensor::allocate(DType::kF32, {s.n});
    for (std::int64_t i = 0; i < s.n; ++i) p->bias.mut<float>()[i] = s.beta * c.as<float>()[i];
  }
  return p;
}

// beta * c, broadcast to [m][n].
void expand_c(const TensorView& c, const MatMulShape& s, float* out) {
  const std::int64_t columns = c.dims.empty() ? 1 : c.dims.back();
  const std::int64_t rows = c.dims.size() < 2 ? 1 : c.dims[c.dims.size() - 2];
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j)
      out[i * s.n + j] = s.beta * c.as<float>()[(rows == 1 ? 0 : i * columns) + (columns == 1 ? 0 : j)];
}

// Which parts of scratch a call uses, in floats.
struct ScratchPlan {
  std::int64_t b = 0, a = 0, c = 0;
  std::int64_t total() const { return b + a + c; }
};

void run(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const MatMulShape& s = p.shape;
  const std::int64_t products = static_cast<std::int64_t>(s.a_index.size());
  if (call.out[0].size() == 0) return;
  ThreadPool& pool = *call.pool;
  const TensorView &a = call.in[0], &b = call.in[1], &c = call.input(2), &d = call.input(3);
  const bool gemm = call.node->op == "Gemm";

  const bool pack_now = p.packed.empty();
  const bool share_out = products >= pool.threads() && pool.threads() > 1;  // one product a thread
  const std::int64_t slots = share_out ? pool.threads() : 1;
  const bool c_is_row = c.present() && is_row(c, s.n);
  ScratchPlan plan;
  if (pack_now) plan.b = p.packed_floats * slots;
  if (s.trans_a) plan.a = round_up(s.m * s.k, 16);
  if (gemm && c.present() && p.bias.empty()) plan.c = s.m * s.n;
  float* scratch = plan.total() == 0 ? nullptr : call.scratch->take<float>(plan.total());

  GemmTask task;
  task.lda = s.k;
  task.m = s.m;
  task.k = s.k;
  task.n = s.n;
  task.ldc = task.ldr = s.n;
  task.alpha = s.alpha;
  task.act = s.act;
  const float* a_data = a.as<float>();
  if (s.trans_a) {
    float* t = scratch + plan.b;
    for (std::int64_t k = 0; k < s.k; ++k)
      for (std::int64_t m = 0; m < s.m; ++m) t[m * s.k + k] = a_data[k * s.m + m];
    a_data = t;
  }
  const float* residual = nullptr;
  if (!p.bias.empty()) {
    task.bias = p.bias.as<float>();
  } else if (c.present() && !gemm) {
    task.bias = c.as<float>();
    PARE_ASSERT(c_is_row);
  } else if (c.present()) {
    float* expanded = scratch + plan.b + plan.a;
    expand_c(c, s, expanded);
    residual = expanded;
  }
  if (d.present()) residual = d.as<float>();

  const auto product = [&](std::int64_t i, float* pack_space) {
    GemmTask one = task;
    const std::int64_t bi = s.b_index[static_cast<std::size_t>(i)];
    if (pack_now) pack_b(b.as<float>() + bi * s.k * s.n, s.b_stride_k, s.b_stride_n, s.k, s.n, pack_space);
    one.b = pack_now ? pack_space : p.packed.as<float>() + bi * p.packed_floats;
    one.a = a_data + s.a_index[static_cast<std::size_t>(i)] * s.m * s.k;
    one.c = call.out[0].mut<float>() + i * s.m * s.n;
    if (residual != nullptr) one.residual = residual + i * s.m * s.n;
    gemm_f32(pool, one);
  };
  if (!share_out) {
    for (std::int64_t i = 0; i < products; ++i) product(i, scratch);
    return;
  }
  ThreadSlots thread_slots(pool);
  pool.parallel_for(products, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadSlots::Slot slot(thread_slots);
    for (std::int64_t i = begin; i < end; ++i) product(i, scratch + slot.index() * p.packed_floats);
  });
}

}  // namespace

void register_matmul_cpu(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.share = PreparedShare::kConstants;
  kernel.run = run;
  kernel.op = "MatMul";
  kernel.name = "MatMul/cpu:packed";
  registry.add(kernel);
  kernel.op = "Gemm";
  kernel.name = "Gemm/cpu:packed";
  registry.add(kernel);
  kernel.domain = "pare";
  kernel.op = "MatMul";
  kernel.name = "pare.MatMul/cpu:packed";
  kernel.in_place = 1u << 3;  // the residual: each of its elements is read just before its sum is written
  registry.add(kernel);
}

}  // namespace pare
