// Products and convolutions on tensor cores by mma.sync: operands stream through shared memory in a ring of
// stages (cp.async), fragments come by ldmatrix, the sums go through shared memory once so that the epilogue
// reads and writes whole vectors. A convolution is the same product with its rows gathered (implicit GEMM).
//
// With few tiles the sum over k is cut into splits: each writes its part to the workspace, and the block that
// comes last adds the parts in order, so the result does not depend on the order of blocks.
//
// Rows of shared memory hold 64 or 128 bytes of k; 16 byte chunks are permuted within a row so that ldmatrix
// meets no bank twice.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/linear_code.h"
#include "engine/cuda/wgmma_code.h"

namespace pare::cuda {
namespace {

struct Tile {
  int m, n, warps_m, warps_n, k_bytes, stages;
};
constexpr Tile kTiles[] = {
    {128, 128, 2, 4, 64, 4}, {128, 128, 2, 4, 128, 3}, {128, 64, 4, 2, 128, 3}, {64, 128, 2, 4, 128, 3},
    {64, 64, 2, 2, 128, 4},  {64, 32, 4, 1, 128, 4},   {32, 64, 1, 4, 128, 4},  {16, 64, 1, 4, 128, 5},
    {256, 64, 8, 1, 64, 4},  {128, 32, 4, 1, 64, 4},
};

const char* kText = R"CUDA(
#define SYNC_() __syncthreads()
__device__ __forceinline__ u32 shared_(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy_(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.$CACHE$.shared.global [%0], [%1], $CHUNK$, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void fragment_(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void mma_($ACC$* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.$MMA$ {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+$R$"(c[0]), "+$R$"(c[1]), "+$R$"(c[2]), "+$R$"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Byte offset of 16 byte chunk `c` of row `r`.
__device__ __forceinline__ int place_(int r, int c) { return r * $KB$ + ((c ^ ($KB$ == 128 ? r & 7 : (r >> 1) & 3)) << 4); }

extern "C" __global__ void __launch_bounds__($THREADS$) kernel($PARAMS$) {
  extern __shared__ __align__(128) u8 memory[];
  constexpr int BM = $BM$, BN = $BN$, KB = $KB$, ES = $ES$, STAGES = $STAGES$, THREADS = $THREADS$;
  constexpr int CHUNK = $CHUNK$, PER_ROW = KB / CHUNK, ROWS = THREADS / PER_ROW, AP = (BM + ROWS - 1) / ROWS, BP = (BN + ROWS - 1) / ROWS;
  constexpr int WM = BM / $WARPS_M$, WN = BN / $WARPS_N$, MI = WM / 16, NI = WN / 8;
  constexpr i64 M = $M$, N = $N$, K = $K$;
  constexpr int TILES_M = $TILES_M$, TILES_N = $TILES_N$, SPLITS = $SPLITS$, STEPS = (int)((K * ES + KB - 1) / KB);
$FINISH$
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp / $WARPS_N$, wn = warp % $WARPS_N$;
  // Neighbouring blocks share columns of a few rows of tiles, so both operands stay in L2.
  constexpr int GROUP = 8;
  const int tile = blockIdx.x, wide = GROUP * TILES_N, first = tile / wide * GROUP;
  const int high = TILES_M - first < GROUP ? TILES_M - first : GROUP;
  const int mt = first + tile % wide % high, nt = tile % wide / high;
  const int m0 = mt * BM, n0 = nt * BN;
  const int split = SPLITS > 1 ? blockIdx.y : 0;
  const i64 batch = SPLITS > 1 ? 0 : blockIdx.y;
  const int begin = (int)((i64)STEPS * split / SPLITS), end = (int)((i64)STEPS * (split + 1) / SPLITS);
  const u8* x = reinterpret_cast<const u8*>(in0) + batch * $STEP_A$ * ES;
  const u8* w = reinterpret_cast<const u8*>(in1) + batch * $STEP_B$ * ES;
  const int chunk = tid % PER_ROW, row0 = tid / PER_ROW;
$ROWS_SETUP$
  const u32 base = shared_(memory);
  constexpr int STAGE = (BM + BN) * KB;
  auto load = [&](int step, int stage, bool load_x, bool load_w) {
    const i64 k = ((i64)step * KB + chunk * CHUNK) / ES;
    const i64 left = (K - k) * ES;
    const int k_bytes = left <= 0 ? 0 : left < CHUNK ? (int)left : CHUNK;
    const u32 a = base + stage * STAGE, b = a + BM * KB;
    if (load_x) {
$LOAD_A$
    }
    if (load_w)
#pragma unroll
    for (int i = 0; i < BP; ++i) {
      const int r = row0 + i * ROWS;
      if (BN % ROWS != 0 && r >= BN) break;
      const bool inside = n0 + r < N && k_bytes > 0;
      copy_(b + place_(r, chunk * CHUNK / 16) + chunk * CHUNK % 16, inside ? w + ((i64)(n0 + r) * $LDB$ + k) * ES : w, inside ? k_bytes : 0);
    }
  };
  $ACC$ sum[MI][NI][4] = {};
  // Weights are written by nobody: their first tiles come while the kernel in front finishes.
  if ($EARLY$)
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s)
      if (begin + s < end) load(begin + s, s, false, true);
  await_(eager);
$STATS$
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (begin + s < end) load(begin + s, s, true, !$EARLY$);
    asm volatile("cp.async.commit_group;");
  }
  for (int step = begin; step < end; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads();
    const int next = step + STAGES - 1;
    if (next < end) load(next, (next - begin) % STAGES, true, true);
    asm volatile("cp.async.commit_group;");
    const u32 a = base + (step - begin) % STAGES * STAGE, b = a + BM * KB;
#pragma unroll
    for (int ks = 0; ks < KB / 32; ++ks) {
      u32 fa[MI][4], fb[(NI + 1) / 2][4];
#pragma unroll
      for (int i = 0; i < MI; ++i) fragment_(fa[i], a + place_(wm * WM + i * 16 + (lane & 15), ks * 2 + (lane >> 4)));
#pragma unroll
      for (int j = 0; j < (NI + 1) / 2; ++j)
        fragment_(fb[j], b + place_(wn * WN + j * 16 + (lane & 7) + ((lane >> 4) << 3), ks * 2 + ((lane >> 3) & 1)));
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int j = 0; j < NI; ++j) mma_(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
  }
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  constexpr int PITCH = BN + 4;
  float* tile_sums = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < MI; ++i)
#pragma unroll
    for (int j = 0; j < NI; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float* to = tile_sums + (wm * WM + i * 16 + h * 8 + (lane >> 2)) * PITCH + wn * WN + j * 8 + (lane & 3) * 2;
        to[0] = (float)sum[i][j][h * 2];
        to[1] = (float)sum[i][j][h * 2 + 1];
      }
  __syncthreads();
  constexpr int V = $V$, ACROSS = BN / V;
$SPLIT$
  for (int i = tid; i < BM * ACROSS; i += THREADS) {
    const int r = i / ACROSS, c = i % ACROSS * V;
    if (m0 + r >= M || n0 + c >= N) continue;
    float v[V];
#pragma unroll
    for (int e = 0; e < V; ++e) v[e] = tile_sums[r * PITCH + c + e];
$ADD_PARTS$
    finish_(v, n0 + c, batch * $STEP_D$ + (i64)(m0 + r) * $LDD$ + n0 + c, m0 + r, r);
  }
}
)CUDA";

const char* kGemmRows = R"CUDA(
  auto row_ = [&](int i) { return m0 + row0 + i * ROWS; };
)CUDA";
const char* kGemmLoad = R"CUDA(
#pragma unroll
    for (int i = 0; i < AP; ++i) {
      const int r = row0 + i * ROWS;
      if (BM % ROWS != 0 && r >= BM) break;
      const bool inside = row_(i) < M && k_bytes > 0;
      copy_(a + place_(r, chunk * CHUNK / 16) + chunk * CHUNK % 16, inside ? x + ((i64)row_(i) * $LDA$ + k) * ES : x, inside ? k_bytes : 0);
    }
)CUDA";
const char* kConvRows = R"CUDA(
  int iy0[AP], ix0[AP];
  i64 image[AP];
#pragma unroll
  for (int i = 0; i < AP; ++i) {
    const u32 m = m0 + row0 + i * ROWS;
    const u32 ox = m % $OW$u, oy = m / $OW$u % $OH$u, n = m / ($OW$u * $OH$u);
    iy0[i] = m < M ? (int)oy * $SH$ - $TOP$ : -1000000;
    ix0[i] = (int)ox * $SW$ - $LEFT$;
    image[i] = (i64)n * ($H$ * $W$ * (i64)$C$);
  }
)CUDA";
const char* kConvLoad = R"CUDA(
    const int tap = (int)k / $C$, c = (int)k - tap * $C$, ky = tap / $KW$, kx = tap - ky * $KW$;
#pragma unroll
    for (int i = 0; i < AP; ++i) {
      const int r = row0 + i * ROWS;
      if (BM % ROWS != 0 && r >= BM) break;
      const int iy = iy0[i] + ky * $DH$, ix = ix0[i] + kx * $DW$;
      const bool inside = iy >= 0 && iy < $H$ && ix >= 0 && ix < $W$ && k_bytes > 0;
      copy_(a + place_(r, chunk * CHUNK / 16) + chunk * CHUNK % 16, inside ? x + (image[i] + ((i64)iy * $W$ + ix) * $C$ + c) * ES : x, inside ? k_bytes : 0);
    }
)CUDA";
const char* kSplit = R"CUDA(
  // Parts of all splits, tile after tile; the last block adds them.
  float* parts = workspace + (i64)tile * SPLITS * BM * BN;
  for (int i = tid; i < BM * BN / 4; i += THREADS) {
    const int r = i / (BN / 4), c = i % (BN / 4) * 4;
    *reinterpret_cast<float4*>(parts + (i64)split * BM * BN + r * BN + c) = *reinterpret_cast<float4*>(tile_sums + r * PITCH + c);
  }
  __threadfence();
  __syncthreads();
  u32* flag = reinterpret_cast<u32*>(memory);
  if (tid == 0) *flag = atomicAdd(counters + tile, 1u);
  __syncthreads();
  const bool last = *flag == SPLITS - 1;
  if (!last) return;
  if (tid == 0) counters[tile] = 0;
  __threadfence();
)CUDA";
struct Setup {
  LinearSizes s;
  DType type;
  int chunk, width;
};

