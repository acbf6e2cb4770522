// Any convolution or product, one thread an output: slow, and right by its looks. The last resort.
#include "engine/base/error.h"
#include "engine/cuda/linear_code.h"

namespace pare::cuda {

std::vector<KernelSource> plain_linear_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                               std::string& why_not) {
  const LinearSizes s = linear_sizes(layer);
  const ConvGeometry& g = layer.conv;
  const std::int64_t total = s.batch * s.m * s.n;
  if (total > 0x7FFFFFFF) {
    why_not = "more than 2^31 outputs";
    return {};
  }
  KernelSource source;
  source.tactic = "plain";
  source.grid[0] = (total + 255) / 256;
  const std::string params = parameters(plan, layer, source);
  const bool depthwise = s.conv && g.group > 1 && g.group_c() == 1 && g.group_m() == 1;
  std::string sum;
  if (s.conv) {
    sum = fill(R"(
  const int ox = (int)(row % $OW$), oy = (int)(row / $OW$ % $OH$);
  const i64 n = row / ($OW$ * $OH$);
  for (int ky = 0; ky < $KH$; ++ky)
    for (int kx = 0; kx < $KW$; ++kx) {
      const int iy = oy * $SH$ - $TOP$ + ky * $DH$, ix = ox * $SW$ - $LEFT$ + kx * $DW$;
      if (iy < 0 || iy >= $H$ || ix < 0 || ix >= $W$) continue;
      const i64 base = ((n * $H$ + iy) * $W$ + ix) * $C$ + column / $GM$ * $GC$;
      for (int c = 0; c < $GC$; ++c) sum += get_(in0[base + c]) * get_(in1[$WEIGHT$]);
    }
)",
               {{"OW", std::to_string(g.ow)},
                {"OH", std::to_string(g.oh)},
                {"KH", std::to_string(g.kh)},
                {"KW", std::to_string(g.kw)},
                {"SH", std::to_string(g.sh)},
                {"SW", std::to_string(g.sw)},
                {"TOP", std::to_string(g.top)},
                {"LEFT", std::to_string(g.left)},
                {"DH", std::to_string(g.dh)},
                {"DW", std::to_string(g.dw)},
                {"H", std::to_string(g.h)},
                {"W", std::to_string(g.w)},
                {"C", std::to_string(g.c)},
                {"GM", std::to_string(g.group_m())},
                {"GC", std::to_string(g.group_c())},
                {"WEIGHT", depthwise ? fmt::format("(ky * {} + kx) * {} + column", g.kw, g.m)
                                     : fmt::format("((column * {} + ky) * {} + kx) * {} + c", g.kh, g.kw,
                                                   g.group_c())}});
  } else {
    sum = fmt::format(
        "  const auto* a = in0 + b * {} + row * {};\n  const auto* w = in1 + b * {} + column * {};\n"
        "  for (i64 k = 0; k < {}; ++k) sum += get_(a[k * {}]) * get_(w[k * {}]);\n",
        s.step_a, s.lda, s.step_b, s.ldb, s.k, layer.in[0].strides[2], layer.in[1].strides[2]);
  }
  source.code =
      activation_code(layer.epilogue.act, type_of(plan, layer.out[0])) +
      "extern \"C\" __global__ void __launch_bounds__(256) kernel(" + params + ") {\n  await_(eager);\n" +
      finish_code(plan, layer, 1) +
      fmt::format(
          "  const i64 t = (i64)blockIdx.x * 256 + threadIdx.x;\n  if (t >= {}) return;\n"
          "  const i64 column = t % {};\n  const i64 row = t / {} % {}, b = t / {};\n  float sum = 0.f;\n",
          total, s.n, s.n, s.m, s.n * s.m) +
      sum +
      fmt::format("  float v[1] = {{sum}};\n  finish_(v, column, b * {} + row * {} + column, row, 0);\n}}\n",
                  s.step_d, s.ldd);
  if (leaves_sums(layer) || normalizes(layer) || has_shortcut(layer)) {
    why_not = "rows that are normalized, or a shortcut inside";
    return {};
  }
  if (layer.in[3].present() && (s.ldr != s.ldd || (s.batch > 1 && s.step_r != s.step_d))) {
    why_not = "residual and output have different strides";
    return {};
  }
  return {source};
}

}  // namespace pare::cuda
