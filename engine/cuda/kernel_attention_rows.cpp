// Attention over few keys on wgmma: a warpgroup holds all scores of 64 queries in registers, so the softmax
// takes one pass even where probabilities are rounded to codes by the sum of their row, and keys and values
// are read once.
//
// Rows of 64 numbers (128 bytes) lie in shared memory in wgmma's 128 byte swizzle. Values are the second
// operand with their keys along k, so that operand is read transposed. Codes become 16 bit numbers on their
// way in; queries and keys that are E4M3 both stay what they are.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/attention_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
__device__ __forceinline__ u32 shared_(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u32 pack_(float low, float high) {
  u32 r; asm("cvt.rn.$T$x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r;
}
__device__ __forceinline__ float power_(float v) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
__device__ __forceinline__ u64 describe_(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
__device__ __forceinline__ u64 describe_codes_(u32 at) { return (u64)((at & 0x3FFFF) >> 4) | (1ull << 16) | (32ull << 32) | (2ull << 62); }
__device__ __forceinline__ void scores_(float (&d)[$NS$], u64 a, u64 b, i32 on) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, $S_ON$, 0;\nwgmma.mma_async.sync.aligned.m64n$KP$$S_TYPES$ {$S_REGS$}, $S_A$, $S_B$, p, 1, 1$S_FLAGS$;\n}\n"
               : $S_BOUND$ : "l"(a), "l"(b), "r"(on));
}
__device__ __forceinline__ void values_(float (&d)[32], const u32* a, u64 b, i32 on) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.$T$.$T$ {$O_REGS$}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
               : $O_BOUND$ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(on));
}
// Eight codes as 16 bit numbers, exactly.
template <typename C> __device__ __forceinline__ void widen_(const C*, uint2 codes, u32* o) {
  Vec<C, 8> v; *reinterpret_cast<uint2*>(&v) = codes;
#pragma unroll
  for (int i = 0; i < 4; ++i) o[i] = pack_(get_(v.v[2 * i]), get_(v.v[2 * i + 1]));
}
$PAIRS$
// N rows of 64 to shared memory, `limit` of them from memory, the others 0.
template <int N> __device__ __forceinline__ void rows_(u32 to, const $W$* from, i64 pitch, int limit) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    const int r = k * 16 + (threadIdx.x >> 3), c = threadIdx.x & 7;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + r * 128 + ((c ^ (r & 7)) << 4)), "l"(r < limit ? from + r * pitch + c * 8 : from), "r"(r < limit ? 16 : 0) : "memory");
  }
}
template <int N, typename C> __device__ __forceinline__ void rows_(u32 to, const C* from, i64 pitch, int limit) {
  constexpr int MOST = N / 16 < 16 ? N / 16 : 16;
#pragma unroll
  for (int k0 = 0; k0 < N / 16; k0 += MOST) {
    uint2 codes[MOST];
#pragma unroll
    for (int k = 0; k < MOST; ++k) {
      if (k0 + k >= N / 16) break;
      const int r = (k0 + k) * 16 + (threadIdx.x >> 3), c = threadIdx.x & 7;
      codes[k] = uint2{0u, 0u};
      if (r < limit) codes[k] = *reinterpret_cast<const uint2*>(from + r * pitch + c * 8);
    }
#pragma unroll
    for (int k = 0; k < MOST; ++k) {
      if (k0 + k >= N / 16) break;
      const int r = (k0 + k) * 16 + (threadIdx.x >> 3), c = threadIdx.x & 7;
      u32 o[4];
      widen_(from, codes[k], o);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + r * 128 + ((c ^ (r & 7)) << 4)), "r"(o[0]), "r"(o[1]), "r"(o[2]), "r"(o[3]) : "memory");
    }
  }
}
// The same of codes that stay codes: rows of 64 bytes in the 64 byte swizzle.
template <int N> __device__ __forceinline__ void code_rows_(u32 to, const void* from, i64 pitch, int limit) {
#pragma unroll
  for (int k = 0; k < (N + 31) / 32; ++k) {
    const int r = k * 32 + (threadIdx.x >> 2), c = threadIdx.x & 3;
    if (r < N) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + r * 64 + ((c ^ (r >> 1 & 3)) << 4)), "l"(reinterpret_cast<const u8*>(from) + (r < limit ? r * pitch + c * 16 : 0)), "r"(r < limit ? 16 : 0) : "memory");
  }
}

