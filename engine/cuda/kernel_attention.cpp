// Attention in one kernel: blocks of queries walk over the keys, with the softmax kept as running maximum and
// sum (Milakov and Gimelshein, arXiv:1805.02867), products on tensor cores by mma.sync. Scores never leave
// registers.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/program.h"
#include "engine/cuda/attention_code.h"
#include "engine/cuda/program_code.h"

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
// Eight values to shared memory as 16 bit numbers: copied, or converted from codes (exactly).
__device__ __forceinline__ void eight_(u32 to, const $W$* from, bool inside) { copy_(to, from, inside ? 16 : 0); }
$EIGHT$
template <typename C> __device__ __forceinline__ void eight_(u32 to, const C* from, bool inside) {
  float f[8] = {};
  if (inside) load_<8>(f, from);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pack_(f[0], f[1])), "r"(pack_(f[2], f[3])), "r"(pack_(f[4], f[5])), "r"(pack_(f[6], f[7])) : "memory");
}

extern "C" __global__ void __launch_bounds__($THREADS$) kernel($PARAMS$) {
  extern __shared__ __align__(128) u8 memory[];
  await_(eager);
  constexpr int WARPS = $WARPS$, QT = $QT$, THREADS = WARPS * 32, BQ = WARPS * QT * 16, BK = $BK$, D = $D$, DP = $DP$, E = $E$, EP = $EP$;
  constexpr int S = $S$, KEYS = $KEYS$, PITCH_D = DP * 2 + 16, PITCH_E = EP * 2 + 16, BLOCKS = (KEYS + BK - 1) / BK;
  // What is done to probabilities needs the sum of their row first: the keys are walked twice.
  constexpr int PASSES = $EXACT$ ? 2 : 1, RUNS = PASSES * BLOCKS;
  constexpr bool RESIDENT = $RESIDENT$;  // all keys and values fit: fetched once, no waiting between blocks
  constexpr int KEPT = RESIDENT ? BLOCKS : 2;
  constexpr float kScale = $SCALE$, kLog2e = 1.4426950408889634f;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int q0 = blockIdx.x * BQ;
  const i64 h = blockIdx.y, b = blockIdx.z;
  const auto* q = in0 + b * $QB$ + h * $QH$;
  const auto* k = in1 + b * $KB$ + h / $SHARE$ * $KH$;
  const auto* v = in2 + b * $VB$ + h / $SHARE$ * $VH$;
  const u32 sq = shared_(memory), sk = sq + BQ * PITCH_D, sv = sk + KEPT * BK * PITCH_D;
  auto load_keys = [&](int run) {
    const int block = run % BLOCKS, stage = RESIDENT ? block : run & 1;
    for (int i = tid; i < BK * (DP / 8); i += THREADS) {
      const int r = i / (DP / 8), c = i % (DP / 8), key = block * BK + r;
      const bool inside = key < KEYS && c * 8 < D;
      eight_(sk + stage * BK * PITCH_D + r * PITCH_D + c * 16, inside ? k + (i64)key * $KT$ + c * 8 : k, inside);
    }
    if (RESIDENT || run >= RUNS - BLOCKS)
      for (int i = tid; i < BK * (EP / 8); i += THREADS) {
        const int r = i / (EP / 8), c = i % (EP / 8), key = block * BK + r;
        const bool inside = key < KEYS && c * 8 < E;
        eight_(sv + stage * BK * PITCH_E + r * PITCH_E + c * 16, inside ? v + (i64)key * $VT$ + c * 8 : v, inside);
      }
  };
  for (int i = tid; i < BQ * (DP / 8); i += THREADS) {
    const int r = i / (DP / 8), c = i % (DP / 8);
    const bool inside = q0 + r < S && c * 8 < D;
    eight_(sq + r * PITCH_D + c * 16, inside ? q + (i64)(q0 + r) * $QS$ + c * 8 : q, inside);
  }
  for (int run = 0; run < (RESIDENT ? BLOCKS : 1); ++run) load_keys(run);
  asm volatile("cp.async.commit_group;");
  float most[QT][2], total[QT][2], inverse[QT][2];
#pragma unroll
  for (int t = 0; t < QT; ++t) most[t][0] = most[t][1] = -1e30f, total[t][0] = total[t][1] = 0.f;
  float o[QT][EP / 8][4] = {};
  u32 fq[QT][DP / 16][4];
  const int row = q0 + warp * QT * 16 + (lane >> 2);
  for (int run = 0; run < RUNS; ++run) {
    const int block = run % BLOCKS;
    if (!RESIDENT) {
      if (run + 1 < RUNS) load_keys(run + 1);
      asm volatile("cp.async.commit_group;");
      asm volatile("cp.async.wait_group 1;");
      __syncthreads();
    } else if (run == 0) {
      asm volatile("cp.async.wait_group 0;");
      __syncthreads();
    }
    if (run == 0)
#pragma unroll
      for (int t = 0; t < QT; ++t)
#pragma unroll
        for (int d = 0; d < DP / 16; ++d) fragment_(fq[t][d], sq + ((warp * QT + t) * 16 + (lane & 15)) * PITCH_D + (d * 2 + (lane >> 4)) * 16);
    float s[QT][BK / 8][4] = {};
    const int stage = RESIDENT ? block : run & 1;
    const u32 keys = sk + stage * BK * PITCH_D, values = sv + stage * BK * PITCH_E;
#pragma unroll
    for (int d = 0; d < DP / 16; ++d)
#pragma unroll
      for (int j = 0; j < BK / 16; ++j) {
        u32 f[4];
        fragment_(f, keys + (j * 16 + (lane & 7) + ((lane >> 4) << 3)) * PITCH_D + (d * 2 + ((lane >> 3) & 1)) * 16);
#pragma unroll
        for (int t = 0; t < QT; ++t) {
          mma_(s[t][2 * j], fq[t][d], f[0], f[1]);
          mma_(s[t][2 * j + 1], fq[t][d], f[2], f[3]);
        }
      }
    const bool tail = KEYS % BK != 0 && block == BLOCKS - 1;
#pragma unroll
    for (int t = 0; t < QT; ++t) {
      float high[2] = {most[t][0], most[t][1]};
#pragma unroll
      for (int j = 0; j < BK / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = block * BK + j * 8 + (lane & 3) * 2 + (e & 1);
          float f = s[t][j][e] * (kScale * kLog2e);
$MASK$
          if (tail && key >= KEYS) f = __int_as_float(0xff800000);
          s[t][j][e] = f;
          high[e >> 1] = fmaxf(high[e >> 1], f);
        }
      if (run < BLOCKS)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 1));
          high[r] = fmaxf(high[r], __shfl_xor_sync(0xffffffffu, high[r], 2));
          if (BLOCKS > 1) {
            const float shrink = power_(most[t][r] - high[r]);
            total[t][r] *= shrink;
            if (PASSES == 1)
#pragma unroll
              for (int e = 0; e < EP / 8; ++e) o[t][e][2 * r] *= shrink, o[t][e][2 * r + 1] *= shrink;
          }
          most[t][r] = high[r];
        }
