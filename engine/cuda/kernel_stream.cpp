// Products that are read and written rather than computed (1x1 convolutions of large maps): one block a
// multiprocessor keeps its columns' weights in shared memory for good, and one warp fetches pieces of 64 rows
// of everything else, the residual too, into a ring of slots. Warpgroups take slots in turns: sums and their
// end for all columns of the block, one chunk of columns after the other.
//
// What limits such a layer is how many bytes are on their way at a time: 40 KB a multiprocessor hide the
// memory's latency, and a ring holds 100 to 200. Kernels that ask tile by tile (kernel_wgmma.cpp) hold as
// much as blocks fit beside each other, two or three.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/wgmma_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
extern "C" __global__ void __launch_bounds__($THREADS$, 1) kernel(const __grid_constant__ Map map_x, const __grid_constant__ Map map_w, $MAPS$$PARAMS$) {
  extern __shared__ __align__(1024) u8 raw_memory[];
  __shared__ __align__(8) u64 barriers[2 * $SLOTS$ + 1];
  constexpr int MI = 1, BM = 64, BN = $BN$, ES = $ES$, GROUPS = $GROUPS$, SLOTS = $SLOTS$, KB = $KB$, KS = KB / ES;
  constexpr int STEPS = $STEPS$, SHORT = $SHORT$, ALL = STEPS + SHORT;  // SHORT: of a shortcut, in front of the others
  constexpr int CHUNKS = $CHUNKS$, RES = $RES$, PANELS = $PANELS$;      // of BN columns; bytes of the residual's numbers, pieces of 128 bytes
  constexpr int X = ALL * BM * KB, SLOT = X + PANELS * BM * 128, WEIGHTS = CHUNKS * ALL * BN * KB;
  constexpr i64 M = $M$, N = $N$, K = $K$;
  constexpr int TILES = $TILES$;
#define FIRST_ROW 0
#define ROW_AT(r) (m0 + (r))
$SHARED$
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = tid >> 7;
  const u32 base = (shared_(raw_memory) + 1023) & ~1023u, slots = base + WEIGHTS;
  const u8* memory = raw_memory + (slots - shared_(raw_memory));
  const u32 full = shared_(barriers), empty = full + 8 * SLOTS, ready = empty + 8 * SLOTS;
  if (tid == 0) {
    ready_(&map_x);
    ready_(&map_w);
    for (int s = 0; s < SLOTS; ++s) {
      barrier_(full + 8 * s, 1);
      barrier_(empty + 8 * s, 4);
    }
    barrier_(ready, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int begin = blockIdx.x, stride = gridDim.x, first_column = blockIdx.y * (CHUNKS * BN);
  if (warp == 4 * GROUPS) {
    if (lane == 0) {
      // Weights are written by nobody: they come while the kernel in front finishes.
      expect_(ready, WEIGHTS);
      for (int chunk = 0; chunk < CHUNKS; ++chunk)
        for (int step = 0; step < ALL; ++step) {
          const u32 to = base + (chunk * ALL + step) * (BN * KB);
          const int n0 = first_column + chunk * BN;
          $SHORT_WEIGHTS$fetch_(to, &map_w, ready, (step - SHORT) * KS, n0, 0);
        }
      await_(eager);
      for (int tile = begin, at = 0; tile < TILES; tile += stride, ++at) {
        const int s = at % SLOTS, m0 = tile * BM;
        const u32 slot = slots + s * SLOT;
        if (at >= SLOTS) pass_(empty + 8 * s, (at / SLOTS - 1) & 1);
        expect_(full + 8 * s, SLOT);
        $ROWS$
        for (int step = 0; step < ALL; ++step) {
          $SHORT_FETCH$
          $FETCH$
        }
        $RESIDUAL_FETCH$
      }
    }
    return;
  }
$WEIGHTS$
  await_(eager);
$COLUMNS$
  asm volatile("bar.sync 1, %0;" ::"n"(128 * GROUPS) : "memory");
  pass_(ready, 0);
  $ACC$ sum[1][$NR$];
#pragma unroll
  for (int j = 0; j < $NR$; ++j) sum[0][j] = 0;
  // Slots are a multiple of groups, so a slot's turns are all one group's: a barrier tells a turn from the next only.
  for (int turn = group;; turn += GROUPS) {
    const int tile = begin + turn * stride;
    if (tile >= TILES) break;
    const int s = turn % SLOTS, m0 = tile * BM;
    pass_(full + 8 * s, (turn / SLOTS) & 1);
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const int n0 = first_column + chunk * BN;
$LOOPS$
      if (chunk == CHUNKS - 1) {
        __syncwarp();
        if (lane == 0) arrive_(empty + 8 * s, 0);
      }
$FRAGMENTS$
    }
  }
}
)CUDA";

