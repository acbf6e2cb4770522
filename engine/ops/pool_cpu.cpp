// Global pools of float32 planes, a row each (rows_simd.h has the order of the sum).
#include <algorithm>

#include "engine/ops/pool.h"
#include "engine/ops/reduce.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  std::string reason = type_reason(call, 0, {DType::kF32});
  if (reason.empty() && call.in[0].dims.size() < 2) return "rank below 2";
  if (reason.empty() && call.in[0].size() == 0) return "no elements";
  return reason;
}

void run(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  const std::int64_t planes = dims[0] * dims[1], n = product_of(dims, 2, dims.size());
  const bool average = call.node->op == "GlobalAveragePool";
  const RowReduction kind = average ? RowReduction::kSum : RowReduction::kMax;
  const float divisor = average ? static_cast<float>(n) : 1.0F;
  const auto row = PARE_SIMD_PICK(reduce_row);
  const float* x = call.in[0].as<float>();
  float* y = call.out[0].mut<float>();
  call.pool->parallel_for(planes, std::max<std::int64_t>(1, kElementGrain / n),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t i = begin; i < end; ++i)
                              y[i] = row(kind, x + i * n, n) / divisor;
                          });
}

}  // namespace

void add_pool_kernels(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_not;
  kernel.run = run;
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "vector");
    registry.add(kernel);
  }
}

}  // namespace pare
