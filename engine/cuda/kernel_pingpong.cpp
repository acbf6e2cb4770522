// Large products on wgmma: one block a multiprocessor walks over tiles, two warpgroups taking turns. While
// one finishes its tile (activation, residual, rounding, stores) the other one's sums keep the matrix unit
// busy. A third warpgroup fetches operands for both into one ring of stages, in the order of the tiles.
//
// Finishing happens where the sums lie, in registers (linear_code.h).
//
// Clusters of blocks that fetch for each other what they share lost on every product
// (docs/performance-gpu.md).
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/wgmma_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
extern "C" __global__ void __launch_bounds__(384, 1) kernel(const __grid_constant__ Map map_x, const __grid_constant__ Map map_w, $PARAMS$) {
  extern __shared__ __align__(1024) u8 raw_memory[];
  __shared__ __align__(8) u64 barriers[2 * $STAGES$];
  constexpr int MI = $MI$, BM = 64 * MI, BN = $BN$, ES = $ES$, STAGES = $STAGES$, KB = $KB$, STAGE = (BM + BN) * KB;
  constexpr i64 M = $M$, N = $N$, K = $K$;
  constexpr int TILES_M = $TILES_M$, TILES_N = $TILES_N$, TILES = TILES_M * TILES_N, STEPS = $STEPS$, KS = KB / ES;
#define FIRST_ROW 0
#define STAT_ROW(name) name[group][r]
#define ROW_AT(r) (m0 + (r))
$SHARED$
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = tid >> 7;
  const u32 base = (shared_(raw_memory) + 1023) & ~1023u;
  const u32 full = shared_(barriers), empty = full + 8 * STAGES;
  if (tid == 0) {
    ready_(&map_x);
    ready_(&map_w);
    for (int s = 0; s < STAGES; ++s) {
      barrier_(full + 8 * s, 1);
      barrier_(empty + 8 * s, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int begin = blockIdx.x, stride = gridDim.x;
  auto place = [&](int tile, int& m0, int& n0) {
    constexpr int GROUP = 8, wide = GROUP * TILES_N;
    const int first = tile / wide * GROUP, high = TILES_M - first < GROUP ? TILES_M - first : GROUP;
    m0 = (first + tile % wide % high) * BM;
    n0 = tile % wide / high * BN;
  };
  auto free_stage = [&](int at) {
    if ((tid & 127) == 0) arrive_(empty + 8 * (at % STAGES), 0);
  };
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == 256) {
      auto weights = [&](int step, int s, int n0) {
        expect_(full + 8 * s, STAGE);
        fetch_(base + s * STAGE + BM * KB, &map_w, full + 8 * s, step * KS, n0, 0);
      };
      constexpr int AHEAD = $EARLY$ ? STEPS < STAGES ? STEPS : STAGES : 0;
      // Weights are written by nobody: their first tiles come while the kernel in front finishes.
      if (AHEAD > 0 && begin < TILES) {
        int m0, n0;
        place(begin, m0, n0);
        for (int step = 0; step < AHEAD; ++step) weights(step, step, n0);
      }
      await_(eager);
      int at = 0;
      for (int tile = begin; tile < TILES; tile += stride) {
        int m0, n0;
        place(tile, m0, n0);
        $ROWS$
        for (int step = 0; step < STEPS; ++step, ++at) {
          const int s = at % STAGES;
          if (at >= STAGES) pass_(empty + 8 * s, (at / STAGES - 1) & 1);
          if (at >= AHEAD) weights(step, s, n0);
          $FETCH$
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    await_(eager);
    for (int turn = group;; turn += 2) {
      const int tile = begin + turn * stride;
      if (tile >= TILES) break;
      int m0, n0;
      place(tile, m0, n0);
      $ACC$ sum[MI][$NR$];
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < $NR$; ++j) sum[i][j] = 0;
      int at = turn * STEPS;
      // A barrier tells one use of a stage from the next, not from the one after: the other group's tile comes first.
      if (turn > 0) asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory");
$COLUMNS$
      for (int step = 0; step < STEPS; ++step, ++at) {
        const int s = at % STAGES;
        pass_(full + 8 * s, (at / STAGES) & 1);
        const u64 a = describe_(base + s * STAGE), b = describe_(base + s * STAGE + BM * KB);
#pragma unroll
        for (int i = 0; i < MI; ++i)
#pragma unroll
          for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[i][j])::"memory");
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int part = 0; part < KB / 32; ++part)
#pragma unroll
          for (int i = 0; i < MI; ++i) wgmma_(sum[i], a + i * (KB * 4) + part * 2, b + part * 2, 1);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (step > 0) free_stage(at - 1);
      }
      if (tile + stride < TILES) asm volatile("bar.arrive %0, 256;" ::"r"(3 - group) : "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[i][j])::"memory");
      free_stage(at - 1);
$STATS$
      asm volatile("bar.sync %0, 128;" ::"r"(6 + group) : "memory");
$FRAGMENTS$
    }
  }
}
)CUDA";