extern "C" __global__ void __launch_bounds__(128, $BLOCKS$) kernel($PARAMS$) {
  extern __shared__ __align__(1024) u8 raw_memory[];
  await_(eager);
  constexpr int S = $S$, KEYS = $KEYS$, KP = $KP$, TILES = $TILES$, NS = KP / 2;
  constexpr int ROW = $ROW$, QUERIES = 64 * ROW;  // bytes of a key in shared memory, of a tile of queries
  // A positive factor of the scores waits until the largest has been taken away: one instruction less a score.
  constexpr float kScale = $SCALE$, kLog2e = 1.4426950408889634f;
  constexpr float kBefore = $LATE$ ? 1.f : kScale * kLog2e, kAfter = $LATE$ ? kScale * kLog2e : 1.f;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const i64 h = blockIdx.y, b = blockIdx.z;
  const auto* q = in0 + b * $QB$ + h * $QH$;
  const auto* k = in1 + b * $KB$ + h / $SHARE$ * $KH$;
  const auto* v = in2 + b * $VB$ + h / $SHARE$ * $VH$;
  const u32 sk = (shared_(raw_memory) + 1023) & ~1023u, sv = sk + (KP * ROW + 1023) / 1024 * 1024, sq = sv + KP * 128;
  const int first = blockIdx.x * TILES * 64;
  $LOAD$<64>(sq, q + (i64)first * $QS$, $QS$, S - first);
  $LOAD$<KP>(sk, k, $KT$, KEYS);
  asm volatile("cp.async.commit_group;" ::: "memory");
  rows_<KP>(sv, v, $VT$, KEYS);
  asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll 1
  for (int t = 0; t < TILES; ++t) {
    const int q0 = first + t * 64;
    if (q0 >= S) break;
    if (t == 0)
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t + 1 < TILES) {
      const int next = q0 + 64;
      if (next < S) $LOAD$<64>(sq + ((t + 1) & 1) * QUERIES, q + (i64)next * $QS$, $QS$, S - next);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    float s[NS];
    const u64 dq = $DESCRIBE$(sq + (t & 1) * QUERIES), dk = $DESCRIBE$(sk), dv = describe_(sv);
#pragma unroll
    for (int j = 0; j < NS; ++j) s[j] = 0.f;
#pragma unroll
    for (int j = 0; j < NS; ++j) asm volatile("" : "+f"(s[j])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int part = 0; part < ROW / 32; ++part) scores_(s, dq + part * 2, dk + part * 2, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int j = 0; j < NS; ++j) asm volatile("" : "+f"(s[j])::"memory");
    const int row = q0 + warp * 16 + (lane >> 2);
    float high[4] = {-1e30f, -1e30f, -1e30f, -1e30f}, total[4] = {0.f, 0.f, 0.f, 0.f}, inverse[2] = {0.f, 0.f};
    // A warp without any query of this tile has nothing to do but the products; what they give is not stored.
    if (q0 + warp * 16 < S) {
#pragma unroll
    for (int j = 0; j < KP / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = j * 8 + (lane & 3) * 2 + (e & 1);
        float f = s[j * 4 + e] * kBefore;
$MASK$
        if (j * 8 + 8 > KEYS && key >= KEYS) f = __int_as_float(0xff800000);
        s[j * 4 + e] = f;
        high[e] = fmaxf(high[e], f);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      high[r] = fmaxf(high[2 * r], high[2 * r + 1]);
      high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 1));
      high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 2)) * -kAfter;
    }
