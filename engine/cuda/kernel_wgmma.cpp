// Products on Hopper's own matrix instructions: operands come by the bulk copy engine (TMA) into a ring of
// stages that one warp fills and one or two warpgroups empty by wgmma; the sums go through shared memory
// once, so that the epilogue (linear_code.h) reads and writes whole vectors. float16, bfloat16, E4M3 and
// int8.
//
// A row of a stage holds 128 bytes of k, permuted by the copy engine (128 byte swizzle) as wgmma expects it.
// Two blocks of a cluster may share the columns of a tile: each fetches half of them for both. Small tiles
// leave room for a second block on the multiprocessor, whose sums go on while the first one finishes. With
// few tiles the sum over k is split as in kernel_mma.cpp, or over the blocks of a cluster, each of which then
// adds and finishes some rows of the tile out of the others' shared memory ("_d").
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/cuda/wgmma_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
#define SYNC_() asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory")
extern "C" __global__ void $SHAPE$ __launch_bounds__($THREADS$, $BLOCKS$) kernel(const __grid_constant__ Map map_x, const __grid_constant__ Map map_w, $SHORT_MAPS$$PARAMS$) {
  extern __shared__ __align__(1024) u8 raw_memory[];
  __shared__ __align__(8) u64 barriers[2 * $STAGES$];
  constexpr int BM = $BM$, BN = $BN$, MI = $MI$, GROUPS = $GROUPS$, ES = $ES$, STAGES = $STAGES$, CLUSTER = $CLUSTER$;
  constexpr bool NEAR = $NEAR$;
$SHARED$
  constexpr int THREADS = 128 * GROUPS, KB = $KB$, STAGE = (BM + BN) * KB;
  constexpr i64 M = $M$, N = $N$, K = $K$;
  constexpr int TILES_M = $TILES_M$, TILES_N = $TILES_N$, SPLITS = $SPLITS$, STEPS = $STEPS$, KS = KB / ES;
  constexpr int SHORT = $SHORT$;  // steps of a shortcut, in front of the others
#define FIRST_ROW group * MI * 64
#define STAT_ROW(name) name[r]
#define ROW_AT(r) (m0 + (r))
$FINISH$
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  constexpr int GROUP = 8;
  const int tile = blockIdx.x, wide = GROUP * TILES_N, first = tile / wide * GROUP;
  const int high = TILES_M - first < GROUP ? TILES_M - first : GROUP;
  const int mt = first + tile % wide % high, nt = tile % wide / high;
  const int m0 = mt * BM, n0 = nt * BN;
  const int split = SPLITS > 1 ? blockIdx.y : 0;
  const i32 batch = SPLITS > 1 ? 0 : blockIdx.y;
  const int begin = (int)((i64)STEPS * split / SPLITS), steps = (int)((i64)STEPS * (split + 1) / SPLITS) - begin + SHORT;
  const u32 base = (shared_(raw_memory) + 1023) & ~1023u;
  u8* memory = raw_memory + (base - shared_(raw_memory));
  const u32 full = shared_(barriers), empty = full + 8 * STAGES;
  u32 rank = 0;
  if (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (tid == 0) {
    ready_(&map_x);
    ready_(&map_w);
    for (int s = 0; s < STAGES; ++s) {
      barrier_(full + 8 * s, 1);
      barrier_(empty + 8 * s, GROUPS * CLUSTER);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  if (CLUSTER > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();

  if (warp == 4 * GROUPS) {
    auto weights = [&](int step) {
      const int s = step % STAGES;
      const u32 to = base + s * STAGE + BM * KB;
      const int at = begin + step - SHORT;
      $SHORT_WEIGHTS$
      if (CLUSTER == 1)
        fetch_(to, &map_w, full + 8 * s, at * KS, n0, batch);
      else
        fetch_for_all_(to + rank * (BN / 2 * KB), &map_w, full + 8 * s, at * KS, n0 + (int)rank * (BN / 2), batch, 3u);
    };
    if (lane == 0) {
      const int ahead = steps < STAGES ? steps : STAGES;
      // Weights are written by nobody: their first tiles come while the kernel in front finishes.
      if ($EARLY$)
        for (int step = 0; step < ahead; ++step) {
          expect_(full + 8 * step, STAGE);
          weights(step);
        }
      await_(eager);
      $ROWS$
      for (int step = 0; step < steps; ++step) {
        const int s = step % STAGES;
        if (step >= STAGES) pass_(empty + 8 * s, (step / STAGES - 1) & 1);
        if (!$EARLY$ || step >= ahead) {
          expect_(full + 8 * s, STAGE);
          weights(step);
        }
        $SHORT_FETCH$
        $FETCH$
      }
    }
    __syncwarp();
    if (NEAR) all_blocks_();
  } else {
$WEIGHTS$
    await_(eager);
    const int group = warp >> 2;
$STATS$
$COLUMNS$
$RESIDUAL$
$ASK$
    $ACC$ sum[MI][$NR$];
#pragma unroll
    for (int i = 0; i < MI; ++i)
#pragma unroll
      for (int j = 0; j < $NR$; ++j) sum[i][j] = 0;
$LOOPS$
$END$
  }
  // A block must not end while the other one still signals its barriers.
  if (CLUSTER > 1 || NEAR) all_blocks_();
}
)CUDA";

const char* kLoop = R"CUDA(
    for (int step = $FROM$; step < $TO$; ++step) {
      const int s = step % STAGES;
      pass_(full + 8 * s, (step / STAGES) & 1);
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
      // The stage before this one has been read: it may be filled again, here and by the other block of the cluster.
      if (step > 0 && (tid & 127) < CLUSTER) arrive_(empty + 8 * ((step - 1) % STAGES), tid & 127);
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < MI; ++i)
#pragma unroll
      for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[i][j])::"memory");
)CUDA";