struct Shape {
  int mi, n;
};
constexpr Shape kShapes[] = {{2, 192}, {2, 128}, {1, 256}};

}  // namespace

std::vector<KernelSource> pingpong_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                           std::string& why_not) {
  WgmmaSetup u;
  why_not = wgmma_setup(plan, layer, u);
  if (!why_not.empty()) return {};
  if (u.s.batch != 1) {
    why_not = "a batch of products";
    return {};
  }
  if (u.s.m * u.s.n < 4LL * 64 * 128 * 132 || !has_fragment_code(plan, layer)) {
    why_not = "too few tiles to take turns, or columns not in eights";
    return {};
  }
  const int es = size_of(u.x);
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  const bool integer = u.x == DType::kI8 || u.x == DType::kU8;
  std::vector<KernelSource> sources;
  for (const Shape& t : kShapes) {
    const int bm = 64 * t.mi, stage = (bm + t.n) * u.bytes;
    const int stages = std::min((224 * 1024 - columns_bytes(layer, 2, t.n)) / stage, 8);
    const std::int64_t tiles_m = (u.s.m + bm - 1) / bm, tiles_n = (u.s.n + t.n - 1) / t.n;
    if (stages < 3 || t.n >= 2 * u.s.n || bm >= 2 * u.s.m) continue;
    KernelSource source;
    source.tactic = fmt::format("pingpong:{}x{}_s{}", bm, t.n, stages);
    source.block = 384;
    source.grid[0] = std::min<std::int64_t>(tiles_m * tiles_n, 132);
    source.shared_bytes = stages * stage + 1024;
    source.maps = {wgmma_x_map(layer, u, bm), wgmma_w_map(u, t.n)};
    source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
                  wgmma_helpers(u, t.n, 1) +
                  fill(kText, {{"PARAMS", parameters(plan, layer, source)},
                               {"FRAGMENTS", fragment_code(plan, layer, "group")},
                               {"COLUMNS", columns_code(layer, "group", "tid & 127", 128)},
                               {"STATS", lane_stats_code(layer)},
                               {"ACC", integer ? "int" : "float"},
                               {"R", integer ? "r" : "f"},
                               {"NR", n(t.n / 2)},
                               {"STAGES", n(stages)},
                               {"KB", n(u.bytes)},
                               {"STEPS", n(u.steps)},
                               {"ROWS", wgmma_rows_code(layer, "(u32)m0")},
                               {"FETCH", wgmma_fetch_code(layer, u, "step", "base + s * STAGE", "m0",
                                                          "full + 8 * s", "0", "0u")},
                               {"EARLY", early_weights(plan, layer)},
                               {"MI", n(t.mi)},
                               {"BN", n(t.n)},
                               {"ES", n(es)},
                               {"M", n(u.s.m)},
                               {"N", n(u.s.n)},
                               {"K", n(u.s.k)},
                               {"TILES_M", n(tiles_m)},
                               {"TILES_N", n(tiles_n)},
                               {"SHARED", lane_stats_shared(layer, 2) + columns_shared(layer, 2)}});
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