#pragma unroll
      for (int j = 0; j < BK / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[t][j][e] = power_(s[t][j][e] - most[t][e >> 1]);
          if (run < BLOCKS) total[t][e >> 1] += s[t][j][e];
        }
    }
    if (PASSES == 2 && run == BLOCKS - 1)
#pragma unroll
      for (int t = 0; t < QT; ++t)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          total[t][r] += __shfl_xor_sync(0xffffffffu, total[t][r], 1);
          total[t][r] += __shfl_xor_sync(0xffffffffu, total[t][r], 2);
          inverse[t][r] = $NAN_ZERO$ && total[t][r] == 0.f ? 0.f : 1.f / total[t][r];
        }
    if (run >= RUNS - BLOCKS) {
      if (PASSES == 2)
#pragma unroll
        for (int t = 0; t < QT; ++t)
#pragma unroll
          for (int j = 0; j < BK / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              float p = s[t][j][e] * inverse[t][e >> 1];
$POST$
              s[t][j][e] = p;
            }
#pragma unroll
      for (int j = 0; j < BK / 16; ++j) {
        u32 p[QT][4];
#pragma unroll
        for (int t = 0; t < QT; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e) p[t][e] = $PACK$(s[t][2 * j + (e >> 1)][(e & 1) * 2], s[t][2 * j + (e >> 1)][(e & 1) * 2 + 1]);
#pragma unroll
        for (int e = 0; e < EP / 16; ++e) {
          u32 f[4];
          transposed_(f, values + (j * 16 + (lane & 15)) * PITCH_E + (e * 2 + (lane >> 4)) * 16);
#pragma unroll
          for (int t = 0; t < QT; ++t) {
            mma_(o[t][2 * e], p[t], f[0], f[1]);
            mma_(o[t][2 * e + 1], p[t], f[2], f[3]);
          }
        }
      }
    }
    if (!RESIDENT) __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < QT; ++t)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (PASSES == 1) {
        total[t][r] += __shfl_xor_sync(0xffffffffu, total[t][r], 1);
        total[t][r] += __shfl_xor_sync(0xffffffffu, total[t][r], 2);
      }
      const float scale = $R_SCALE$ * (PASSES == 2 ? 1.f : $NAN_ZERO$ && total[t][r] == 0.f ? 0.f : 1.f / total[t][r]);
      const int at = row + t * 16 + r * 8;
      if (at >= S) continue;
      auto* y = out0 + b * $YB$ + h * $YH$ + (i64)at * $YS$ + (lane & 3) * 2;