// Through shared memory.
const char* kEnd = R"CUDA(
    // All stages have been read by all groups: their memory takes the sums.
    SYNC_();
    constexpr int PITCH = BN + 8;
    float* tile_sums = reinterpret_cast<float*>(memory);
#pragma unroll
    for (int i = 0; i < MI; ++i)
#pragma unroll
      for (int j = 0; j < BN / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float2 pair;
          pair.x = (float)sum[i][j * 4 + h * 2];
          pair.y = (float)sum[i][j * 4 + h * 2 + 1];
          *reinterpret_cast<float2*>(tile_sums + (group * MI * 64 + i * 64 + (warp & 3) * 16 + h * 8 + (lane >> 2)) * PITCH + j * 8 + (lane & 3) * 2) = pair;
        }
    SYNC_();
    constexpr int V = $V$, ACROSS = BN / V, SHARES = NEAR ? SPLITS : 1;
    bool mine = true;
$SPLIT$
    if (mine)
      for (int i = tid; i < BM / SHARES * ACROSS; i += THREADS) {
        const int r = i / ACROSS + (NEAR ? split * (BM / SHARES) : 0), c = i % ACROSS * V;
        if (m0 + r >= M || n0 + c >= N) continue;
        float v[V];
#pragma unroll
        for (int e = 0; e < V; ++e) v[e] = tile_sums[r * PITCH + c + e];
$ADD_PARTS$
        finish_(v, n0 + c, batch * (i64)$STEP_D$ + (i64)(m0 + r) * $LDD$ + n0 + c, m0 + r, r);
      }
)CUDA";

const char* kSplit = R"CUDA(
    float* parts = workspace + (i64)tile * SPLITS * BM * BN;
    for (int i = tid; i < BM * BN / 4; i += THREADS) {
      const int r = i / (BN / 4), c = i % (BN / 4) * 4;
      *reinterpret_cast<float4*>(parts + (i64)split * BM * BN + r * BN + c) = *reinterpret_cast<float4*>(tile_sums + r * PITCH + c);
    }
    __threadfence();
    SYNC_();
    u32* flag = reinterpret_cast<u32*>(memory);
    if (tid == 0) *flag = atomicAdd(counters + tile, 1u);
    SYNC_();
    mine = *flag == SPLITS - 1;
    if (mine && tid == 0) counters[tile] = 0;
    if (mine) __threadfence();
)CUDA";

// The tile's sums lie in the shared memory of the cluster's blocks.
const char* kNear = R"CUDA(
    all_blocks_();
)CUDA";
const char* kAddNear = R"CUDA(
#pragma unroll
        for (int e = 0; e < V; ++e) v[e] = 0.f;
