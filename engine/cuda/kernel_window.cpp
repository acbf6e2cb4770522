// Convolutions with stride 1 whose windows lie in shared memory: a block takes some rows of an image, with
// what the windows reach over, and wgmma reads the operands of every tap out of that one copy. An image's
// first layer after space-to-depth (pixels of 16 bytes) and 3x3 layers.
// window_code.h says how they lie there.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/cuda/window_code.h"

namespace pare::cuda {

const char* window_helpers() {
  return R"CUDA(
__device__ __forceinline__ void copy_(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
// Neighbours along k stand `across` bytes apart, the next eight rows 128.
__device__ __forceinline__ u64 pieces_(u32 at, u32 across) { return (u64)((at & 0x3FFFF) >> 4) | (u64)(across >> 4) << 16 | 8ull << 32; }
)CUDA";
}

std::int64_t plane_bytes(const ConvGeometry& g, const WindowSetup& s, std::int64_t rows) {
  const std::int64_t tiles = (rows * s.wide + 63) / 64;
  const std::int64_t read = tiles * 64 + (g.kh - 1) * g.dh * s.wide + (s.taps - 1) * g.dw,
                     filled = (rows + (g.kh - 1) * g.dh) * s.wide;
  return (std::max(read, filled) * 16 + 127) / 128 * 128;
}

std::string window_setup(const EnginePlan& plan, const PlanLayer& layer, WindowSetup& s) {
  if (layer.kind != LayerKind::kConv) return "not a convolution";
  const ConvGeometry& g = layer.conv;
  s.u.s = linear_sizes(layer);
  s.u.x = type_of(plan, layer.in[0]), s.u.w = type_of(plan, layer.in[1]);
  const bool codes = (s.u.x == DType::kI8 || s.u.x == DType::kU8) && s.u.w == DType::kI8;
  if (!codes &&
      (s.u.x != s.u.w || (s.u.x != DType::kF16 && s.u.x != DType::kBF16 && s.u.x != DType::kE4M3FN)))
    return "operands are not float16, bfloat16, E4M3 or int8";
  if (g.group != 1) return "groups";
  if (g.sh != 1 || g.sw != 1) return "strides";
  if (g.kh * g.kw < 2) return "one pixel a window";
  const std::int64_t bytes = g.c * size_of(s.u.x);
  if (bytes != 16 && bytes != 32 && bytes != 64 && bytes != 128)
    return "pixels are not 16, 32, 64 or 128 bytes";
  if (layer.in[0].offset * size_of(s.u.x) % 16 != 0 || layer.in[1].offset * size_of(s.u.w) % 16 != 0)
    return "rows do not begin at multiples of 16 bytes";
  if (!has_fragment_code(plan, layer)) return "columns not in eights";
  if (leaves_sums(layer) || normalizes(layer)) return "rows that are normalized";
  if (g.rows() > 0x3FFFFFFF || g.h * g.w > 0x3FFFFFF || g.ow > 4096) return "sizes out of range";
  s.planes = bytes / 16;
  s.taps = s.planes == 1 ? (g.kw + 1) / 2 * 2 : g.kw;
  s.wide = g.ow + (s.taps - 1) * g.dw;
  s.chunks = g.kh * s.taps * s.planes;
  return "";
}

namespace {

const char* kText = R"CUDA(
extern "C" __global__ void __launch_bounds__($THREADS$, $BLOCKS$) kernel($PARAMS$) {
  extern __shared__ __align__(128) u8 memory[];
  constexpr int ROWS = $ROWS$, WIDE = $WIDE$, PLANES = $PLANES$, PLANE = $PLANE$, TAPS = $TAPS$, KW = $KW$, BN = $BN$, MI = 1, GROUPS = $GROUPS$;
  constexpr int THREADS = $THREADS$, IN_ROWS = $IN_ROWS$, CHUNKS = $CHUNKS$, TILES = (ROWS * WIDE + 63) / 64, STRIPS = $STRIPS$;
  constexpr int OH = $OH$, OW = $OW$, H = $H$, W = $W$;
  constexpr i64 M = $M$, N = $N$;
#define FIRST_ROW 0
#define ROW_AT(r) row_at(r)
$SHARED$
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = tid >> 7;
  const int strip = blockIdx.x % STRIPS, image = blockIdx.x / STRIPS, y0 = strip * ROWS, n0 = blockIdx.y * BN;
  const u32 windows = shared_(memory), weights = windows + PLANES * PLANE;
  // Weights are written by nobody: they come while the kernel in front finishes.
  for (int i = tid; i < BN * CHUNKS; i += THREADS) {
    const int n = i / CHUNKS, chunk = i % CHUNKS, tap = chunk / PLANES, ky = tap / TAPS, kx = tap % TAPS;
    const bool inside = n0 + n < N && kx < KW;
    copy_(weights + (chunk * BN + n) * 16, inside ? reinterpret_cast<const u8*>(in1) + ((i64)(n0 + n) * ($KH$ * KW) + ky * KW + kx) * (PLANES * 16) + chunk % PLANES * 16 : reinterpret_cast<const u8*>(in1), inside ? 16 : 0);
  }
  await_(eager);
$COLUMNS$
  for (int i = tid; i < IN_ROWS * WIDE * PLANES; i += THREADS) {
    const int plane = i % PLANES, pixel = i / PLANES, y = pixel / WIDE, x = pixel % WIDE, iy = y0 + y - $TOP$, ix = x - $LEFT$;
    const bool inside = iy >= 0 && iy < H && ix >= 0 && ix < W;
    copy_(windows + plane * PLANE + pixel * 16, inside ? reinterpret_cast<const u8*>(in0) + (((i64)image * H + iy) * W + ix) * (PLANES * 16) + plane * 16 : reinterpret_cast<const u8*>(in0), inside ? 16 : 0);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  for (int tile = group; tile < TILES; tile += GROUPS) {
    auto row_at = [&](int r) -> i64 {
      const int v = tile * 64 + r, y = v / WIDE, x = v % WIDE;
      return x < OW && y < ROWS && y0 + y < OH ? ((i64)image * OH + y0 + y) * OW + x : M;
    };
$RESIDUAL$
    $ACC$ sum[1][$NR$];
#pragma unroll
    for (int j = 0; j < $NR$; ++j) sum[0][j] = 0;
#pragma unroll
    for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[0][j])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    const u32 first = windows + tile * 1024;
#pragma unroll $UNROLL$
    for (int step = 0; step < CHUNKS / 2; ++step) {
      const int tap = 2 * step / PLANES, plane = 2 * step % PLANES;
      wgmma_(sum[0], pieces_(first + plane * PLANE + (tap / TAPS * $DH$ * WIDE + tap % TAPS * $DW$) * 16, PLANES == 1 ? $DW$ * 16 : PLANE), pieces_(weights + step * (BN * 32), BN * 16), 1);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int j = 0; j < $NR$; ++j) asm volatile("" : "+$R$"(sum[0][j])::"memory");
$FRAGMENTS$
  }
}
)CUDA";

struct Shape {
  double cost = 0;
  std::int64_t rows = 1;
  int n = 32, groups = 1, blocks = 1, shared_bytes = 0;
};

// Cycles, roughly: filling shared memory, sums, finishing them.
std::vector<Shape> shapes(const EnginePlan& plan, const PlanLayer& layer, const WindowSetup& s) {
  const ConvGeometry& g = layer.conv;
  std::vector<Shape> list;
  for (const int n : {32, 64, 128})
    for (const std::int64_t rows : {1, 2, 4, 7, 8, 14, 28})
      for (const int groups : {1, 2, 4}) {
        if ((n > 32 && n >= 2 * g.m) || (rows > 1 && rows >= 2 * g.oh)) continue;
        Shape t;
        t.rows = rows, t.n = n, t.groups = groups;
        const std::int64_t bytes = s.planes * plane_bytes(g, s, rows) + s.chunks * n * 16,
                           tiles = (rows * s.wide + 63) / 64;
        if (bytes > 220 * 1024 || (groups > 1 && groups > tiles)) continue;
        t.shared_bytes = static_cast<int>(bytes);
        const int registers = (n / 2 + fragment_residual_registers(plan, layer, 1, n) + 72 + 7) / 8 * 8;
        t.blocks = static_cast<int>(std::clamp<std::int64_t>(
            std::min<std::int64_t>(65536 / (128 * groups * registers), 225 * 1024 / (bytes + 2048)), 1, 8));
        if (65536 / (128 * groups * registers) < 1) continue;
        const double blocks = static_cast<double>(g.n * ((g.oh + rows - 1) / rows) * ((g.m + n - 1) / n)),
                     together = std::min(static_cast<double>(t.blocks), std::ceil(blocks / 132)),
                     values = static_cast<double>(tiles * 64 * n),
                     sums = static_cast<double>(tiles * s.chunks / 2) * std::max(n / 2.0, 16.0) * together,
                     end = values * 16 / 128 * together, load = static_cast<double>(bytes) / 40 * together;
        t.cost = std::ceil(blocks / (132.0 * t.blocks)) *
                 (2000 + load + std::max(sums, end) + std::min(sums, end) / (together * groups));
        list.push_back(t);
      }
  std::stable_sort(list.begin(), list.end(), [](const Shape& a, const Shape& b) { return a.cost < b.cost; });
  // Rows are what the estimate knows least about: at most two with as many.
  std::vector<Shape> kept;
  for (const Shape& t : list)
    if (kept.size() < 6 &&
        std::count_if(kept.begin(), kept.end(), [&](const Shape& k) { return k.rows == t.rows; }) < 2)
      kept.push_back(t);
  return kept;
}

}  // namespace

