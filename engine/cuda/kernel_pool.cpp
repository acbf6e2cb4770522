// The largest of a window without arithmetic on single values: 16 bytes of a pixel a thread, for some output
// rows below each other, which share the maxima of input rows. Codes are compared two at a time in 16 bits:
// the upper byte of a pair decides, so one comparison serves the odd bytes, one of the word shifted by 8 the
// even ones.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/cuda/kernel_source.h"

namespace pare::cuda {
namespace {

const char* kText = R"CUDA(
__device__ __forceinline__ u32 larger_(u32 a, u32 b) {
  u32 r;
#if __CUDA_ARCH__ >= 900
  asm("max.$PAIR$ %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#else
  r = $OTHERWISE$;
#endif
  return r;
}
// Codes of E4M3 are a sign and a size: made to be ordered as integers, and back.
__device__ __forceinline__ u32 ordered_(u32 w) { return $SIGNED$ ? w ^ ((w >> 7 & 0x01010101u) * 127u) : w; }

extern "C" __global__ void __launch_bounds__(256) kernel($PARAMS$) {
  constexpr int P = $P$, KH = $KH$, KW = $KW$, SH = $SH$, SW = $SW$, OH = $OH$, OW = $OW$, H = $H$, W = $W$, VECTORS = $VECTORS$, STRIPS = $STRIPS$;
  constexpr bool CODES = $CODES$;
  await_(eager);
  u32 t = blockIdx.x * 256u + threadIdx.x;
  if (t >= $TOTAL$u) return;
  const u32 v = t % VECTORS; t /= VECTORS;
  const int ox = (int)(t % OW); t /= OW;
  const int oy0 = (int)(t % STRIPS) * P;
  const i64 n = t / STRIPS;
  const uint4* image = reinterpret_cast<const uint4*>(in0) + n * (H * (i64)W * VECTORS) + v;
  u32 most[P][CODES ? 8 : 4];
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < (CODES ? 8 : 4); ++i) most[p][i] = i < 4 ? $LOWEST$ : $LOWEST$ << 8;
#pragma unroll
  for (int i = 0; i < (P - 1) * SH + KH; ++i) {
    const int iy = oy0 * SH - $TOP$ + i;
    u32 row[CODES ? 8 : 4];
#pragma unroll
    for (int j = 0; j < (CODES ? 8 : 4); ++j) row[j] = j < 4 ? $LOWEST$ : $LOWEST$ << 8;
#pragma unroll
    for (int k = 0; k < KW; ++k) {
      const int ix = ox * SW - $LEFT$ + k;
      uint4 x = {$LOWEST$, $LOWEST$, $LOWEST$, $LOWEST$};
      if (iy >= 0 && iy < H && ix >= 0 && ix < W) {
        x = image[(iy * (i64)W + ix) * VECTORS];
        x.x = ordered_(x.x), x.y = ordered_(x.y), x.z = ordered_(x.z), x.w = ordered_(x.w);
      }
      const u32 w[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        row[j] = larger_(row[j], w[j]);
        if (CODES) row[CODES ? 4 + j : 0] = larger_(row[CODES ? 4 + j : 0], w[j] << 8);
      }
    }
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (i >= p * SH && i < p * SH + KH)
#pragma unroll
        for (int j = 0; j < (CODES ? 8 : 4); ++j) most[p][j] = larger_(most[p][j], row[j]);
  }
#pragma unroll
  for (int p = 0; p < P; ++p)
    if (oy0 + p < OH) {
      u32 w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) w[j] = CODES ? ordered_(__byte_perm(most[p][CODES ? 4 + j : 0], most[p][j], 0x7351)) : most[p][j];
      reinterpret_cast<uint4*>(out0)[((n * OH + oy0 + p) * OW + ox) * VECTORS + v] = uint4{w[0], w[1], w[2], w[3]};
    }
}
)CUDA";

struct Words {
  DType type;
  const char *pair, *otherwise, *lowest;
};
constexpr Words kWords[] = {
    {DType::kI8, "s16x2", "__vmaxs2(a, b)", "0x80808080u"},
    {DType::kU8, "u16x2", "__vmaxu2(a, b)", "0u"},
    {DType::kE4M3FN, "s16x2", "__vmaxs2(a, b)", "0x80808080u"},
    {DType::kF16, "NaN.f16x2", "", "0xfc00fc00u"},
    {DType::kBF16, "NaN.bf16x2", "", "0xff80ff80u"},
};

}  // namespace

std::vector<KernelSource> max_pool_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                           std::string& why_not) {
  const ConvGeometry& g = layer.conv;
  const DType type = type_of(plan, layer.in[0]);
  const auto words =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const Words& w) { return w.type == type; });
  if (layer.op != "MaxPool" || words == std::end(kWords) || type_of(plan, layer.out[0]) != type ||
      g.c * size_of(type) % 16 != 0 || g.dh != 1 || g.dw != 1 || g.kh * g.kw > 25 ||
      layer.in[0].offset != 0) {
    why_not = "not the largest of a small window of pixels of 16 bytes, stored as they are read";
    return {};
  }
  const std::int64_t vectors = g.c * size_of(type) / 16;
  std::vector<KernelSource> sources;
  for (const std::int64_t p : {2, 1, 4}) {
    const std::int64_t strips = (g.oh + p - 1) / p, total = g.n * strips * g.ow * vectors;
    if (p > 1 && g.oh < p) continue;
    if (total > 0x7FFFFFFF) continue;
    KernelSource source;
    source.tactic = fmt::format("pool:words_{}", p);
    source.grid[0] = (total + 255) / 256;
    const auto n = [](std::int64_t v) { return std::to_string(v); };
    const std::string params = parameters(plan, layer, source);
    source.code = fill(
        kText, with_geometry(
                   {{"PARAMS", params},
                    {"PAIR", words->pair},
                    {"OTHERWISE", bits(type) == 8 ? words->otherwise
                                                  : fmt::format("0; asm(\"max.{} %0, %1, %2;\" : \"=r\"(r) : "
                                                                "\"r\"(a), \"r\"(b))",
                                                                words->pair)},
                    {"LOWEST", words->lowest},
                    {"SIGNED", type == DType::kE4M3FN ? "true" : "false"},
                    {"CODES", bits(type) == 8 ? "true" : "false"},
                    {"P", n(p)},
                    {"VECTORS", n(vectors)},
                    {"STRIPS", n(strips)},
                    {"TOTAL", n(total)}},
                   g));
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