#pragma unroll
        for (int s = 0; s < SPLITS; ++s) {
          u32 from;
          asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(shared_(tile_sums + r * PITCH + c)), "r"(s));
          if (V % 4 == 0)
#pragma unroll
            for (int e = 0; e < V; e += 4) {
              float4 f;
              asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w) : "r"(from + e * 4) : "memory");
              v[e] += f.x, v[e + 1] += f.y, v[e + 2] += f.z, v[e + 3] += f.w;
            }
          else
#pragma unroll
            for (int e = 0; e < V; ++e) {
              float f;
              asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(f) : "r"(from + e * 4) : "memory");
              v[e] += f;
            }
        }
)CUDA";

// With at most so many steps a tile is its beginning and end, not its sums.
constexpr std::int64_t kFewSteps = 8;

// One piece of the output a thread: what it takes from memory is on its way while sums are made.
const char* kAsk = R"CUDA(
    if (tid < BM / SPLITS * (BN / $V$)) {
      const int r = tid / (BN / $V$) + split * (BM / SPLITS), c = tid % (BN / $V$) * $V$;
      if (m0 + r < M && n0 + c < N) ask_(n0 + c, batch * (i64)$STEP_D$ + (i64)(m0 + r) * $LDD$ + n0 + c);
    }
)CUDA";

struct Tile {
  int mi, groups, n, cluster;
  int m() const { return 64 * mi * groups; }
};
constexpr Tile kTiles[] = {{2, 1, 128, 1}, {2, 1, 128, 2}, {1, 2, 256, 1}, {1, 2, 256, 2}, {1, 1, 128, 1},
                           {2, 1, 64, 1},  {1, 1, 96, 1},  {1, 1, 64, 1},  {1, 1, 32, 1},  {1, 1, 16, 1}};

struct Choice {
  double cost = 0;
  Tile tile;
  int splits = 1, stages = 2, blocks = 1;
  bool near = false;  // splits are the blocks of a cluster
};