const char* kSums = R"CUDA(
#pragma unroll
      for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[0][j])::"memory");
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll $UNROLL$
      for (int step = $FROM$; step < $TO$; ++step) {
        const u64 a = describe_(slots + s * SLOT + step * (BM * KB)), b = describe_(base + (chunk * ALL + step) * (BN * KB));
#pragma unroll
        for (int part = 0; part < KB / 32; ++part) wgmma_(sum[0], a + part * 2, b + part * 2, step > $FROM$ || part > 0);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
$BETWEEN$
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[0][j])::"memory");
)CUDA";

// Rows of a panel are 128 bytes, pieces of 16 bytes permuted by the copy engine as for wgmma.
const char* kResidual = R"CUDA(
      $WORD$ near[BN / 32][2];
#pragma unroll
      for (int g = 0; g < BN / 32; ++g)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = (warp & 3) * 16 + h * 8 + (lane >> 2), c = (chunk * BN + g * 32 + (lane & 3) * 8) * RES;
          const int panel = c >> 7 < PANELS ? c >> 7 : 0;  // columns behind the last
          near[g][h] = *reinterpret_cast<const $WORD$*>(memory + s * SLOT + X + panel * (BM * 128) + r * 128 + ((c & 127) ^ (r & 7) << 4));
        }
)CUDA";

struct Choice {
  int groups, n;
};
constexpr Choice kChoices[] = {{3, 128}, {6, 64}, {4, 64}, {2, 128}, {3, 64}, {3, 32}};

struct Shape {
  int groups = 0, n = 0, chunks = 0, slots = 0, panels = 0;
  std::int64_t parts = 1;  // blocks that share the columns
};

// The fewest parts whose ring is deep enough; slots = 0: none is.
Shape shape_of(const PlanLayer& layer, const WgmmaSetup& u, const Choice& c, int residual_size) {
  const std::int64_t all = u.steps + u.short_steps, chunks = (u.s.n + c.n - 1) / c.n;
  Shape best;
  for (const std::int64_t parts : {1, 2, 4, 8}) {
    if (parts > chunks) break;
    Shape t;
    t.groups = c.groups, t.n = c.n, t.parts = parts;
    t.chunks = static_cast<int>((chunks + parts - 1) / parts);
    t.panels = (t.chunks * c.n * residual_size + 127) / 128;
    const std::int64_t weights = t.chunks * all * c.n * u.bytes,
                       slot = all * 64 * u.bytes + t.panels * 64 * 128,
                       columns = columns_bytes(layer, t.chunks, c.n);
    if (columns > 32 * 1024) continue;
    const std::int64_t room = 224 * 1024 - columns - weights;
    if (room < slot * c.groups) continue;
    t.slots = static_cast<int>(std::min<std::int64_t>(room / slot, 4 * c.groups)) / c.groups * c.groups;
    if (t.slots > best.slots) best = t;
    if (best.slots >= 2 * c.groups) break;
  }
  return best;
}

std::string stream_setup(const EnginePlan& plan, const PlanLayer& layer, WgmmaSetup& u) {
  std::string why = has_shortcut(layer) ? wgmma_shortcut_setup(plan, layer, u) : wgmma_setup(plan, layer, u);
  if (!why.empty()) return why;
  if (u.s.batch != 1) return "a batch of products";
  if (!has_fragment_code(plan, layer)) return "columns not in eights";
  if (leaves_sums(layer) || normalizes(layer)) return "rows that are normalized";
  if (std::string(early_weights(plan, layer)) != "true") return "no weights";
  if (u.s.m < 64 * 66) return "too few rows";
  if (layer.in[3].present()) {
    const int size = size_of(type_of(plan, layer.in[3]));
    if (size > 2) return "a residual of more than 16 bits";
    if (u.s.ldr * size % 16 != 0 || layer.in[3].offset * size % 16 != 0)
      return "rows of the residual do not begin at multiples of 16 bytes";
  }
  return "";
}

}  // namespace

