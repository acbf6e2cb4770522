#include "engine/cuda/linear_code.h"

#include "engine/base/error.h"

namespace pare::cuda {

LinearSizes linear_sizes(const PlanLayer& layer) {
  LinearSizes s;
  const ConvGeometry& g = layer.conv;
  if (layer.kind == LayerKind::kConv) {
    s.conv = true;
    s.m = g.rows();
    s.n = g.m;
    s.k = g.kh * g.kw * g.group_c();
    s.ldb = s.k;
    s.ldd = s.ldr = g.m;
    return s;
  }
  const PlanView &x = layer.in[0], &w = layer.in[1], &y = layer.out[0];
  s.batch = y.dims[0];
  s.m = y.dims[1];
  s.n = y.dims[2];
  s.k = x.dims[2];
  s.lda = x.strides[1], s.ldb = w.strides[1], s.ldd = y.strides[1];
  s.step_a = x.strides[0], s.step_b = w.strides[0], s.step_d = y.strides[0];
  if (layer.in[3].present()) s.ldr = layer.in[3].strides[1], s.step_r = layer.in[3].strides[0];
  return s;
}

int epilogue_width(const EnginePlan& plan, const PlanLayer& layer, std::int64_t columns) {
  (void)plan;
  const LinearSizes s = linear_sizes(layer);
  for (const int w : {8, 4, 2}) {
    bool fits = columns % w == 0 && s.ldd % w == 0 && s.step_d % w == 0 && layer.out[0].offset % w == 0;
    if (layer.kind == LayerKind::kGemm) fits = fits && layer.out[0].strides[2] == 1;
    if (layer.in[3].present())
      fits = fits && s.ldr % w == 0 && s.step_r % w == 0 && layer.in[3].offset % w == 0 &&
             layer.in[3].strides.back() == 1;
    if (fits) return w;
  }
  return 1;
}

std::string finish_code(const EnginePlan& plan, const PlanLayer& layer, int w) {
  const Epilogue& e = layer.epilogue;
  std::string t = "  auto finish_ = [&](float* v, i64 column, i64 at) {\n";
  const auto vector = [&](int slot, const char* index, const std::string& name) {
    t += fmt::format("    float {0}[{1}]; load_<{1}>({0}, in{2} + {3});\n", name, w, slot, index);
  };
  if (layer.in[4].present()) vector(4, "column", "scale");
  if (layer.in[2].present()) vector(2, "column", "bias");
  if (layer.in[3].present()) vector(3, "at", "residual");
  t += fmt::format("#pragma unroll\n    for (int e = 0; e < {}; ++e) {{\n      float f = v[e];\n", w);
  if (e.alpha != 1) t += fmt::format("      f *= {};\n", number(static_cast<double>(e.alpha)));
  if (layer.in[4].present()) t += "      f *= scale[e];\n";
  if (layer.in[2].present()) t += "      f += bias[e];\n";
  if (layer.in[3].present())
    t += e.r_scale == 1
             ? "      f += residual[e];\n"
             : fmt::format("      f += {} * residual[e];\n", number(static_cast<double>(e.r_scale)));
  t += "      f = activation_(f);\n";
  if (bits(type_of(plan, layer.out[0])) == 8)
    t += fmt::format("      f = clip_(rintf(f * {}), -128.f, 127.f);\n",
                     number(1 / static_cast<double>(e.y_scale)));
  return t + fmt::format("      v[e] = f;\n    }}\n    store_<{}>(out0 + at, v);\n  }};\n", w);
}

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
      activation_code(layer.epilogue.act) + "extern \"C\" __global__ void __launch_bounds__(256) kernel(" +
      params + ") {\n  await_(eager);\n" + finish_code(plan, layer, 1) +
      fmt::format(
          "  const i64 t = (i64)blockIdx.x * 256 + threadIdx.x;\n  if (t >= {}) return;\n"
          "  const i64 column = t % {};\n  const i64 row = t / {} % {}, b = t / {};\n  float sum = 0.f;\n",
          total, s.n, s.n, s.m, s.n * s.m) +
      sum +
      fmt::format("  float v[1] = {{sum}};\n  finish_(v, column, b * {} + row * {} + column);\n}}\n",
                  s.step_d, s.ldd);
  if (layer.in[3].present() && (s.ldr != s.ldd || (s.batch > 1 && s.step_r != s.step_d))) {
    why_not = "residual and output have different strides";
    return {};
  }
  return {source};
}