#pragma unroll
      for (int e = 0; e < EP / 8; ++e) {
        if (e * 8 >= E) continue;
        const float pair[2] = {$OUT$(o[t][e][2 * r] * scale), $OUT$(o[t][e][2 * r + 1] * scale)};
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
  extern __shared__ float probabilities[];
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
    probabilities[key] = f;
    most = fmaxf(most, f);
  }
  most = all_(most, false, part);
  float total = 0.f;
  for (i64 key = threadIdx.x; key < $KEYS$; key += 128) total += probabilities[key] = expf(probabilities[key] - most);
  total = all_(total, true, part);
  const float scale = $NAN_ZERO$ && !(most > __int_as_float(0xff800000)) ? 0.f : 1.f / total;
  for (i64 key = threadIdx.x; key < $KEYS$; key += 128) {
    float p = scale == 0.f ? 0.f : probabilities[key] * scale;
$POST$
    probabilities[key] = p;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < $E$; e += 128) {
    float f = 0.f;
    for (i64 key = 0; key < $KEYS$; ++key) f += probabilities[key] * get_(in2[b * $VB$ + h / $SHARE$ * $VH$ + key * $VT$ + e]);
    put_(out0[b * $YB$ + h * $YH$ + s * $YS$ + e], $OUT$(f * $R_SCALE$));
  }
}
)CUDA";

// E4M3 to float16 needs no float32 in between.
const char* kEightCodes = R"CUDA(
__device__ __forceinline__ void eight_(u32 to, const E4M3* from, bool inside) {
  uint2 codes = {0u, 0u};
  if (inside) codes = *reinterpret_cast<const uint2*>(from);
  u32 a, b, c, d;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(a) : "h"((u16)codes.x));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(b) : "h"((u16)(codes.x >> 16)));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(c) : "h"((u16)codes.y));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"((u16)(codes.y >> 16)));
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ u32 pack_codes_(float low, float high) {
  u16 codes; u32 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(codes));
  return r;
}
)CUDA";

ProgramStep scaled(ProgramStep step) {
  step.x = 1;
  return step;
}

}  // namespace