std::vector<KernelSource> stream_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                         std::string& why_not) {
  WgmmaSetup u;
  why_not = stream_setup(plan, layer, u);
  if (!why_not.empty()) return {};
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  const bool integer = u.x == DType::kI8 || u.x == DType::kU8, shortcut = has_shortcut(layer);
  const bool residual = layer.in[3].present();
  const DType added = residual ? type_of(plan, layer.in[3]) : DType::kUndefined;
  const int added_size = residual ? size_of(added) : 0;
  const std::int64_t tiles = (u.s.m + 63) / 64;
  std::vector<KernelSource> sources;
  for (const Choice& c : kChoices) {
    if (sources.size() == 4) break;
    // Narrower than the layer's columns only where several chunks are wanted, wider not by half.
    if (c.n >= 2 * u.s.n || (c.n == 32 && u.s.n > 96)) continue;
    const Shape t = shape_of(layer, u, c, added_size);
    if (t.slots == 0 || tiles * t.parts < 2 * 132) continue;
    KernelSource source;
    source.tactic = fmt::format("stream:{}x{}_g{}_s{}", t.chunks * t.n, t.n, t.groups, t.slots);
    source.block = 128 * t.groups + 32;
    source.grid[0] = std::min<std::int64_t>(tiles, std::max<std::int64_t>(132 / t.parts, 1));
    source.grid[1] = t.parts;
    const std::int64_t all = u.steps + u.short_steps;
    source.shared_bytes = static_cast<int>(t.chunks * all * t.n * u.bytes +
                                           t.slots * (all * 64 * u.bytes + t.panels * 64 * 128) + 1024);
    source.maps = {wgmma_x_map(layer, u, 64), wgmma_w_map(u, t.n)};
    std::string maps, short_weights, short_rows, short_fetch, residual_fetch;
    if (shortcut) {
      const PlanLayer other = shortcut_layer(layer);
      source.maps.push_back(wgmma_x_map(other, u.other(), 64));
      source.maps.push_back(wgmma_w_map(u.other(), t.n));
      source.maps[2].slot = kShortX, source.maps[3].slot = kShortW;
      maps = "const __grid_constant__ Map map_short_x, const __grid_constant__ Map map_short_w, ";
      short_weights = "if (step < SHORT) fetch_(to, &map_short_w, ready, step * KS, n0, 0);\n          else ";
      short_rows = wgmma_rows_code(other, "(u32)m0");
      short_fetch = wgmma_fetch_code(other, u.other(), "step", "slot + step * (BM * KB)", "m0",
                                     "full + 8 * s", "0", "0u");
      short_fetch = "if (step < SHORT) {\n" +
                    short_fetch.replace(short_fetch.find("&map_x"), 6, "&map_short_x") + "} else";
    }
    if (residual) {
      TensorMap map;
      map.slot = 3;
      map.type = added;
      map.dims[0] = u.s.n, map.dims[1] = u.s.m, map.dims[2] = 1;
      map.strides[0] = u.s.ldr * added_size, map.strides[1] = map.strides[0] * u.s.m;
      map.box[0] = 128 / added_size, map.box[1] = 64, map.box[2] = 1;
      source.maps.push_back(map);
      maps += "const __grid_constant__ Map map_residual, ";
      residual_fetch =
          "for (int panel = 0; panel < PANELS; ++panel) fetch_(slot + X + panel * (BM * 128), &map_residual, "
          "full + 8 * s, first_column + panel * (128 / RES), m0, 0);\n";
    }
    const std::string columns =
        "  for (int chunk = 0; chunk < CHUNKS; ++chunk) {\n    const int n0 = first_column + chunk * BN;\n" +
        columns_code(layer, "chunk", "tid", 128 * t.groups) + "  }\n";
    const bool weights = columns_are_weights(plan, layer);
    std::vector<std::pair<std::string, std::string>> words = {
        {"PARAMS", parameters(plan, layer, source)},
        {"MAPS", maps},
        {"FRAGMENTS", fragment_code(plan, layer, "chunk", residual || shortcut)},
        {"WEIGHTS", weights ? columns : ""},
        {"COLUMNS", weights ? "" : columns},
        {"SHARED", columns_shared(layer, t.chunks)},
        {"ACC", integer ? "int" : "float"},
        {"R", integer ? "r" : "f"},
        {"NR", n(t.n / 2)},
        {"THREADS", n(source.block)},
        {"SLOTS", n(t.slots)},
        {"GROUPS", n(t.groups)},
        {"CHUNKS", n(t.chunks)},
        {"RES", n(added_size)},
        {"PANELS", n(t.panels)},
        {"KB", n(u.bytes)},
        {"STEPS", n(u.steps)},
        {"SHORT", n(u.short_steps)},
        {"UNROLL", n(all <= 4 ? all : 1)},
        {"SHORT_WEIGHTS", short_weights},
        {"SHORT_FETCH", short_fetch},
        {"RESIDUAL_FETCH", residual_fetch},
        {"ROWS", wgmma_rows_code(layer, "(u32)m0") + short_rows},
        {"FETCH", wgmma_fetch_code(layer, u, "step - SHORT", "slot + step * (BM * KB)", "m0", "full + 8 * s",
                                   "0", "0u")},
        {"BN", n(t.n)},
        {"ES", n(size_of(u.x))},
        {"M", n(u.s.m)},
        {"N", n(u.s.n)},
        {"K", n(u.s.k)},
        {"TILES", n(tiles)}};
    const std::string near =
        residual ? fill(kResidual, {{"WORD", added_size == 1 ? "uint2" : "uint4"}}) : std::string();
    const auto sums = [&](const char* from, const char* to, const std::string& between) {
      auto bounds = words;
      bounds.emplace_back("FROM", from);
      bounds.emplace_back("TO", to);
      bounds.emplace_back("BETWEEN", between);
      return fill(kSums, bounds);
    };
    words.emplace_back("LOOPS", shortcut
                                    ? sums("0", "SHORT", "") + fragment_shortcut_code(plan, layer, "chunk") +
                                          sums("SHORT", "ALL", "")
                                    : sums("0", "ALL", near));
    source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
                  wgmma_helpers(u, t.n, 1) + fill(kText, words);
    sources.push_back(std::move(source));
  }
  if (sources.empty()) why_not = "weights and a ring of rows do not fit into shared memory";
  return sources;
}

}  // namespace pare::cuda
