#include "engine/ops/conv/conv_winograd.h"

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "engine/ops/thread_slots.h"

namespace pare {
namespace {

struct Prepared {
  WinogradPlan plan;
  Tensor zeros;
  Tensor weights;                    // [panel][36][C][width of the panel]
  std::vector<std::int64_t> panels;  // where each panel's weights start
};

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

WinogradPlan make_plan(const ConvGeometry& g) {
  WinogradPlan plan;
  plan.geometry = g;
  plan.tiles_y = (g.oh + kWinogradTile - 1) / kWinogradTile;
  plan.tiles_x = (g.ow + kWinogradTile - 1) / kWinogradTile;
  return plan;
}

std::string why_not(const OpCall& call) {
  WinogradPlan plan;
  return winograd_why_not(call, plan);
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  ConvGeometry g;
  Activation act;
  const std::string why = resolve_conv(call, g, act);
  PARE_ASSERT(why.empty());
  p->plan = make_plan(g);
  p->plan.act = act;
  if (call.prepared != nullptr) {
    const auto& other = *static_cast<const Prepared*>(call.prepared);
    p->zeros = other.zeros;
    p->plan.zeros = p->zeros.as<float>();
    p->panels = other.panels;
    p->weights = other.weights;
    return p;
  }
  p->zeros = Tensor::allocate(DType::kF32, {g.c});
  std::fill_n(p->zeros.mut<float>(), g.c, 0.0f);
  p->plan.zeros = p->zeros.as<float>();

  const float* w = call.in[1].as<float>();
  const std::int64_t panel = gemm_panel(), panels = gemm_panels(g.m);
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < panels; ++i) {
    p->panels.push_back(total);
    total += kWinogradPoints * packed_b_floats(g.c, std::min(panel, g.m - i * panel));
  }
  p->weights = Tensor::allocate(DType::kF32, {total});
  std::vector<float> planes(static_cast<std::size_t>(kWinogradPoints * panel * g.c));  // [36][m][c]
  for (std::int64_t i = 0; i < panels; ++i) {
    const std::int64_t first = i * panel, width = std::min(panel, g.m - first);
    for (std::int64_t m = 0; m < width; ++m) {
      for (std::int64_t c = 0; c < g.c; ++c) {
        double values[kWinogradPoints];
        winograd_kernel_transform(w + ((first + m) * g.c + c) * 9, values);
        for (std::int64_t f = 0; f < kWinogradPoints; ++f)
          planes[static_cast<std::size_t>((f * width + m) * g.c + c)] = static_cast<float>(values[f]);
      }
    }
    float* to = p->weights.mut<float>() + p->panels[static_cast<std::size_t>(i)];
    for (std::int64_t f = 0; f < kWinogradPoints; ++f)
      pack_b(planes.data() + f * width * g.c, 1, g.c, g.c, width, to + f * packed_b_floats(g.c, width));
  }
  return p;
}

void run(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const WinogradPlan& plan = p.plan;
  const ConvGeometry& g = plan.geometry;
  const float* x = call.in[0].as<float>();
  const std::int64_t tiles = plan.tiles(), panel = gemm_panel();
  const auto panels = static_cast<std::int64_t>(p.panels.size());
  if (tiles == 0) return;
  ThreadPool& pool = *call.pool;
  const auto inputs = PARE_SIMD_PICK(winograd_inputs);
  const auto outputs = PARE_SIMD_PICK(winograd_outputs);

  // A block's transformed inputs and the products of one panel stay in the second-level cache.
  const std::int64_t threads = pool.threads();
  const std::int64_t per_block = std::clamp<std::int64_t>(4096 / (g.c + panel) / 12 * 12, 24, 48);
  // Few tiles: one block, and the threads share its panels, so that the weights are read once.
  const bool share_panels = tiles < 8 * threads && panels > 1;
  std::int64_t blocks = share_panels ? 1 : (tiles + per_block - 1) / per_block;
  if (!share_panels && blocks < 8 * threads) blocks = std::min(round_up(blocks, threads), tiles);
  const std::int64_t largest = (tiles + blocks - 1) / blocks;
  // Planes an odd number of cache lines apart: at a power of two they would all meet in one cache set.
  const std::int64_t input_plane = round_up(largest * g.c, 32) + 16;
  const std::int64_t product_plane = round_up(largest * panel, 32) + 16;
  const std::int64_t input_floats = kWinogradPoints * input_plane;
  const std::int64_t product_floats = kWinogradPoints * product_plane;
  const std::int64_t input_copies = share_panels ? 1 : threads;
  float* scratch = call.scratch->take<float>(input_copies * input_floats + threads * product_floats);
  float* all_products = scratch + input_copies * input_floats;

  const auto panel_output = [&](std::int64_t i, int slot) {
    WinogradOutput out;
    out.weights = p.weights.as<float>() + p.panels[static_cast<std::size_t>(i)];
    out.first = i * panel;
    out.width = std::min(panel, g.m - out.first);
    out.products = all_products + slot * product_floats;
    out.product_plane = product_plane;
    if (call.has(2)) out.bias = call.in[2].as<float>();
    if (call.has(3)) out.residual = call.in[3].as<float>();
    out.y = call.out[0].mut<float>();
    return out;
  };
  ThreadSlots slots(pool);
  if (share_panels) {
    const WinogradTask task{&plan, 0, tiles, scratch, input_plane};
    inputs(task, x);
    pool.parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
      const ThreadSlots::Slot slot(slots);
      for (std::int64_t i = begin; i < end; ++i) outputs(task, panel_output(i, slot.index()));
    });
    return;
  }
  pool.parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadSlots::Slot slot(slots);
    for (std::int64_t block = begin; block < end; ++block) {
      const WinogradTask task{&plan, tiles * block / blocks, tiles * (block + 1) / blocks,
                              scratch + slot.index() * input_floats, input_plane};
      inputs(task, x);
      for (std::int64_t i = 0; i < panels; ++i) outputs(task, panel_output(i, slot.index()));
    }
  });
}

}  // namespace