#pragma unroll
    for (int j = 0; j < NS; ++j) {
      s[j] = power_(fmaf(s[j], kAfter, high[(j >> 1) & 1]));
      total[j & 3] += s[j];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] = total[2 * r] + total[2 * r + 1];
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
      inverse[r] = $NAN_ZERO$ && total[r] == 0.f ? 0.f : $UNITS$ / total[r];
    }
    if ($EXACT$)
#pragma unroll
      for (int j = 0; j < NS; ++j) {
        float p = s[j] * inverse[(j >> 1) & 1];
$POST_OF_UNITS$
        s[j] = p;
      }
    }
    u32 p[NS / 2];
#pragma unroll
    for (int j = 0; j < NS / 2; ++j) p[j] = $PACK$(s[2 * j], s[2 * j + 1]);
    if (t == 0) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
    }
    float o[32];
#pragma unroll
    for (int j = 0; j < 32; ++j) o[j] = 0.f;
#pragma unroll
    for (int j = 0; j < 32; ++j) asm volatile("" : "+f"(o[j])::"memory");
#pragma unroll
    for (int j = 0; j < NS / 2; ++j) asm volatile("" : "+r"(p[j])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int c = 0; c < KP / 16; ++c) values_(o, p + 4 * c, dv + c * 128, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int j = 0; j < 32; ++j) asm volatile("" : "+f"(o[j])::"memory");
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = row + r * 8;
      const float scale = $R_SCALE$ * ($EXACT$ ? 1.f : inverse[r]);
      auto* y = out0 + b * $YB$ + h * $YH$ + (i64)at * $YS$ + (lane & 3) * 8;
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        // Four lanes hold pairs of the same 32 columns: exchanged so that each has eight neighbours.
        u32 w[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) w[j] = pair_(out0, $OUT$(o[(g * 4 + j) * 4 + 2 * r] * scale), $OUT$(o[(g * 4 + j) * 4 + 2 * r + 1] * scale));
        {
          const u32 a = __shfl_xor_sync(0xffffffffu, lane & 1 ? w[0] : w[1], 1), c = __shfl_xor_sync(0xffffffffu, lane & 1 ? w[2] : w[3], 1);
          if (lane & 1) w[0] = a, w[2] = c; else w[1] = a, w[3] = c;
          const u32 e = __shfl_xor_sync(0xffffffffu, lane & 2 ? w[0] : w[2], 2), f = __shfl_xor_sync(0xffffffffu, lane & 2 ? w[1] : w[3], 2);
          if (lane & 2) w[0] = e, w[1] = f; else w[2] = e, w[3] = f;
        }
        if (at < S) $STORE$;
      }
    }
  }
}
)CUDA";

const char* kPairsOfCodes = R"CUDA(
__device__ __forceinline__ void widen_(const E4M3*, uint2 codes, u32* o) {
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(o[0]) : "h"((u16)codes.x));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(o[1]) : "h"((u16)(codes.x >> 16)));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(o[2]) : "h"((u16)codes.y));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(o[3]) : "h"((u16)(codes.y >> 16)));
}
__device__ __forceinline__ u32 pack_codes_(float low, float high) {
  u16 codes; u32 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(codes));
  return r;
}
)CUDA";

// "%0, %1, ..." and "\"+f\"(d[0]), ...".
std::string registers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  return text;
}
std::string bound(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}\"+f\"(d[{}])", i == 0 ? "" : ", ", i);
  return text;
}

}  // namespace