AttentionCode attention_code(const EnginePlan& plan, const PlanLayer& layer) {
  const PlanView &q = layer.in[0], &k = layer.in[1], &v = layer.in[2], &y = layer.out[0];
  const std::int64_t d = q.dims[3], e = v.dims[3];
  const DType out = type_of(plan, y);
  AttentionCode code;
  // Codes become 16 bit numbers, exactly; what is 16 bits wide already decides which.
  bool brain = plan.precision == name(DType::kBF16);
  for (const PlanView* view : {&q, &k, &v}) brain = brain || type_of(plan, *view) == DType::kBF16;
  code.type = brain ? DType::kBF16 : DType::kF16;
  const Epilogue& end = layer.epilogue;
  code.finish = "__device__ __forceinline__ float finish_(float v) { return ";
  if (out == DType::kI8 || out == DType::kU8)
    code.finish +=
        fmt::format("clip_(rintf(v * {}) + {}, {}, {})", number(1 / static_cast<double>(end.y_scale)),
                    number(static_cast<double>(end.y_zero)), number(code_low(out)), number(code_high(out)));
  else
    code.finish += bits(out) == 8 ? fmt::format("v * {}", number(1 / static_cast<double>(end.y_scale))) : "v";
  code.finish += "; }\n";
  // E4M3 in pairs: rounded and made 16 bit numbers again by two instructions.
  const bool pairs_of_codes = !brain && layer.post.size() == 1 && layer.post[0].op == "Quantize" &&
                              static_cast<DType>(static_cast<int>(layer.post[0].z)) == DType::kE4M3FN;
  std::string post;
  for (const ProgramStep& step : layer.post)
    post += pairs_of_codes ? fmt::format("    p *= {};\n", number(1 / step.x))
            : step.op == "Quantize"
                ? fmt::format("    p = {};\n",
                              step_expression(scaled(step), {fmt::format("(p * {})", number(1 / step.x))}))
                : "    p = " + step_expression(step, {"p"}) + ";\n";
  const auto n = [](std::int64_t i) { return std::to_string(i); };
  code.words = {{"T", brain ? "bf16" : "f16"},
                {"W", brain ? "BF16" : "F16"},
                {"D", n(d)},
                {"DP", n((d + 15) / 16 * 16)},
                {"E", n(e)},
                {"EP", n((e + 15) / 16 * 16)},
                {"S", n(q.dims[2])},
                {"KEYS", n(k.dims[2])},
                {"SCALE", number(static_cast<double>(end.alpha))},
                {"R_SCALE", number(static_cast<double>(end.r_scale))},
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
                {"EXACT", layer.post.empty() ? "false" : "true"},
                {"POST", post},
                {"UNITS", number(pairs_of_codes ? 1 / layer.post[0].x : 1)},
                {"POST_OF_UNITS", pairs_of_codes ? "" : post},
                {"PACK", pairs_of_codes ? "pack_codes_" : "pack_"},
                {"EIGHT", brain ? "" : kEightCodes},
                {"OUT", bits(out) == 8 ? "finish_" : ""}};
  return code;
}

std::string attention_mask_code(const PlanLayer& layer, const char* query, const char* factor) {
  const PlanView& mask = layer.in[3];
  if (!mask.present()) return "";
  return fmt::format(
      "        if ({0} < {1} && key < {2}) f += get_(in3[b * {3} + h * {4} + (i64)({0}) * {5} + (i64)key * "
      "{6}]){7};\n",
      query, mask.dims[2], mask.dims[3], mask.strides[0], mask.strides[1], mask.strides[2], mask.strides[3],
      factor);
}