std::vector<KernelSource> depthwise_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not) {
  const ConvGeometry& g = layer.conv;
  if (layer.kind != LayerKind::kConv || g.group == 1 || g.group_c() != 1 || g.group_m() != 1) {
    why_not = "not one channel a group";
    return {};
  }
  const int w = epilogue_width(plan, layer, g.c);
  std::vector<KernelSource> sources;
  for (const int across : {4, 2, 1}) {
    if (across > 1 && g.ow < across) continue;
    KernelSource source;
    source.tactic = fmt::format("depthwise:{}x{}", across, w);
    source.block = 128;
    const std::int64_t strips = (g.ow + across - 1) / across, total = g.n * g.oh * strips * (g.c / w);
    source.grid[0] = (total + 127) / 128;
    const std::string params = parameters(plan, layer, source);
    source.code = activation_code(layer.epilogue.act) + fill(R"(
extern "C" __global__ void __launch_bounds__(128) kernel($PARAMS$) {
  await_(eager);
$FINISH$
  const i64 t = (i64)blockIdx.x * 128 + threadIdx.x;
  if (t >= $TOTAL$) return;
  const int c = (int)(t % $VECTORS$) * $V$;
  const i64 p = t / $VECTORS$;
  const int ox0 = (int)(p % $STRIPS$) * $ACROSS$, oy = (int)(p / $STRIPS$ % $OH$);
  const i64 n = p / ($STRIPS$ * $OH$);
  float sum[$ACROSS$][$V$] = {};
#pragma unroll
  for (int ky = 0; ky < $KH$; ++ky) {
    const int iy = oy * $SH$ - $TOP$ + ky * $DH$;
    if (iy < 0 || iy >= $H$) continue;
    float weight[$KW$][$V$];
#pragma unroll
    for (int kx = 0; kx < $KW$; ++kx) load_<$V$>(weight[kx], in1 + (ky * $KW$ + kx) * $C$ + c);
    const auto* row = in0 + (n * $H$ + iy) * $W$ * $C$ + c;
#pragma unroll
    for (int i = 0; i < ($ACROSS$ - 1) * $SW$ + ($KW$ - 1) * $DW$ + 1; ++i) {
      const int ix = ox0 * $SW$ - $LEFT$ + i;
      float x[$V$];
      if (ix >= 0 && ix < $W$) load_<$V$>(x, row + (i64)ix * $C$);
      else
#pragma unroll
        for (int e = 0; e < $V$; ++e) x[e] = 0.f;
#pragma unroll
      for (int a = 0; a < $ACROSS$; ++a) {
        const int k = i - a * $SW$;
        if (k >= 0 && k % $DW$ == 0 && k / $DW$ < $KW$)
#pragma unroll
          for (int e = 0; e < $V$; ++e) sum[a][e] += x[e] * weight[k / $DW$][e];
      }
    }
  }
#pragma unroll
  for (int a = 0; a < $ACROSS$; ++a)
    if (ox0 + a < $OW$) finish_(sum[a], c, ((n * $OH$ + oy) * $OW$ + ox0 + a) * $C$ + c);
}
)",
                                                             {{"PARAMS", params},
                                                              {"FINISH", finish_code(plan, layer, w)},
                                                              {"TOTAL", std::to_string(total)},
                                                              {"VECTORS", std::to_string(g.c / w)},
                                                              {"V", std::to_string(w)},
                                                              {"STRIPS", std::to_string(strips)},
                                                              {"ACROSS", std::to_string(across)},
                                                              {"OH", std::to_string(g.oh)},
                                                              {"OW", std::to_string(g.ow)},
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
                                                              {"C", std::to_string(g.c)}});
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace pare::cuda