std::string winograd_why_not(const OpCall& call, WinogradPlan& plan) {
  ConvGeometry g;
  if (std::string why = packed_conv_why_not(call, g); !why.empty()) return why;
  if (g.kh != 3 || g.kw != 3) return "the kernel is not 3x3";
  if (g.sh != 1 || g.sw != 1 || g.dh != 1 || g.dw != 1) return "strides or dilations other than 1";
  if (g.group != 1) return "more than one group";
  if (g.c < 8 || g.m < 8) return "too few channels to pay for the transforms";
  plan = make_plan(g);
  // 36 products a tile and about a third more for its transforms, against 9 a position.
  if (plan.tiles_y * plan.tiles_x * 48 > g.oh * g.ow * 9) return "the map is too small for its tiles";
  return "";
}

void winograd_kernel_transform(const float* g, double* out) {
  // Row i of G is (1, p, p^2) / product of (p - q) over the other finite points q; the last row is (0, 0, 1).
  constexpr double kPoints[5] = {0, 0.75, -0.75, 1.5, -1.5};
  double rows[6][3] = {};
  for (int i = 0; i < 5; ++i) {
    double scale = 1;
    for (int j = 0; j < 5; ++j)
      if (j != i) scale *= kPoints[i] - kPoints[j];
    rows[i][0] = 1 / scale;
    rows[i][1] = kPoints[i] / scale;
    rows[i][2] = kPoints[i] * kPoints[i] / scale;
  }
  rows[5][2] = 1;
  double half[6][3];  // G g
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 3; ++j) {
      half[i][j] = 0;
      for (int k = 0; k < 3; ++k) half[i][j] += rows[i][k] * static_cast<double>(g[k * 3 + j]);
    }
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) {
      double sum = 0;
      for (int k = 0; k < 3; ++k) sum += half[i][k] * rows[j][k];
      out[i * 6 + j] = sum;
    }
}

Kernel conv_winograd_kernel() {
  Kernel kernel;
  kernel.domain = "pare";
  kernel.op = "Conv";
  kernel.name = "pare.Conv/cpu:winograd";
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.share = PreparedShare::kConstants;
  kernel.run = run;
  kernel.in_place = 1u << 3;  // the residual
  return kernel;
}

}  // namespace pare