std::vector<KernelSource> attention_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not) {
  const PlanView &q = layer.in[0], &k = layer.in[1], &v = layer.in[2], &y = layer.out[0];
  const std::int64_t d = q.dims[3], e = v.dims[3], keys = k.dims[2], s = q.dims[2];
  const std::int64_t dp = (d + 15) / 16 * 16, ep = (e + 15) / 16 * 16;
  const DType out = type_of(plan, y);
  const AttentionCode text = attention_code(plan, layer);
  const DType type = text.type;
  if (q.strides[3] != 1 || k.strides[3] != 1 || v.strides[3] != 1 || y.strides[3] != 1) {
    why_not = "an operand is not contiguous along its last axis";
    return {};
  }
  if (q.dims[0] > 65535 || q.dims[1] > 65535) {
    why_not = "more than 65535 heads or samples";
    return {};
  }
  const auto words = [&](const std::string& params, const std::string& mask_at) {
    auto list = text.words;
    list.emplace_back("PARAMS", params);
    list.emplace_back("MASK", mask_at);
    return list;
  };
  std::vector<KernelSource> sources = attention_rows_kernels(plan, layer);
  const auto aligned = [&](const PlanView& view) {
    const DType t = type_of(plan, view);
    const bool known = t == type || t == DType::kI8 || t == DType::kE4M3FN;
    return known && view.offset % 8 == 0 && view.strides[0] % 8 == 0 && view.strides[1] % 8 == 0 &&
           view.strides[2] % 8 == 0;
  };
  const bool pairs =
      y.offset % 2 == 0 && y.strides[0] % 2 == 0 && y.strides[1] % 2 == 0 && y.strides[2] % 2 == 0;
  if (d % 8 == 0 && e % 8 == 0 && dp <= 128 && ep <= 128 && aligned(q) && aligned(k) && aligned(v) && pairs &&
      (out == type || bits(out) == 8)) {
    // Warps and query tiles a warp that waste the fewest rows; pieces of keys that waste the fewest columns.
    struct Shape {
      int warps, tiles, keys;
      bool resident;
      std::int64_t bytes;
      double cost;
    };
    std::vector<Shape> shapes;
    for (const int tiles : {1, 2})
      for (const int warps : {1, 2, 4, 7, 8, 13})
        for (const int block : {32, 64, 80, 96, 112, 128}) {
          if (block > 64 && keys <= block - 16) continue;
          const double registers = static_cast<double>(tiles) * (block / 2.0 + static_cast<double>(ep) / 2 +
                                                                 static_cast<double>(dp) / 4) +
                                   50;
          if (registers > 250 || registers * 32 * warps > 65536) continue;
          const std::int64_t rows = warps * tiles * 16, pieces = (keys + block - 1) / block;
          const bool resident = pieces * block * (dp * 2 + ep * 2 + 32) <= 100 * 1024;
          const std::int64_t kept = resident ? pieces : 2;
          const std::int64_t bytes = (rows + kept * block) * (dp * 2 + 16) + kept * block * (ep * 2 + 16);
          if (bytes > 220 * 1024 || (rows > 16 && rows >= 2 * s)) continue;
          const double work = static_cast<double>((s + rows - 1) / rows * rows) *
                              static_cast<double>((keys + block - 1) / block * block);
          // Too few blocks leave multiprocessors idle; one tile a warp reads keys twice as often.
          const double blocks = static_cast<double>((s + rows - 1) / rows * q.dims[0] * q.dims[1]);
          const double idle = std::max(1.0, 132 / blocks * std::min(1.0, warps / 4.0));
          shapes.push_back(
              {warps, tiles, block, resident, bytes, work * (tiles == 1 ? 1.3 : 1.0) * idle + 64.0 * block});
        }
    std::stable_sort(shapes.begin(), shapes.end(),
                     [](const Shape& a, const Shape& b) { return a.cost < b.cost; });
    const std::size_t most = sources.empty() ? 7 : 2;  // all scores at once is faster where it can be
    if (shapes.size() > most) shapes.resize(most);
    for (const Shape& shape : shapes) {
      KernelSource source;
      source.tactic =
          fmt::format("attention:mma_{}x{}_q{}", shape.warps * shape.tiles * 16, shape.keys, shape.tiles);
      source.block = shape.warps * 32;
      source.grid[0] = (s + shape.warps * shape.tiles * 16 - 1) / (shape.warps * shape.tiles * 16);
      source.grid[1] = q.dims[1];
      source.grid[2] = q.dims[0];
      source.shared_bytes = static_cast<int>(shape.bytes);
      auto w = words(parameters(plan, layer, source),
                     attention_mask_code(layer, "row + t * 16 + (e >> 1) * 8", " * kLog2e"));
      w.emplace_back("WARPS", std::to_string(shape.warps));
      w.emplace_back("QT", std::to_string(shape.tiles));
      w.emplace_back("THREADS", std::to_string(shape.warps * 32));
      w.emplace_back("BK", std::to_string(shape.keys));
      w.emplace_back("RESIDENT", shape.resident ? "true" : "false");
      source.code = text.finish + fill(kText, w);
      sources.push_back(std::move(source));
    }
  } else {
    why_not =
        "tensor cores: needs 16 bit numbers or codes, heads of at most 128, sizes and strides in eights";
  }
  if (keys <= 12000) {
    KernelSource source;
    source.tactic = "attention:plain";
    source.block = 128;
    source.grid[0] = s;
    source.grid[1] = q.dims[1];
    source.grid[2] = q.dims[0];
    source.shared_bytes = static_cast<int>(keys * 4);
    auto w = words(parameters(plan, layer, source), attention_mask_code(layer, "s", ""));
    std::string slow;
    for (const ProgramStep& step : layer.post) slow += "    p = " + step_expression(step, {"p"}) + ";\n";
    for (auto& [key, value] : w)
      if (key == "POST") value = slow;
    source.code = text.finish + fill(kPlain, w);
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
