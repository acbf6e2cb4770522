#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/axis/reduce.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {

std::vector<bool> reduced_axes(const OpCall& call) {
  const std::size_t rank = call.in[0].dims.size();
  std::vector<std::int64_t> axes;
  if (call.has(1)) axes = ints_of(call.in[1]);
  if (axes.empty())
    return std::vector<bool>(rank, call.node->attr("noop_with_empty_axes", std::int64_t{0}) == 0);
  std::vector<bool> reduced(rank, false);
  for (const std::int64_t axis : axes)
    reduced.at(static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis)) = true;
  return reduced;
}

namespace {

bool reduction_kind(std::string_view op, RowReduction& kind) {
  if (op == "ReduceSum" || op == "ReduceMean") return kind = RowReduction::kSum, true;
  if (op == "ReduceL1") return kind = RowReduction::kSumAbs, true;
  if (op == "ReduceL2" || op == "ReduceSumSquare") return kind = RowReduction::kSumSquare, true;
  if (op == "ReduceMax") return kind = RowReduction::kMax, true;
  if (op == "ReduceMin") return kind = RowReduction::kMin, true;
  return false;
}

struct Block {
  std::int64_t outer = 1, n = 1, inner = 1;
};

// True when the reduced axes are neighbours (sizes of 1 aside).
bool one_block(const Dims& dims, const std::vector<bool>& reduced, Block& block) {
  int stage = 0;  // before, inside, behind
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (reduced[i]) {
      if (stage == 2) return false;
      stage = 1;
      block.n *= dims[i];
    } else {
      if (stage == 1) stage = 2;
      (stage == 0 ? block.outer : block.inner) *= dims[i];
    }
  }
  return true;
}

std::string why_not(const OpCall& call) {
  std::string reason = type_reason(call, 0, {DType::kF32});
  if (!reason.empty()) return reason;
  if (call.has(1) && call.in[1].data == nullptr) return "the axes are not known beforehand";
  const std::vector<bool> reduced = reduced_axes(call);
  if (std::none_of(reduced.begin(), reduced.end(), [](bool r) { return r; })) return "nothing is reduced";
  Block block;
  if (!one_block(call.in[0].dims, reduced, block)) return "the reduced axes are no neighbours";
  if (call.in[0].size() == 0) return "no elements";
  return {};
}

void run(const OpCall& call) {
  RowReduction kind = RowReduction::kSum;
  PARE_ASSERT(reduction_kind(call.node->op, kind));
  Block block;
  one_block(call.in[0].dims, reduced_axes(call), block);
  const float* x = call.in[0].as<float>();
  float* y = call.out[0].mut<float>();
  const bool mean = call.node->op == "ReduceMean", root = call.node->op == "ReduceL2";
  const auto finish = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (mean) y[i] /= static_cast<float>(block.n);
      if (root) y[i] = std::sqrt(y[i]);
    }
  };
  const auto row = PARE_SIMD_PICK(reduce_row);
  const auto columns = PARE_SIMD_PICK(reduce_columns);
  if (block.inner == 1) {
    const std::int64_t grain = grain_for(kElementGrain, block.n);
    return call.pool->parallel_for(block.outer, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o) y[o] = row(kind, x + o * block.n, block.n);
      finish(begin, end);
    });
  }
  if (block.outer == 1) {
    const std::int64_t grain = grain_for(kElementGrain, block.n, 16);
    return call.pool->parallel_for(block.inner, grain, [&](std::int64_t begin, std::int64_t end) {
      columns(kind, x, block.n, block.inner, begin, end, y);
      finish(begin, end);
    });
  }
  const std::int64_t grain = grain_for(kElementGrain, block.n * block.inner);
  call.pool->parallel_for(block.outer, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o)
      columns(kind, x + o * block.n * block.inner, block.n, block.inner, 0, block.inner, y + o * block.inner);
    finish(begin * block.inner, end * block.inner);
  });
}

}  // namespace

void add_reduce_kernels(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_not;
  kernel.run = run;
  for (const char* op :
       {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax", "ReduceMin"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "vector");
    registry.add(kernel);
  }
}

}  // namespace pare
