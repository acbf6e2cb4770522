// Convolutions of one channel a group: a thread has some neighbouring channels of a patch of output pixels.
// Each input is read once for the whole patch, weights stay in registers. Codes become floats without
// conversions (prelude()), so that what is left are products and loads.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/linear_code.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
template <int N, typename T> __device__ __forceinline__ void read_(float* o, const T* p) {
  if constexpr ($CODES$ && N % 4 == 0) {
    struct alignas(N < 16 ? N : 16) Words { u32 w[N / 4]; };
    const Words r = *reinterpret_cast<const Words*>(p);
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      o[4 * i] = nth_code_<0>(p, r.w[i]), o[4 * i + 1] = nth_code_<1>(p, r.w[i]), o[4 * i + 2] = nth_code_<2>(p, r.w[i]), o[4 * i + 3] = nth_code_<3>(p, r.w[i]);
  } else {
    load_<N>(o, p);
  }
}

extern "C" __global__ void __launch_bounds__(128) kernel($PARAMS$) {
  constexpr int V = $V$, P = $P$, A = $A$, KH = $KH$, KW = $KW$, SH = $SH$, SW = $SW$, DH = $DH$, DW = $DW$;
  constexpr int OH = $OH$, OW = $OW$, H = $H$, W = $W$, C = $C$, VECTORS = $VECTORS$, ACROSS = (OW + A - 1) / A, DOWN = (OH + P - 1) / P;
$FINISH$
  i64 t = (i64)blockIdx.x * 128 + threadIdx.x;
  const bool mine = t < $TOTAL$;
  t = mine ? t : 0;
  const int c = (int)(t % VECTORS) * V;
  t /= VECTORS;
  const int ox0 = (int)(t % ACROSS) * A;
  t /= ACROSS;
  const int oy0 = (int)(t % DOWN) * P;
  const i64 n = t / DOWN;
  // Weights are written by nobody. BY_ROW: there are too many for registers.
  constexpr bool BY_ROW = $BY_ROW$;
  float weight[BY_ROW ? KW : KH * KW][V];
  if (!BY_ROW)
#pragma unroll
    for (int k = 0; k < KH * KW; ++k) read_<V>(weight[BY_ROW ? 0 : k], in1 + k * C + c);
  await_(eager);
  if (!mine) return;
  float sum[P][A][V] = {};
#pragma unroll
  for (int i = 0; i < (P - 1) * SH + (KH - 1) * DH + 1; ++i) {
    const int iy = oy0 * SH - $TOP$ + i;
    if (BY_ROW && i % DH == 0)
#pragma unroll
      for (int k = 0; k < KW; ++k) read_<V>(weight[k], in1 + (i / DH * KW + k) * C + c);
    const auto* row = in0 + (n * H + iy) * (i64)(W * C) + c;
#pragma unroll
    for (int j = 0; j < (A - 1) * SW + (KW - 1) * DW + 1; ++j) {
      const int ix = ox0 * SW - $LEFT$ + j;
      float x[V];
      if (iy >= 0 && iy < H && ix >= 0 && ix < W) {
        read_<V>(x, row + ix * C);
      } else {
#pragma unroll
        for (int e = 0; e < V; ++e) x[e] = 0.f;
      }
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int a = 0; a < A; ++a) {
          const int ky = i - p * SH, kx = j - a * SW;
          if (ky >= 0 && ky % DH == 0 && ky / DH < KH && kx >= 0 && kx % DW == 0 && kx / DW < KW)
#pragma unroll
            for (int e = 0; e < V; ++e) sum[p][a][e] += x[e] * weight[BY_ROW ? kx / DW : ky / DH * KW + kx / DW][e];
        }
    }
  }
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int a = 0; a < A; ++a)
      if (oy0 + p < OH && ox0 + a < OW) finish_(sum[p][a], c, ((n * OH + oy0 + p) * OW + ox0 + a) * (i64)C + c, 0, 0);
}
)CUDA";

struct Patch {
  int down, across, v;
};
constexpr Patch kPatches[] = {{1, 4, 8}, {2, 4, 4}, {1, 1, 8}, {1, 2, 8}, {2, 2, 8}, {1, 4, 4}, {2, 2, 4},
                              {1, 1, 4}, {4, 2, 4}, {1, 4, 2}, {1, 1, 2}, {1, 4, 1}, {1, 1, 1}};

}  // namespace

std::vector<KernelSource> depthwise_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not) {
  constexpr int kRegisters = 200;  // sums and weights of a thread
  const ConvGeometry& g = layer.conv;
  if (layer.kind != LayerKind::kConv || g.group == 1 || g.group_c() != 1 || g.group_m() != 1) {
    why_not = "not one channel a group";
    return {};
  }
  const int most = epilogue_width(plan, layer, g.c);
  const auto codes = [&](std::size_t slot) {
    const DType type = type_of(plan, layer.in[slot]);
    return type == DType::kI8 || type == DType::kU8;
  };
  std::vector<KernelSource> sources;
  for (const Patch& t : kPatches) {
    // Narrow vectors only where wide ones do not fit.
    if (t.v > most || ((t.v < 4 || t.down * t.across == 1) && t.v < most && !sources.empty())) continue;
    if ((t.across > 1 && g.ow < t.across) || (t.down > 1 && g.oh < t.down)) continue;
    const std::int64_t sums = t.down * t.across * t.v;
    const bool by_row = sums + g.kh * g.kw * t.v > kRegisters;
    if (by_row && (t.down > 1 || (sums + g.kw * t.v > kRegisters && (t.v > 1 || t.across > 1)))) continue;
    const std::int64_t total =
        g.n * ((g.oh + t.down - 1) / t.down) * ((g.ow + t.across - 1) / t.across) * (g.c / t.v);
    KernelSource source;
    source.tactic = fmt::format("depthwise:{}x{}x{}", t.down, t.across, t.v);
    source.block = 128;
    source.grid[0] = (total + 127) / 128;
    const auto n = [](std::int64_t v) { return std::to_string(v); };
    const std::string params = parameters(plan, layer, source);
    source.code = activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
                  fill(kText, with_geometry({{"PARAMS", params},
                                             {"FINISH", finish_code(plan, layer, t.v)},
                                             {"CODES", codes(0) && codes(1) ? "true" : "false"},
                                             {"TOTAL", n(total)},
                                             {"BY_ROW", by_row ? "true" : "false"},
                                             {"VECTORS", n(g.c / t.v)},
                                             {"V", n(t.v)},
                                             {"P", n(t.down)},
                                             {"A", n(t.across)}},
                                            g));
    sources.push_back(std::move(source));
  }
  if (sources.empty()) why_not = "a window that does not fit into registers";
  return sources;
}

}  // namespace pare::cuda