KernelSource wgmma_kernel(const EnginePlan& plan, const PlanLayer& layer, const WgmmaSetup& u,
                          const Choice& c) {
  const Tile& t = c.tile;
  const int es = size_of(u.x), registers = t.n / 2;
  const std::int64_t tiles_m = ((u.s.m + t.m() - 1) / t.m() + t.cluster - 1) / t.cluster * t.cluster,
                     tiles_n = (u.s.n + t.n - 1) / t.n;
  KernelSource source;
  source.tactic = fmt::format("wgmma:{}x{}_s{}", t.m(), t.n, c.stages);
  if (t.cluster > 1) source.tactic += fmt::format("_c{}", t.cluster);
  if (c.near) {
    source.tactic += fmt::format("_d{}", c.splits);
  } else if (c.splits > 1) {
    source.tactic += fmt::format("_k{}", c.splits);
    source.workspace_bytes = tiles_m * tiles_n * c.splits * t.m() * t.n * 4;
    source.counters = tiles_m * tiles_n;
  }
  source.block = 128 * t.groups + 32;
  source.grid[0] = tiles_m * tiles_n;
  source.grid[1] = c.splits > 1 ? c.splits : u.s.batch;
  const bool direct = c.splits == 1 && t.n % 32 == 0 && has_fragment_code(plan, layer);
  // With few steps the residual takes longest: asked for before everything else.
  const bool loaded = direct && (has_shortcut(layer) || u.steps <= kFewSteps) &&
                      fragment_residual_registers(plan, layer, t.mi, t.n) > 0;
  const std::string columns = direct ? columns_code(layer, "0", "tid", 128 * t.groups) : "";
  const bool weights = columns_are_weights(plan, layer);
  const bool asked = c.near && t.m() / c.splits * (t.n / u.width) <= 128 * t.groups;
  const int sums = direct ? 0 : t.m() * (t.n + 8) * 4;
  source.shared_bytes = std::max(c.stages * (t.m() + t.n) * u.bytes, sums) + 1024;
  source.maps = {wgmma_x_map(layer, u, t.m()), wgmma_w_map(u, t.n / t.cluster)};
  std::string short_maps, short_weights, short_rows, short_fetch;
  if (has_shortcut(layer)) {
    const PlanLayer other = shortcut_layer(layer);
    source.maps.push_back(wgmma_x_map(other, u.other(), t.m()));
    source.maps.push_back(wgmma_w_map(u.other(), t.n));
    source.maps[2].slot = kShortX, source.maps[3].slot = kShortW;
    short_maps = "const __grid_constant__ Map map_short_x, const __grid_constant__ Map map_short_w, ";
    short_weights = "if (step < SHORT) return fetch_(to, &map_short_w, full + 8 * s, step * KS, n0, 0);";
    short_rows = wgmma_rows_code(other, "(u32)m0");
    short_fetch =
        wgmma_fetch_code(other, u.other(), "step", "base + s * STAGE", "m0", "full + 8 * s", "0", "0u");
    short_fetch = "if (step < SHORT) {\n" +
                  short_fetch.replace(short_fetch.find("&map_x"), 6, "&map_short_x") + "} else";
  }
  const bool integer = u.x == DType::kI8 || u.x == DType::kU8;
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  std::vector<std::pair<std::string, std::string>> words = {
      {"PARAMS", parameters(plan, layer, source)},
      {"FINISH", finish_code(plan, layer, u.width, asked)},
      {"STATS", stats_code(layer)},
      {"ACC", integer ? "int" : "float"},
      {"R", integer ? "r" : "f"},
      {"NR", n(registers)},
      {"SHAPE", t.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1)", t.cluster)
                : c.near      ? fmt::format("__cluster_dims__(1, {}, 1)", c.splits)
                              : ""},
      {"SHARED", direct ? columns_shared(layer, 1) : ""},
      {"WEIGHTS", weights ? columns : ""},
      {"COLUMNS", weights ? "" : columns},
      {"RESIDUAL", loaded && !has_shortcut(layer) ? fragment_residual_code(plan, layer) : ""},
      {"NEAR", c.near ? "true" : "false"},
      {"THREADS", n(source.block)},
      {"BLOCKS", n(c.blocks)},
      {"STAGES", n(c.stages)},
      {"KB", n(u.bytes)},
      {"STEPS", n(u.steps)},
      {"ROWS", wgmma_rows_code(layer, "(u32)m0") + short_rows},
      {"SHORT", n(u.short_steps)},
      {"SHORT_MAPS", short_maps},
      {"SHORT_WEIGHTS", short_weights},
      {"SHORT_FETCH", short_fetch},
      {"FETCH", wgmma_fetch_code(layer, u, "begin + step - SHORT", "base + s * STAGE", "m0", "full + 8 * s",
                                 "batch", "0u")},
      {"CLUSTER", n(t.cluster)},
      {"GROUPS", n(t.groups)},
      {"MI", n(t.mi)},
      {"BM", n(t.m())},
      {"BN", n(t.n)},
      {"ES", n(es)},
      {"M", n(u.s.m)},
      {"N", n(u.s.n)},
      {"K", n(u.s.k)},
      {"TILES_M", n(tiles_m)},
      {"TILES_N", n(tiles_n)},
      {"SPLITS", n(c.splits)},
      {"STEP_D", n(u.s.batch > 1 ? u.s.step_d : 0)},
      {"LDD", n(u.s.ldd)},
      {"V", n(u.width)},
      {"EARLY", early_weights(plan, layer)}};
  words.emplace_back("ASK", asked ? fill(kAsk, words) : "");
  const auto loop = [&](const char* from, const char* to) {
    auto bounds = words;
    bounds.emplace_back("FROM", from);
    bounds.emplace_back("TO", to);
    return fill(kLoop, bounds);
  };
  const std::string zero =
      "#pragma unroll\n    for (int i = 0; i < MI; ++i)\n#pragma unroll\n      for (int j = 0; j < " +
      n(registers) + "; ++j) sum[i][j] = 0;\n";
  words.emplace_back("LOOPS", has_shortcut(layer) ? loop("0", "SHORT") + "    SYNC_();\n" +
                                                        fragment_shortcut_code(plan, layer, "0") + zero +
                                                        loop("SHORT", "steps")
                                                  : loop("0", "steps"));
  words.emplace_back("SPLIT", c.near ? kNear : c.splits > 1 ? kSplit : "");
  words.emplace_back("ADD_PARTS", c.near ? kAddNear : c.splits > 1 ? add_parts_code() : "");
  words.emplace_back("END",
                     direct ? "    SYNC_();\n" + fragment_code(plan, layer, "0", loaded) : fill(kEnd, words));
  source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
                wgmma_helpers(u, t.n, t.cluster) + fill(kText, words);
  return source;
}

