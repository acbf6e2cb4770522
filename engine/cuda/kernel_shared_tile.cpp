// Large products on wgmma where several warpgroups share each tile: one block a multiprocessor walks over
// tiles, two or three warpgroups hold 64 or 128 rows each of the tile's sums, a last one fetches operands for
// all into a ring of stages and runs ahead into the next tile while sums of this one are finished.
//
// Beside kernel_pingpong.cpp: tiles are larger (fewer bytes out of L2 for each product), all warpgroups
// finish a tile at the same time (three times as many instructions in flight), and heights of 192 divide what
// 128 and 256 do not: 6304 rows and 768, 2304 or 3072 columns are 1, 3 or 4 tiles of 192x192 on each of 132
// multiprocessors, 99.5 % of them full. Groups do not wait for each other: a stage is free when all have used
// it, so one that is ahead finishes its tile while the others' products go on.
//
// Clusters of two blocks that fetch half of what they share for each other lost on every product
// (docs/performance-gpu.md).
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/wgmma_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
extern "C" __global__ void __launch_bounds__(128 * ($GROUPS$ + 1), 1) kernel(const __grid_constant__ Map map_x, const __grid_constant__ Map map_w, $PARAMS$) {
  extern __shared__ __align__(1024) u8 raw_memory[];
  __shared__ __align__(8) u64 barriers[2 * $STAGES$];
  constexpr int GROUPS = $GROUPS$, MI = $MI$, BM = 64 * MI * GROUPS, BN = $BN$, ES = $ES$, STAGES = $STAGES$, KB = $KB$, STAGE = (BM + BN) * KB;
  constexpr i64 M = $M$, N = $N$, K = $K$;
  constexpr int TILES_M = $TILES_M$, TILES_N = $TILES_N$, TILES = TILES_M * TILES_N, STEPS = $STEPS$, KS = KB / ES;
  constexpr int LEAD = $LEAD$;  // steps
#define FIRST_ROW (group * MI * 64)
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
      barrier_(empty + 8 * s, GROUPS);
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
  if (group == GROUPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 $FEW$;");
    if (tid == 128 * GROUPS) {
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
    asm volatile("setmaxnreg.inc.sync.aligned.u32 $MANY$;");
    await_(eager);
    auto free_stage = [&](int at) {
      if ((tid & 127) == 0) arrive_(empty + 8 * (at % STAGES), 0);
    };
    int at = 0;
    // Groups begin one after the other: in the same step all would leave the matrix unit idle together.
    if (GROUPS > 1 && group > 0) asm volatile("bar.sync %0, 256;" ::"r"(8 + group) : "memory");
    for (int tile = begin; tile < TILES; tile += stride) {
      int m0, n0;
      place(tile, m0, n0);
      $ACC$ sum[MI][$NR$];
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < $NR$; ++j) sum[i][j] = 0;
      // The tile before has been finished by the whole group: its columns' values make room.
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
$COLUMNS$
$STATS$
      for (int step = 0; step < STEPS; ++step, ++at) {
        const int s = at % STAGES;
        pass_(full + 8 * s, (at / STAGES) & 1);
        const u64 a = describe_(base + s * STAGE + group * MI * 64 * KB), b = describe_(base + s * STAGE + BM * KB);
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
        if (at == LEAD - 1 && group + 1 < GROUPS) asm volatile("bar.arrive %0, 256;" ::"r"(9 + group) : "memory");
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[i][j])::"memory");
      free_stage(at - 1);
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
$FRAGMENTS$
    }
  }
}
)CUDA";

struct Shape {
  int groups, mi, n;
  int m() const { return 64 * mi * groups; }
};
// The best and the runners-up of what was timed; 128x256 (two groups) lost to them on every product.
constexpr Shape kShapes[] = {{3, 1, 192}, {2, 1, 192}, {2, 2, 128}, {3, 1, 128}, {2, 2, 192}};

}  // namespace

std::vector<KernelSource> shared_tile_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                              std::string& why_not) {
  WgmmaSetup u;
  why_not = wgmma_setup(plan, layer, u);
  if (!why_not.empty()) return {};
  if (u.s.batch != 1) {
    why_not = "a batch of products";
    return {};
  }
  if (u.s.m * u.s.n < 128LL * 128 * 66 || !has_fragment_code(plan, layer)) {
    why_not = "too few tiles, or columns not in eights";
    return {};
  }
  const int es = size_of(u.x);
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  const bool integer = u.x == DType::kI8 || u.x == DType::kU8;
  std::vector<KernelSource> sources;
  for (const Shape& t : kShapes) {
    const int bm = t.m(), stage = (bm + t.n) * u.bytes;
    const int stages = std::min((224 * 1024 - columns_bytes(layer, t.groups, t.n)) / stage, 8);
    const std::int64_t tiles_m = (u.s.m + bm - 1) / bm, tiles_n = (u.s.n + t.n - 1) / t.n;
    if (stages < 3 || t.n >= 2 * u.s.n || bm >= 2 * u.s.m) continue;
    KernelSource source;
    source.tactic = fmt::format("shared_tile:{}x{}_g{}_s{}", bm, t.n, t.groups, stages);
    source.block = 128 * (t.groups + 1);
    source.grid[0] = std::min<std::int64_t>(tiles_m * tiles_n, 132);
    source.shared_bytes = stages * stage + 1024;
    source.maps = {wgmma_x_map(layer, u, bm), wgmma_w_map(u, t.n)};
    source.code =
        activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) + wgmma_helpers(u, t.n, 1) +
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
                     {"FETCH", wgmma_fetch_code(layer, u, "step", "base + s * STAGE", "m0", "full + 8 * s",
                                                "0", "0u")},
                     {"GROUPS", n(t.groups)},
                     {"FEW", t.groups == 3 ? "24" : "40"},
                     {"MANY", t.groups == 3 ? "160" : "232"},
                     {"EARLY", early_weights(plan, layer)},
                     {"LEAD", n(std::max<std::int64_t>(
                                  1, std::min<std::int64_t>(u.steps / 2, (stages - 1) / (t.groups - 1))))},
                     {"MI", n(t.mi)},
                     {"BN", n(t.n)},
                     {"ES", n(es)},
                     {"M", n(u.s.m)},
                     {"N", n(u.s.n)},
                     {"K", n(u.s.k)},
                     {"TILES_M", n(tiles_m)},
                     {"TILES_N", n(tiles_n)},
                     {"SHARED", lane_stats_shared(layer, t.groups) + columns_shared(layer, t.groups)}});
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
