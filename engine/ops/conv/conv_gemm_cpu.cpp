// Convolution as a matrix product: [N*OH*OW, kH*kW*C/group] x [kH*kW*C/group, M/group] for each group. The
// left matrix is never whole in memory: a block of its rows is gathered into cache and multiplied at once.
// A 1x1 kernel of stride 1 needs no gathering.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/conv/conv_gather.h"
#include "engine/ops/conv/conv_winograd.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/thread_slots.h"

namespace pare {
namespace {

struct Prepared {
  ConvGeometry geometry;
  Activation act;
  std::int64_t packed_floats = 0;  // of one group
  Tensor packed;
};

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

std::string why_not(const OpCall& call) {
  ConvGeometry geometry;
  return packed_conv_why_not(call, geometry);
}

// Winograd's weights are four times as large. For a few tiles, fetching them costs more than the products
// they save. The choice depends on the batch, so results do: not for calibration and evaluation.
std::string few_tiles_why_not(const OpCall& call) {
  WinogradPlan plan;
  if (std::string why = winograd_why_not(call, plan); !why.empty())
    return "only where winograd is the alternative: " + why;
  constexpr std::int64_t kFloatsWorthATile = 384 * 1024;  // 1.5 MB of weights
  const std::int64_t weights = kWinogradPoints * plan.geometry.c * plan.geometry.m;
  return weights > kFloatsWorthATile * plan.tiles() ? "" : "enough tiles for winograd's weights";
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  ConvGeometry& g = p->geometry;
  const std::string why = resolve_conv(call, g, p->act);
  PARE_ASSERT(why.empty());
  const std::int64_t k = g.window(), columns = g.group_m();
  p->packed_floats = round_up(packed_b_floats(k, columns), 16);
  if (call.prepared != nullptr) {
    p->packed = static_cast<const Prepared*>(call.prepared)->packed;
    return p;
  }
  p->packed = Tensor::allocate(DType::kF32, {g.group * p->packed_floats});
  // [m][c][kh][kw] -> [m][kh][kw][c], the order of gathered windows.
  std::vector<float> moved(static_cast<std::size_t>(columns * k));
  for (std::int64_t group = 0; group < g.group; ++group) {
    const float* from = call.in[1].as<float>() + group * columns * k;
    for (std::int64_t m = 0; m < columns; ++m)
      for (std::int64_t c = 0; c < g.group_c(); ++c)
        for (std::int64_t tap = 0; tap < g.kh * g.kw; ++tap)
          moved[static_cast<std::size_t>(m * k + tap * g.group_c() + c)] = *from++;
    pack_b(moved.data(), 1, k, k, columns, p->packed.mut<float>() + group * p->packed_floats);
  }
  return p;
}

GemmTask group_task(const OpCall& call, const Prepared& p, std::int64_t group) {
  const ConvGeometry& g = p.geometry;
  GemmTask task;
  task.b = p.packed.as<float>() + group * p.packed_floats;
  task.k = g.window();
  task.n = g.group_m();
  task.c = call.out[0].mut<float>() + group * g.group_m();
  task.ldc = task.ldr = g.m;
  if (call.has(2)) task.bias = call.in[2].as<float>() + group * g.group_m();
  if (call.has(3)) task.residual = call.in[3].as<float>() + group * g.group_m();
  task.act = p.act;
  return task;
}

void run(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const ConvGeometry& g = p.geometry;
  const float* x = call.in[0].as<float>();
  const std::int64_t rows = g.rows(), k = g.window();
  if (rows == 0 || g.m == 0) return;
  ThreadPool& pool = *call.pool;

  if (g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.oh == g.h && g.ow == g.w && g.top == 0 &&
      g.left == 0) {
    for (std::int64_t group = 0; group < g.group; ++group) {
      GemmTask task = group_task(call, p, group);
      task.a = x + group * g.group_c();
      task.lda = g.c;
      task.m = rows;
      gemm_f32(pool, task);
    }
    return;
  }

  // Rows of a block: some hundred kilobytes of windows, in whole tiles of any class.
  constexpr std::int64_t kBlockFloats = 96 * 1024;
  const std::int64_t per_block =
      std::clamp<std::int64_t>(kBlockFloats / std::max<std::int64_t>(k, 1) / 12 * 12, 12, 192);
  const std::int64_t blocks =
      std::max(std::min<std::int64_t>(pool.threads(), (rows + 11) / 12), (rows + per_block - 1) / per_block);
  const std::int64_t block_rows = (rows + blocks - 1) / blocks;
  const std::int64_t panels = gemm_panels(g.group_m());
  // Few blocks: the columns are shared out too, and windows gathered once for each share.
  const std::int64_t wanted = pool.threads() == 1 ? 1 : 2 * static_cast<std::int64_t>(pool.threads());
  const std::int64_t shares = std::clamp<std::int64_t>(wanted / (blocks * g.group), 1, panels);
  const std::int64_t floats = round_up(block_rows * k + kGatherSlack, 16);
  float* scratch = call.scratch->take<float>(floats * pool.threads());
  const auto multiply = PARE_SIMD_PICK(gemm_f32_task);
  const auto gather = PARE_SIMD_PICK(gather_windows);
  ThreadSlots slots(pool);
  pool.parallel_for(blocks * g.group * shares, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadSlots::Slot slot(slots);
    float* windows = scratch + slot.index() * floats;
    std::int64_t gathered = -1;  // block * groups + group
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t share = unit % shares, group = unit / shares % g.group;
      const std::int64_t block = unit / (shares * g.group);
      const std::int64_t first = rows * block / blocks, last = rows * (block + 1) / blocks;
      GemmTask task = group_task(call, p, group);
      if (gathered != unit / shares) gather(g, x, group, first, last, windows);
      gathered = unit / shares;
      task.a = windows;
      task.lda = k;
      task.m = last - first;
      task.c += first * task.ldc;
      if (task.residual != nullptr) task.residual += first * task.ldr;
      task.panel_begin = panels * share / shares;
      task.panel_end = panels * (share + 1) / shares;
      multiply(task);
    }
  });
}

}  // namespace

Kernel conv_gemm_kernel() {
  Kernel kernel;
  kernel.domain = "pare";
  kernel.op = "Conv";
  kernel.name = "pare.Conv/cpu:gemm";
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.share = PreparedShare::kConstants;
  kernel.run = run;
  kernel.in_place = 1u << 3;  // the residual: each of its elements is read just before its sum is written
  return kernel;
}

Kernel conv_few_tiles_kernel() {
  Kernel kernel = conv_gemm_kernel();
  kernel.name = "pare.Conv/cpu:gemm_few_tiles";
  kernel.why_not = few_tiles_why_not;
  kernel.invariant = false;
  return kernel;
}

}  // namespace pare