// Blocks of a multiprocessor, by registers (sums, the residual and what else a thread holds) and memory.
int blocks_that_fit(const Tile& t, int residual, int shared_bytes) {
  const int threads = 128 * t.groups + 32, registers = (t.mi * t.n / 2 + residual + 64 + 7) / 8 * 8;
  return std::clamp(std::min(65536 / (threads * registers), 225 * 1024 / shared_bytes), 1, 6);
}

// Cycles, roughly: the matrix unit (2048 products of 16 bit a cycle), 40 bytes a cycle from L2, latency.
std::vector<Choice> choices(const EnginePlan& plan, const PlanLayer& layer, const WgmmaSetup& u) {
  const int columns_of = leaves_sums(layer) ? 32 : 1;
  const bool shortcut = has_shortcut(layer);
  const bool few = (u.steps <= kFewSteps && has_fragment_code(plan, layer)) || shortcut;
  std::vector<Choice> list;
  const double steps = static_cast<double>(u.steps + u.short_steps);
  for (const Tile& t : kTiles) {
    if (t.n % u.width != 0 || t.n % columns_of != 0 || (t.m() > 64 && t.m() >= 2 * u.s.m) ||
        (t.n > 32 && t.n >= 2 * u.s.n))
      continue;
    if (t.cluster > 1 && u.s.m <= t.m()) continue;
    // Two products a tile: more sums than 64 registers a thread, or narrower tiles, were slower everywhere.
    if (shortcut && (t.cluster > 1 || t.groups > 1 || t.n < 64 || t.n % 64 != 0 || t.mi * t.n / 2 > 64))
      continue;
    Choice c;
    c.tile = t;
    const int stage = (t.m() + t.n) * u.bytes;
    c.blocks = t.groups == 1 ? 2 : 1;
    c.stages = std::clamp((c.blocks == 2 ? 110 : 220) * 1024 / stage, 2, 8);
    const double tiles = static_cast<double>((u.s.m + t.m() - 1) / t.m()) *
                         static_cast<double>((u.s.n + t.n - 1) / t.n) * static_cast<double>(u.s.batch);
    for (const int splits : {1, 2, 3, 4, 6, 8}) {
      if (splits > 1 && (shortcut || u.s.batch > 1 || t.cluster > 1 || steps < 4 * splits ||
                         tiles * splits > 300 || tiles > 132))
        continue;
      if (few && splits == 1 && t.cluster == 1 && t.n % 32 == 0) {
        c.stages = std::min(c.stages, static_cast<int>(u.steps + u.short_steps));
        c.blocks = blocks_that_fit(t, fragment_residual_registers(plan, layer, t.mi, t.n),
                                   c.stages * stage + columns_bytes(layer, 1, t.n) + 2048);
      }
      const double all = tiles * splits,
                   together = std::min(static_cast<double>(c.blocks), std::ceil(all / 132));
      const double compute = t.m() * t.n * 64.0 / 2048 * together;
      const double load = (t.m() + static_cast<double>(t.n) / t.cluster) * 128 / 40 * together;
      const double step = std::max({compute, load, 900.0 / c.stages});
      c.splits = splits;
      c.cost = std::ceil(all / (132 * c.blocks)) * (steps / splits * step + 2000 + t.m() * t.n * 0.05) +
               (splits > 1 ? 2500 + t.m() * t.n * 0.02 * splits : 0);
      c.near = false;
      list.push_back(c);
      if (splits == 1 || splits == 3 || splits == 6) continue;
      c.near = true;
      c.cost -= 1000;
      list.push_back(c);
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
  const std::size_t most = few ? 9 : 7;
  if (list.size() > most) list.resize(most);
  return list;
}

}  // namespace

std::vector<KernelSource> wgmma_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                        std::string& why_not) {
  WgmmaSetup u;
  why_not = has_shortcut(layer) ? wgmma_shortcut_setup(plan, layer, u) : wgmma_setup(plan, layer, u);
  if (!why_not.empty()) return {};
  std::vector<KernelSource> sources;
  for (const Choice& c : choices(plan, layer, u)) sources.push_back(wgmma_kernel(plan, layer, u, c));
  return sources;
}

}  // namespace pare::cuda
