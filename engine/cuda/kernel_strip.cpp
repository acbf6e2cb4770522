// Convolutions of stride 1 as in kernel_window.cpp, streamed: one block a multiprocessor keeps all weights in
// shared memory and lets strips of the images (some rows, with what windows reach over) pass through a ring.
// One warpgroup copies strips ahead of the others, which take the tiles of 64 pixels in turns, so that
// copies, sums and their ends overlap. Each pixel is read about once; the bulk copy engine
// (kernel_stream.cpp) would fetch it once for every tap.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/window_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
extern "C" __global__ void __launch_bounds__($THREADS$, 1) kernel($PARAMS$) {
  extern __shared__ __align__(128) u8 memory[];
  __shared__ __align__(8) u64 barriers[2 * $SLOTS$];
  constexpr int ROWS = $ROWS$, WIDE = $WIDE$, PLANES = $PLANES$, PLANE = $PLANE$, TAPS = $TAPS$, KW = $KW$, BN = $BN$, MI = 1, GROUPS = $GROUPS$;
  constexpr int THREADS = $THREADS$, IN_ROWS = $IN_ROWS$, CHUNKS = $CHUNKS$, TILES = (ROWS * WIDE + 63) / 64, STRIPS = $STRIPS$, TOTAL = $TOTAL$;
  constexpr int OH = $OH$, OW = $OW$, H = $H$, W = $W$, SLOTS = $SLOTS$, SLOT = PLANES * PLANE, PARTS = $PARTS$;
  constexpr i64 M = $M$, N = $N$;
#define FIRST_ROW 0
#define ROW_AT(r) row_at(r)
$SHARED$
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = tid >> 7;
  const u32 weights = shared_(memory), slots = weights + PARTS * CHUNKS * BN * 16;
  const u32 full = shared_(barriers), empty = full + 8 * SLOTS;
  if (tid == 0) {
    for (int s = 0; s < SLOTS; ++s) {
      barrier_(full + 8 * s, 128);
      barrier_(empty + 8 * s, 4 * GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Weights and columns' values are written by nobody: they come while the kernel in front finishes.
  for (int i = tid; i < PARTS * BN * CHUNKS; i += THREADS) {
    const int n = i / CHUNKS, chunk = i % CHUNKS, tap = chunk / PLANES, ky = tap / TAPS, kx = tap % TAPS;
    const bool inside = n < N && kx < KW;
    copy_(weights + ((n / BN * CHUNKS + chunk) * BN + n % BN) * 16, inside ? reinterpret_cast<const u8*>(in1) + ((i64)n * ($KH$ * KW) + ky * KW + kx) * (PLANES * 16) + chunk % PLANES * 16 : reinterpret_cast<const u8*>(in1), inside ? 16 : 0);
  }
  for (int part = 0; part < PARTS; ++part) {
    const int n0 = part * BN;
$COLUMNS$
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  await_(eager);
  if (group == GROUPS) {
    int turn = 0;
    for (int strip = blockIdx.x; strip < TOTAL; strip += gridDim.x, ++turn) {
      const int s = turn % SLOTS, image = strip / STRIPS, y0 = strip % STRIPS * ROWS;
      if (turn >= SLOTS) pass_(empty + 8 * s, (turn / SLOTS - 1) & 1);
      const u8* from = reinterpret_cast<const u8*>(in0) + (i64)image * (H * (i64)W * (PLANES * 16));
      const u32 to = slots + s * SLOT;
#pragma unroll 4
      for (int i = tid & 127; i < IN_ROWS * WIDE * PLANES; i += 128) {
        const int plane = i % PLANES, pixel = i / PLANES, y = pixel / WIDE, x = pixel % WIDE, iy = y0 + y - $TOP$, ix = x - $LEFT$;
        const bool inside = iy >= 0 && iy < H && ix >= 0 && ix < W;
        copy_(to + plane * PLANE + pixel * 16, inside ? from + (iy * W + ix) * (PLANES * 16) + plane * 16 : from, inside ? 16 : 0);
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full + 8 * s) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
  $ACC$ sum[1][$NR$];
#pragma unroll
  for (int j = 0; j < $NR$; ++j) sum[0][j] = 0;
  int turn = 0;
  for (int strip = blockIdx.x; strip < TOTAL; strip += gridDim.x, ++turn) {
    const int s = turn % SLOTS, image = strip / STRIPS, y0 = strip % STRIPS * ROWS;
    pass_(full + 8 * s, (turn / SLOTS) & 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies of single threads, read by wgmma
    // Turns go on from strip to strip: no group has more tiles than another.
    for (int job = (group + turn * (GROUPS - TILES * PARTS % GROUPS)) % GROUPS; job < TILES * PARTS; job += GROUPS) {
      const int tile = job / PARTS, part = job % PARTS, n0 = part * BN;
      auto row_at = [&](int r) -> i64 {
        const int v = tile * 64 + r, y = v / WIDE, x = v % WIDE;
        return x < OW && y < ROWS && y0 + y < OH ? ((i64)image * OH + y0 + y) * OW + x : M;
      };
#pragma unroll
      for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[0][j])::"memory");
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      const u32 first = slots + s * SLOT + tile * 1024, columns = weights + part * (CHUNKS * BN * 16);
#pragma unroll $UNROLL$
      for (int step = 0; step < CHUNKS / 2; ++step) {
        const int tap = 2 * step / PLANES, plane = 2 * step % PLANES;
        wgmma_(sum[0], pieces_(first + plane * PLANE + (tap / TAPS * $DH$ * WIDE + tap % TAPS * $DW$) * 16, PLANES == 1 ? $DW$ * 16 : PLANE), pieces_(columns + step * (BN * 32), BN * 16), step > 0);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[0][j])::"memory");
      if (job + GROUPS >= TILES * PARTS && lane == 0) arrive_(empty + 8 * s, 0);
$FRAGMENTS$
    }
  }
}
)CUDA";

struct Shape {
  double cost = 0;
  std::int64_t rows = 1, plane = 0;
  int groups = 3, slots = 0, shared_bytes = 0;
};

// Bytes of a plane, such that the planes of a pixel lie in different banks.
std::int64_t plane_pitch(const ConvGeometry& g, const WindowSetup& s, std::int64_t rows) {
  return plane_bytes(g, s, rows) + (s.planes > 1 ? 128 / s.planes : 0);
}

std::vector<Shape> shapes(const PlanLayer& layer, const WindowSetup& s, int n, std::int64_t parts) {
  const ConvGeometry& g = layer.conv;
  std::vector<Shape> list;
  for (const std::int64_t rows : {2, 4, 7, 8, 14, 16, 28})
    for (const int groups : {3, 6}) {
      if (rows >= 2 * g.oh) continue;
      Shape t;
      t.rows = rows, t.groups = groups, t.plane = plane_pitch(g, s, rows);
      const std::int64_t strips = g.n * ((g.oh + rows - 1) / rows), tiles = (rows * s.wide + 63) / 64 * parts,
                         weights = parts * s.chunks * n * 16, slot = s.planes * t.plane;
      // Every group has a tile in each strip: what frees it.
      if (tiles < groups || strips < 2 * 132 / 2) continue;
      const std::int64_t room = 224 * 1024 - weights - columns_bytes(layer, static_cast<int>(parts), n);
      t.slots = static_cast<int>(std::min<std::int64_t>(room / slot, 6));
      if (t.slots < 2) continue;
      t.shared_bytes = static_cast<int>(weights + t.slots * slot);
      // A tile's sums, a strip's beginning; what is not hidden while the ring is filled first.
      const double each = static_cast<double>(s.chunks) / 2 * 32 + n * 6.0;
      t.cost = static_cast<double>((strips + 131) / 132) * (static_cast<double>(tiles) * each + 200) +
               static_cast<double>(slot) / 16 + (groups == 3 ? 500 : 0);
      list.push_back(t);
    }
  std::stable_sort(list.begin(), list.end(), [](const Shape& a, const Shape& b) { return a.cost < b.cost; });
  if (list.size() > 3) list.resize(3);
  return list;
}

}  // namespace

std::vector<KernelSource> strip_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                        std::string& why_not) {
  WindowSetup s;
  why_not = window_setup(plan, layer, s);
  if (!why_not.empty()) return {};
  const ConvGeometry& g = layer.conv;
  if (layer.in[3].present() || has_shortcut(layer)) why_not = "a residual";
  if (std::string(early_weights(plan, layer)) != "true" || !columns_are_weights(plan, layer))
    why_not = "no weights";
  if (g.h * g.w * s.planes * 16 > 0x7FFFFFFF) why_not = "sizes out of range";
  if (!why_not.empty()) return {};
  const bool integer = s.u.x == DType::kI8 || s.u.x == DType::kU8;
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  const int columns = g.m <= 32 ? 32 : g.m <= 64 || g.m % 128 != 0 ? 64 : 128;
  const std::int64_t parts = (g.m + columns - 1) / columns;
  std::vector<KernelSource> sources;
  for (const Shape& t : shapes(layer, s, columns, parts)) {
    KernelSource source;
    source.tactic = fmt::format("strip:{}x{}_g{}_s{}", t.rows, parts * columns, t.groups, t.slots);
    source.block = 128 * (t.groups + 1);
    const std::int64_t strips = (g.oh + t.rows - 1) / t.rows;
    source.grid[0] = std::min<std::int64_t>(strips * g.n, 132);
    source.shared_bytes = t.shared_bytes;
    source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
                  wgmma_helpers(s.u, columns, 1) + window_helpers() +
                  fill(kText, with_geometry({{"PARAMS", parameters(plan, layer, source)},
                                             {"FRAGMENTS", fragment_code(plan, layer, "part")},
                                             {"COLUMNS", columns_code(layer, "part", "tid", source.block)},
                                             {"SHARED", columns_shared(layer, static_cast<int>(parts))},
                                             {"ACC", integer ? "int" : "float"},
                                             {"R", integer ? "r" : "f"},
                                             {"NR", n(columns / 2)},
                                             {"THREADS", n(source.block)},
                                             {"SLOTS", n(t.slots)},
                                             {"PARTS", n(parts)},
                                             {"ROWS", n(t.rows)},
                                             {"IN_ROWS", n(t.rows + (g.kh - 1) * g.dh)},
                                             {"WIDE", n(s.wide)},
                                             {"PLANES", n(s.planes)},
                                             {"PLANE", n(t.plane)},
                                             {"TAPS", n(s.taps)},
                                             {"CHUNKS", n(s.chunks)},
                                             {"UNROLL", n(std::min<std::int64_t>(s.chunks / 2, 36))},
                                             {"STRIPS", n(strips)},
                                             {"TOTAL", n(strips * g.n)},
                                             {"GROUPS", n(t.groups)},
                                             {"BN", n(columns)},
                                             {"M", n(s.u.s.m)},
                                             {"N", n(s.u.s.n)}},
                                            g));
    sources.push_back(std::move(source));
  }
  if (sources.empty()) why_not = "too few strips, or weights and two strips do not fit into shared memory";
  return sources;
}

}  // namespace pare::cuda