KernelSource mma_kernel(const EnginePlan& plan, const PlanLayer& layer, const Setup& u, const Tile& t,
                        int splits) {
  const ConvGeometry& g = layer.conv;
  const int es = size_of(u.type), threads = 32 * t.warps_m * t.warps_n;
  const std::int64_t tiles_m = (u.s.m + t.m - 1) / t.m, tiles_n = (u.s.n + t.n - 1) / t.n;
  KernelSource source;
  source.tactic = fmt::format("mma:{}x{}x{}_s{}", t.m, t.n, t.k_bytes, t.stages);
  if (splits > 1) {
    source.tactic += fmt::format("_k{}", splits);
    source.workspace_bytes = tiles_m * tiles_n * splits * t.m * t.n * 4;
    source.counters = tiles_m * tiles_n;
  }
  source.block = threads;
  source.grid[0] = tiles_m * tiles_n;
  source.grid[1] = splits > 1 ? splits : u.s.batch;
  source.shared_bytes = std::max(t.stages * (t.m + t.n) * t.k_bytes, t.m * (t.n + 4) * 4);
  const bool integer = u.type == DType::kI8 || u.type == DType::kU8;
  std::vector<std::pair<std::string, std::string>> words = {
      {"PARAMS", parameters(plan, layer, source)},
      {"FINISH", finish_code(plan, layer, u.width)},
      {"STATS", stats_code(layer)},
      {"CACHE", u.chunk == 16 ? "cg" : "ca"},
      {"CHUNK", std::to_string(u.chunk)},
      {"ACC", integer ? "int" : "float"},
      {"R", integer ? "r" : "f"},
      {"MMA", u.type == DType::kU8       ? "m16n8k32.row.col.s32.u8.s8.s32"
              : u.type == DType::kI8     ? "m16n8k32.row.col.s32.s8.s8.s32"
              : u.type == DType::kE4M3FN ? "m16n8k32.row.col.f32.e4m3.e4m3.f32"
              : u.type == DType::kBF16   ? "m16n8k16.row.col.f32.bf16.bf16.f32"
                                         : "m16n8k16.row.col.f32.f16.f16.f32"},
      {"KB", std::to_string(t.k_bytes)},
      {"ES", std::to_string(es)},
      {"THREADS", std::to_string(threads)},
      {"BM", std::to_string(t.m)},
      {"BN", std::to_string(t.n)},
      {"WARPS_M", std::to_string(t.warps_m)},
      {"WARPS_N", std::to_string(t.warps_n)},
      {"STAGES", std::to_string(t.stages)},
      {"M", std::to_string(u.s.m)},
      {"N", std::to_string(u.s.n)},
      {"K", std::to_string(u.s.k)},
      {"TILES_M", std::to_string(tiles_m)},
      {"TILES_N", std::to_string(tiles_n)},
      {"SPLITS", std::to_string(splits)},
      {"STEP_A", std::to_string(u.s.step_a)},
      {"STEP_B", std::to_string(u.s.step_b)},
      {"STEP_D", std::to_string(u.s.batch > 1 ? u.s.step_d : 0)},
      {"LDA", std::to_string(u.s.lda)},
      {"LDB", std::to_string(u.s.ldb)},
      {"LDD", std::to_string(u.s.ldd)},
      {"V", std::to_string(u.width)},
      {"OH", std::to_string(g.oh)},
      {"OW", std::to_string(g.ow)},
      {"SH", std::to_string(g.sh)},
      {"SW", std::to_string(g.sw)},
      {"DH", std::to_string(g.dh)},
      {"DW", std::to_string(g.dw)},
      {"TOP", std::to_string(g.top)},
      {"LEFT", std::to_string(g.left)},
      {"H", std::to_string(g.h)},
      {"W", std::to_string(g.w)},
      {"C", std::to_string(g.c)},
      {"KW", std::to_string(g.kw)},
      {"EARLY", plan.tensors[static_cast<std::size_t>(layer.in[1].tensor)].role == PlanRole::kWeight
                    ? "true"
                    : "false"},
  };
  words.emplace_back("ROWS_SETUP", fill(u.s.conv ? kConvRows : kGemmRows, words));
  words.emplace_back("LOAD_A", fill(u.s.conv ? kConvLoad : kGemmLoad, words));
  words.emplace_back("SPLIT", splits > 1 ? kSplit : "");
  words.emplace_back("ADD_PARTS", splits > 1 ? add_parts_code() : "");
  source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) + fill(kText, words);
  return source;
}

}  // namespace