std::vector<KernelSource> attention_rows_kernels(const EnginePlan& plan, const PlanLayer& layer) {
  const PlanView &q = layer.in[0], &k = layer.in[1], &v = layer.in[2], &y = layer.out[0];
  const std::int64_t s = q.dims[2], keys = k.dims[2];
  const AttentionCode text = attention_code(plan, layer);
  const DType out = type_of(plan, y);
  if (q.dims[3] != 64 || v.dims[3] != 64 || keys > 256 || keys < 1 ||
      (out != text.type && out != DType::kI8 && out != DType::kE4M3FN))
    return {};
  for (const PlanView* view : {&q, &k, &v, &y}) {
    const DType t = type_of(plan, *view);
    if ((view != &y && t != text.type && t != DType::kI8 && t != DType::kE4M3FN) || view->offset % 8 != 0 ||
        view->strides[0] % 8 != 0 || view->strides[1] % 8 != 0 || view->strides[2] % 8 != 0)
      return {};
  }
  const int padded = static_cast<int>((keys + 15) / 16 * 16), sums = padded / 2;
  const std::int64_t tiles = (s + 63) / 64;
  std::vector<KernelSource> sources;
  // Queries and keys that are E4M3 both can be multiplied as they are.
  bool codes = type_of(plan, q) == DType::kE4M3FN && type_of(plan, k) == DType::kE4M3FN;
  for (const PlanView* view : {&q, &k})
    for (const std::int64_t elements : {view->offset, view->strides[0], view->strides[1], view->strides[2]})
      codes = codes && elements % 16 == 0;
  for (const int each : {1, 2, 4}) {
    if (each > 1 && each >= 2 * tiles) continue;
    // Blocks that wait for their operands leave others to work: two to four on a multiprocessor.
    const int row = codes ? 64 : 128, bytes = (padded * row + 1023) / 1024 * 1024 + padded * 128 +
                                              (each > 1 ? 2 : 1) * 64 * row + 1024;
    const int blocks = std::clamp(std::min(65536 / 128 / (sums + 64), 227 * 1024 / bytes), 1, 4);
    KernelSource source;
    source.tactic = fmt::format("attention:rows_{}x{}", 64 * each, padded);
    if (codes) source.tactic += "_c";
    source.block = 128;
    source.grid[0] = (tiles + each - 1) / each;
    source.grid[1] = q.dims[1];
    source.grid[2] = q.dims[0];
    source.shared_bytes = bytes;
    auto words = text.words;
    words.emplace_back("PARAMS", parameters(plan, layer, source));
    words.emplace_back("MASK", attention_mask_code(layer, "row + (e >> 1) * 8", " * kLog2e"));
    words.emplace_back("LATE", !layer.in[3].present() && layer.epilogue.alpha > 0 ? "true" : "false");
    words.emplace_back("ROW", std::to_string(row));
    words.emplace_back("LOAD", codes ? "code_rows_" : "rows_");
    words.emplace_back("DESCRIBE", codes ? "describe_codes_" : "describe_");
    const char* word = text.type == DType::kBF16 ? "bf16" : "f16";
    words.emplace_back("S_TYPES", codes ? "k32.f32.e4m3.e4m3" : fmt::format("k16.f32.{0}.{0}", word));
    words.emplace_back("S_FLAGS", codes ? "" : ", 0, 0");
    words.emplace_back("KP", std::to_string(padded));
    words.emplace_back("NS", std::to_string(sums));
    words.emplace_back("TILES", std::to_string(each));
    words.emplace_back("BLOCKS", std::to_string(blocks));
    words.emplace_back("S_REGS", registers(sums));
    words.emplace_back("S_BOUND", bound(sums));
    words.emplace_back("S_A", fmt::format("%{}", sums));
    words.emplace_back("S_B", fmt::format("%{}", sums + 1));
    words.emplace_back("S_ON", fmt::format("%{}", sums + 2));
    words.emplace_back("O_REGS", registers(32));
    words.emplace_back("O_BOUND", bound(32));
    words.emplace_back("PAIRS", text.type == DType::kF16 ? kPairsOfCodes : "");
    words.emplace_back(
        "STORE", bits(out) == 8 ? "*reinterpret_cast<uint2*>(y + g * 32) = uint2{w[0] | w[1] << 16, "
                                  "w[2] | w[3] << 16}"
                                : "*reinterpret_cast<uint4*>(y + g * 32) = uint4{w[0], w[1], w[2], w[3]}");
    source.code = text.finish + fill(kText, words);
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
