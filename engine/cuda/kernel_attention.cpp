// Attention in one kernel: blocks of queries walk over the keys, with the softmax kept as running maximum and
// sum (Milakov and Gimelshein, arXiv:1805.02867), products on tensor cores by mma.sync. Scores never leave
// registers.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/kernel_source.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
__device__ __forceinline__ u32 shared_(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy_(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void fragment_(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void transposed_(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void mma_(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.$T$.$T$.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 pack_(float low, float high) {
  u32 r; asm("cvt.rn.$T$x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r;
}
__device__ __forceinline__ float power_(float v) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }

extern "C" __global__ void __launch_bounds__($THREADS$) kernel($PARAMS$) {
  extern __shared__ __align__(128) u8 memory[];
  await_(eager);
  constexpr int WARPS = $WARPS$, THREADS = WARPS * 32, BQ = WARPS * 16, BK = $BK$, D = $D$, DP = $DP$, E = $E$, EP = $EP$;
  constexpr int S = $S$, KEYS = $KEYS$, PITCH_D = DP * 2 + 16, PITCH_E = EP * 2 + 16, BLOCKS = (KEYS + BK - 1) / BK;
  constexpr float kScale = $SCALE$, kLog2e = 1.4426950408889634f;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int q0 = blockIdx.x * BQ;
  const i64 h = blockIdx.y, b = blockIdx.z;
  const auto* q = in0 + b * $QB$ + h * $QH$;
  const auto* k = in1 + b * $KB$ + h / $SHARE$ * $KH$;
  const auto* v = in2 + b * $VB$ + h / $SHARE$ * $VH$;
  const u32 sq = shared_(memory), sk = sq + BQ * PITCH_D, sv = sk + 2 * BK * PITCH_D;
  auto load_keys = [&](int block, int stage) {
    for (int i = tid; i < BK * (DP / 8); i += THREADS) {
      const int r = i / (DP / 8), c = i % (DP / 8), key = block * BK + r;
      const bool inside = key < KEYS && c * 8 < D;
      copy_(sk + stage * BK * PITCH_D + r * PITCH_D + c * 16, inside ? k + (i64)key * $KT$ + c * 8 : k, inside ? 16 : 0);
    }
    for (int i = tid; i < BK * (EP / 8); i += THREADS) {
      const int r = i / (EP / 8), c = i % (EP / 8), key = block * BK + r;
      const bool inside = key < KEYS && c * 8 < E;
      copy_(sv + stage * BK * PITCH_E + r * PITCH_E + c * 16, inside ? v + (i64)key * $VT$ + c * 8 : v, inside ? 16 : 0);
    }
  };
  for (int i = tid; i < BQ * (DP / 8); i += THREADS) {
    const int r = i / (DP / 8), c = i % (DP / 8);
    const bool inside = q0 + r < S && c * 8 < D;
    copy_(sq + r * PITCH_D + c * 16, inside ? q + (i64)(q0 + r) * $QS$ + c * 8 : q, inside ? 16 : 0);
  }
  load_keys(0, 0);
  asm volatile("cp.async.commit_group;");
  float most[2] = {-1e30f, -1e30f}, total[2] = {0.f, 0.f};
  float o[EP / 8][4] = {};
  u32 fq[DP / 16][4];
  const int row = q0 + warp * 16 + (lane >> 2);
  for (int block = 0; block < BLOCKS; ++block) {
    if (block + 1 < BLOCKS) load_keys(block + 1, (block + 1) & 1);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    if (block == 0)
#pragma unroll
      for (int d = 0; d < DP / 16; ++d) fragment_(fq[d], sq + (warp * 16 + (lane & 15)) * PITCH_D + (d * 2 + (lane >> 4)) * 16);
    float s[BK / 8][4] = {};
    const u32 keys = sk + (block & 1) * BK * PITCH_D, values = sv + (block & 1) * BK * PITCH_E;
#pragma unroll
    for (int d = 0; d < DP / 16; ++d)
#pragma unroll
      for (int j = 0; j < BK / 16; ++j) {
        u32 f[4];
        fragment_(f, keys + (j * 16 + (lane & 7) + ((lane >> 4) << 3)) * PITCH_D + (d * 2 + ((lane >> 3) & 1)) * 16);
        mma_(s[2 * j], fq[d], f[0], f[1]);
        mma_(s[2 * j + 1], fq[d], f[2], f[3]);
      }
    float high[2] = {most[0], most[1]};
#pragma unroll
    for (int j = 0; j < BK / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = block * BK + j * 8 + (lane & 3) * 2 + (e & 1);
        float f = s[j][e] * (kScale * kLog2e);
$MASK$
        if (key >= KEYS) f = __int_as_float(0xff800000);
        s[j][e] = f;
        high[e >> 1] = fmaxf(high[e >> 1], f);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 1));
      high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 2));
      const float shrink = power_(most[r] - high[r]);
      most[r] = high[r];
      total[r] *= shrink;
#pragma unroll
      for (int e = 0; e < EP / 8; ++e) o[e][2 * r] *= shrink, o[e][2 * r + 1] *= shrink;
    }
#pragma unroll
    for (int j = 0; j < BK / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[j][e] = power_(s[j][e] - most[e >> 1]);
        total[e >> 1] += s[j][e];
      }
#pragma unroll
    for (int j = 0; j < BK / 16; ++j) {
      const u32 p[4] = {pack_(s[2 * j][0], s[2 * j][1]), pack_(s[2 * j][2], s[2 * j][3]), pack_(s[2 * j + 1][0], s[2 * j + 1][1]),
                        pack_(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
      for (int e = 0; e < EP / 16; ++e) {
        u32 f[4];
        transposed_(f, values + (j * 16 + (lane & 15)) * PITCH_E + (e * 2 + (lane >> 4)) * 16);
        mma_(o[2 * e], p, f[0], f[1]);
        mma_(o[2 * e + 1], p, f[2], f[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
    const float scale = $NAN_ZERO$ && total[r] == 0.f ? 0.f : 1.f / total[r];
    const int at = row + r * 8;
    if (at >= S) continue;
    auto* y = out0 + b * $YB$ + h * $YH$ + (i64)at * $YS$ + (lane & 3) * 2;
#pragma unroll
    for (int e = 0; e < EP / 8; ++e) {
      if (e * 8 >= E) continue;
      const float pair[2] = {o[e][2 * r] * scale, o[e][2 * r + 1] * scale};
      store_<2>(y + e * 8, pair);
    }
  }
}
)CUDA";

const char* kPlain = R"CUDA(
// One block a query: scores in shared memory.
__device__ __forceinline__ float all_(float v, bool sum, float* part) {
  for (int o = 16; o > 0; o >>= 1) { const float u = __shfl_xor_sync(0xffffffffu, v, o); v = sum ? v + u : fmaxf(v, u); }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  v = part[0];
  for (int i = 1; i < 4; ++i) v = sum ? v + part[i] : fmaxf(v, part[i]);
  return v;
}
extern "C" __global__ void __launch_bounds__(128) kernel($PARAMS$) {
  extern __shared__ float p[];
  await_(eager);
  __shared__ float part[4];
  const i64 s = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
  const auto* q = in0 + b * $QB$ + h * $QH$ + s * $QS$;
  float most = __int_as_float(0xff800000);
  for (i64 key = threadIdx.x; key < $KEYS$; key += 128) {
    const auto* k = in1 + b * $KB$ + h / $SHARE$ * $KH$ + key * $KT$;
    float f = 0.f;
    for (int d = 0; d < $D$; ++d) f += get_(q[d]) * get_(k[d]);
    f *= $SCALE$;
$MASK$
    p[key] = f;
    most = fmaxf(most, f);
  }
  most = all_(most, false, part);
  float total = 0.f;
  for (i64 key = threadIdx.x; key < $KEYS$; key += 128) total += p[key] = expf(p[key] - most);
  total = all_(total, true, part);
  const float scale = $NAN_ZERO$ && !(most > __int_as_float(0xff800000)) ? 0.f : 1.f / total;
  for (int e = threadIdx.x; e < $E$; e += 128) {
    float f = 0.f;
    for (i64 key = 0; key < $KEYS$; ++key) f += p[key] * get_(in2[b * $VB$ + h / $SHARE$ * $VH$ + key * $VT$ + e]);
    put_(out0[b * $YB$ + h * $YH$ + s * $YS$ + e], scale == 0.f ? 0.f : f * scale);
  }
}
)CUDA";

}  // namespace

std::vector<KernelSource> attention_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not) {
  const PlanView &q = layer.in[0], &k = layer.in[1], &v = layer.in[2], &mask = layer.in[3], &y = layer.out[0];
  const std::int64_t d = q.dims[3], e = v.dims[3], keys = k.dims[2], s = q.dims[2];
  const std::int64_t dp = (d + 15) / 16 * 16, ep = (e + 15) / 16 * 16;
  const DType type = type_of(plan, q);
  if (q.strides[3] != 1 || k.strides[3] != 1 || v.strides[3] != 1 || y.strides[3] != 1) {
    why_not = "an operand is not contiguous along its last axis";
    return {};
  }
  if (q.dims[0] > 65535 || q.dims[1] > 65535) {
    why_not = "more than 65535 heads or samples";
    return {};
  }
  const auto words = [&](const std::string& params, const std::string& mask_at) {
    const auto n = [](std::int64_t i) { return std::to_string(i); };
    return std::vector<std::pair<std::string, std::string>>{
        {"PARAMS", params},
        {"T", type == DType::kBF16 ? "bf16" : "f16"},
        {"D", n(d)},
        {"DP", n(dp)},
        {"E", n(e)},
        {"EP", n(ep)},
        {"S", n(s)},
        {"KEYS", n(keys)},
        {"SCALE", number(static_cast<double>(layer.epilogue.alpha))},
        {"SHARE", n(q.dims[1] / k.dims[1])},
        {"QB", n(q.strides[0])},
        {"QH", n(q.strides[1])},
        {"QS", n(q.strides[2])},
        {"KB", n(k.strides[0])},
        {"KH", n(k.strides[1])},
        {"KT", n(k.strides[2])},
        {"VB", n(v.strides[0])},
        {"VH", n(v.strides[1])},
        {"VT", n(v.strides[2])},
        {"YB", n(y.strides[0])},
        {"YH", n(y.strides[1])},
        {"YS", n(y.strides[2])},
        {"NAN_ZERO", layer.nan_zero ? "true" : "false"},
        {"MASK", mask_at}};
  };
  const auto mask_code = [&](const char* query, const char* factor) {
    if (!mask.present()) return std::string();
    return fmt::format(
        "        if ({0} < {1} && key < {2}) f += get_(in3[b * {3} + h * {4} + (i64)({0}) * {5} + (i64)key * "
        "{6}]){7};\n",
        query, s, keys, mask.strides[0], mask.strides[1], mask.strides[2], mask.strides[3], factor);
  };
  std::vector<KernelSource> sources;
  const auto aligned = [&](const PlanView& view) {
    return view.offset % 8 == 0 && view.strides[0] % 8 == 0 && view.strides[1] % 8 == 0 &&
           view.strides[2] % 8 == 0;
  };
  if ((type == DType::kF16 || type == DType::kBF16) && d % 8 == 0 && e % 8 == 0 && dp <= 128 && ep <= 128 &&
      aligned(q) && aligned(k) && aligned(v) && type_of(plan, y) == type) {
    for (const auto& [warps, block] :
         std::vector<std::pair<int, int>>{{4, 64}, {2, 64}, {1, 64}, {4, 32}, {8, 64}}) {
      if (warps > 1 && warps * 8 >= s && warps != 4) continue;
      KernelSource source;
      source.tactic = fmt::format("attention:mma_{}x{}", warps * 16, block);
      source.block = warps * 32;
      source.grid[0] = (s + warps * 16 - 1) / (warps * 16);
      source.grid[1] = q.dims[1];
      source.grid[2] = q.dims[0];
      source.shared_bytes =
          static_cast<int>((warps * 16 + 2 * block) * (dp * 2 + 16) + 2 * block * (ep * 2 + 16));
      auto w = words(parameters(plan, layer, source), mask_code("row + (e >> 1) * 8", " * kLog2e"));
      w.emplace_back("WARPS", std::to_string(warps));
      w.emplace_back("THREADS", std::to_string(warps * 32));
      w.emplace_back("BK", std::to_string(block));
      source.code = fill(kText, w);
      sources.push_back(std::move(source));
    }
  } else {
    why_not = "tensor cores: needs float16 or bfloat16, heads of at most 128, sizes and strides in eights";
  }
  if (keys <= 12000) {
    KernelSource source;
    source.tactic = "attention:plain";
    source.block = 128;
    source.grid[0] = s;
    source.grid[1] = q.dims[1];
    source.grid[2] = q.dims[0];
    source.shared_bytes = static_cast<int>(keys * 4);
    source.code = fill(kPlain, words(parameters(plan, layer, source), mask_code("s", "")));
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