std::vector<KernelSource> window_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                         std::string& why_not) {
  WindowSetup s;
  why_not = window_setup(plan, layer, s);
  // Wider ones lost to the copy engine and to the libraries: 3x3 of 128 bytes (docs/performance-gpu.md).
  if (why_not.empty() && s.planes > 4) why_not = "pixels of more than 64 bytes";
  if (!why_not.empty()) return {};
  const ConvGeometry& g = layer.conv;
  const bool integer = s.u.x == DType::kI8 || s.u.x == DType::kU8;
  const auto n = [](std::int64_t v) { return std::to_string(v); };
  std::vector<KernelSource> sources;
  for (const Shape& t : shapes(plan, layer, s)) {
    KernelSource source;
    source.tactic = fmt::format("window:{}x{}_g{}", t.rows, t.n, t.groups);
    source.block = 128 * t.groups;
    const std::int64_t strips = (g.oh + t.rows - 1) / t.rows;
    source.grid[0] = strips * g.n;
    source.grid[1] = (g.m + t.n - 1) / t.n;
    if (source.grid[1] > 65535) continue;
    source.shared_bytes = t.shared_bytes;
    const bool loaded = fragment_residual_registers(plan, layer, 1, t.n) > 0;
    source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
                  wgmma_helpers(s.u, t.n, 1) + window_helpers() +
                  fill(kText, with_geometry({{"PARAMS", parameters(plan, layer, source)},
                                             {"FRAGMENTS", fragment_code(plan, layer, "0", loaded)},
                                             {"RESIDUAL", loaded ? fragment_residual_code(plan, layer) : ""},
                                             {"COLUMNS", columns_code(layer, "0", "tid", source.block)},
                                             {"SHARED", columns_shared(layer, 1)},
                                             {"ACC", integer ? "int" : "float"},
                                             {"R", integer ? "r" : "f"},
                                             {"NR", n(t.n / 2)},
                                             {"THREADS", n(source.block)},
                                             {"BLOCKS", n(t.blocks)},
                                             {"ROWS", n(t.rows)},
                                             {"IN_ROWS", n(t.rows + (g.kh - 1) * g.dh)},
                                             {"WIDE", n(s.wide)},
                                             {"PLANES", n(s.planes)},
                                             {"PLANE", n(plane_bytes(g, s, t.rows))},
                                             {"TAPS", n(s.taps)},
                                             {"CHUNKS", n(s.chunks)},
                                             {"UNROLL", n(std::min<std::int64_t>(s.chunks / 2, 32))},
                                             {"STRIPS", n(strips)},
                                             {"GROUPS", n(t.groups)},
                                             {"BN", n(t.n)},
                                             {"M", n(s.u.s.m)},
                                             {"N", n(s.u.s.n)}},
                                            g));
    sources.push_back(std::move(source));
  }
  if (sources.empty()) why_not = "windows and weights do not fit into shared memory";
  return sources;
}

}  // namespace pare::cuda