std::vector<KernelSource> mma_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not) {
  Setup u;
  u.s = linear_sizes(layer);
  u.type = type_of(plan, layer.in[0]);
  const int es = u.type == DType::kUndefined ? 1 : size_of(u.type);
  const auto refuse = [&](const char* why) {
    why_not = why;
    return std::vector<KernelSource>{};
  };
  const DType w = type_of(plan, layer.in[1]);
  const bool codes = (u.type == DType::kI8 || u.type == DType::kU8) && w == DType::kI8;
  if (!codes &&
      (u.type != w || (u.type != DType::kF16 && u.type != DType::kBF16 && u.type != DType::kE4M3FN)))
    return refuse("operands are not float16, bfloat16, E4M3 or int8");
  if (u.s.conv && layer.conv.group != 1) return refuse("groups");
  if (u.s.m > 0x3FFFFFFF || u.s.k > 0x3FFFFFFF) return refuse("sizes beyond 2^30");
  std::int64_t unit = 16;  // bytes that every row start and every pixel is a multiple of
  const auto divides = [&](std::int64_t elements) {
    while (unit > 1 && elements * es % unit != 0) unit /= 2;
  };
  if (u.s.conv) {
    divides(layer.conv.c);
    if (layer.conv.h * layer.conv.w > 0x3FFFFFFF) return refuse("an image beyond 2^30 pixels");
  } else {
    if (layer.in[0].strides[2] != 1 || layer.in[1].strides[2] != 1)
      return refuse("an operand is not contiguous along k");
    divides(u.s.lda);
    divides(layer.in[0].offset);
    divides(u.s.step_a);
    divides(u.s.step_b);
  }
  divides(u.s.ldb);
  divides(layer.in[1].offset);
  if (unit < 4) return refuse("rows do not begin at multiples of 4 bytes");
  u.chunk = static_cast<int>(unit);
  if (layer.in[3].present() && (u.s.ldr != u.s.ldd || (u.s.batch > 1 && u.s.step_r != u.s.step_d)))
    return refuse("residual and output have different strides");
  u.width = epilogue_width(plan, layer, u.s.n);
  if (std::string why = finish_why_not(layer, u.width); !why.empty()) {
    why_not = why;
    return {};
  }
  // The configurations nearest to filling 132 multiprocessors once or more with little waste.
  struct Choice {
    double cost;
    const Tile* tile;
    int splits;
  };
  std::vector<Choice> choices;
  for (const Tile& t : kTiles) {
    if (t.m > 2 * u.s.m && t.m > 16) continue;
    if (t.n > 2 * u.s.n && t.n > 64) continue;
    if (t.k_bytes / u.chunk > 32 * t.warps_m * t.warps_n) continue;
    if (t.n % u.width != 0 || (leaves_sums(layer) && t.n % 32 != 0)) continue;
    const double tiles = static_cast<double>((u.s.m + t.m - 1) / t.m) *
                         static_cast<double>((u.s.n + t.n - 1) / t.n) * static_cast<double>(u.s.batch);
    const double steps = static_cast<double>((u.s.k * es + t.k_bytes - 1) / t.k_bytes) * t.k_bytes / 64;
    for (const int splits : {1, 2, 4, 8}) {
      if (splits > 1 && (u.s.batch > 1 || steps < 4 * splits || tiles * splits > 264)) continue;
      const double waves = std::max(1.0, tiles * splits / 132);
      // Cost in arbitrary units: latency of the loop, plus operand traffic and arithmetic of a tile.
      const double cost = waves * (steps / splits) * (40 + (t.m + t.n) * 0.6 + t.m * t.n * 0.012) +
                          (splits > 1 ? 900 + 60 * splits : 0) + t.m * t.n * 0.1;
      choices.push_back({cost, &t, splits});
    }
  }
  if (choices.empty()) return refuse("no tile fits");
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
  // wgmma was faster wherever it could do a layer at all: two are kept for the comparison.
  WgmmaSetup other;
  const std::size_t most = wgmma_setup(plan, layer, other).empty() ? 2 : 6;
  std::vector<KernelSource> sources;
  for (const Choice& c : choices) {
    if (sources.size() == most) break;
    sources.push_back(mma_kernel(plan, layer, u, *c.tile, c.splits));
  }
  return sources;
}

}  // namespace pare::cuda
