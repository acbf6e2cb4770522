// Row kernels: a program, then a reduction or normalization along the last axis held in registers.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/program.h"
#include "engine/cuda/program_code.h"

namespace pare::cuda {
namespace {

// What is stored for the code of v: store_ rounds E4M3 itself. The reciprocal of the step is what products
// multiply by too.
std::string stored_code(const ProgramStep& step, const std::string& v) {
  const auto type = static_cast<DType>(static_cast<int>(step.z));
  const std::string scaled = fmt::format("({} * {})", v, number(1 / step.x));
  if (type == DType::kE4M3FN) return scaled;
  return fmt::format("clip_(rintf({}) + {}, {}, {})", scaled, number(step.y), number(code_low(type)),
                     number(code_high(type)));
}

// `threads` share a row; rows_per_block of them in a block.
KernelSource rows_kernel(const EnginePlan& plan, const PlanLayer& layer, const ProgramCode& code, int w,
                         int threads) {
  const Dims& dims = code.dims();
  const std::int64_t columns = dims.back(), rows = element_count(dims) / std::max<std::int64_t>(columns, 1);
  const int per_block = std::max(1, 128 / threads), block = threads * per_block;
  const std::int64_t chunks = (columns + threads * w - 1) / (threads * w);
  const bool reduces = layer.op.rfind("Reduce", 0) == 0;
  KernelSource source;
  source.tactic = fmt::format("rows:{}x{}", threads, w);
  source.block = block;
  source.grid[0] = (rows + per_block - 1) / per_block;
  std::string t;
  t += fmt::format(R"(
template <typename F> __device__ __forceinline__ float all_(float v, F f, float* shared) {{
#pragma unroll
  for (int o = {0} / 2; o > 0; o >>= 1) v = f(v, __shfl_xor_sync(0xffffffffu, v, o));
  if ({1} > 32) {{
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
    __syncthreads();
    v = shared[0];
#pragma unroll
    for (int i = 1; i < {1} / 32; ++i) v = f(v, shared[i]);
  }}
  return v;
}}
struct Sum {{ __device__ float operator()(float a, float b) const {{ return a + b; }} }};
struct Most {{ __device__ float operator()(float a, float b) const {{ return max_(a, b); }} }};
struct Least {{ __device__ float operator()(float a, float b) const {{ return min_(a, b); }} }};
)",
                   std::min(threads, 32), threads);
  t += fmt::format("extern \"C\" __global__ void __launch_bounds__({}) kernel({}) {{\n", block,
                   parameters(plan, layer, source));
  t += "  __shared__ float shared[32];\n";
  t += fmt::format(
      "  const u32 lane = threadIdx.x % {0}u;\n  const u32 row = blockIdx.x * {1}u + threadIdx.x / {0}u;\n",
      threads, per_block);
  // Scale and bias are written by nobody: where they are few, they come while the kernel in front finishes.
  const auto early = [&](std::size_t slot) {
    return chunks == 1 && layer.in[slot].present() &&
           plan.tensors[static_cast<std::size_t>(layer.in[slot].tensor)].role == PlanRole::kWeight;
  };
  for (std::size_t slot = layer.in.size() - 2; !reduces && slot < layer.in.size(); ++slot)
    if (early(slot))
      t += fmt::format(
          "  float p{0}[{1}];\n  if (lane * {1}u < {2}u) load_<{1}>(p{0}, in{0} + lane * {1}u);\n", slot, w,
          columns);
  t += "  await_(eager);\n";
  t += fmt::format("  if (row >= {}u) return;\n  u32 r = row;\n", rows);
  for (std::size_t i = dims.size() - 1; i-- > 0;)
    t += i == 0 ? fmt::format("  const u32 c{} = r;\n", i)
                : fmt::format("  const u32 c{0} = r % {1}u; r /= {1}u;\n", i, dims[i]);
  const std::string last = fmt::format("c{}", dims.size() - 1);
  t += fmt::format("  float x[{}][{}];\n", chunks, w);
  t += fmt::format(
      "#pragma unroll\n  for (int k = 0; k < {}; ++k) {{\n    const u32 {} = (k * {}u + lane) * {}u;\n",
      chunks, last, threads, w);
  t += fmt::format("    if ({} < {}u) {{\n", last, columns);
  t += code.load_and_compute(w);
  t += fmt::format("#pragma unroll\n  for (int e = 0; e < {}; ++e) x[k][e] = o0[e];\n", w);
  for (std::size_t o = 1; o < layer.program.results.size(); ++o)
    t += code.store_output(o, w, fmt::format("o{}", o));
  t += "    }\n  }\n";
  const std::string loop = fmt::format(
      "#pragma unroll\n  for (int k = 0; k < {}; ++k) if ((k * {}u + lane) * {}u < {}u)\n#pragma unroll\n  "
      "for (int e = 0; e < {}; ++e) ",
      chunks, threads, w, columns, w);
  const auto reduce = [&](const char* name, const char* start, const char* body, const char* op) {
    t += fmt::format("  float {} = {};\n{}{}\n  {} = all_({}, {}{{}}, shared);\n", name, start, loop, body,
                     name, name, op);
  };
  const std::string n = number(static_cast<double>(columns));
  std::string value;
  if (layer.op == "Softmax") {
    reduce("most", "__int_as_float(0xff800000)", "most = max_(most, x[k][e]);", "Most");
    reduce("total", "0.f", "{ x[k][e] = expf(x[k][e] - most); total += x[k][e]; }", "Sum");
    t += "  const float scale = 1.f / total;\n";
    value = "x[k][e] * scale";
  } else if (reduces) {
    if (layer.op == "ReduceMax")
      reduce("v", "__int_as_float(0xff800000)", "v = max_(v, x[k][e]);", "Most");
    else if (layer.op == "ReduceMin")
      reduce("v", "__int_as_float(0x7f800000)", "v = min_(v, x[k][e]);", "Least");
    else
      reduce("v", "0.f", "v += x[k][e];", "Sum");
    if (layer.op == "ReduceMean") t += "  v *= 1.f / " + n + ";\n";
  } else {
    t += "  float mean = 0.f;\n";
    if (layer.op == "LayerNormalization") {
      t += loop + "mean += x[k][e];\n  mean = all_(mean, Sum{}, shared) * (1.f / " + n + ");\n";
    }
    reduce("square", "0.f", "{ const float d = x[k][e] - mean; square += d * d; }", "Sum");
    t += "  const float scale = rsqrtf(square * (1.f / " + n + ") + " + number(layer.epsilon) + ");\n";
    value = "(x[k][e] - mean) * scale";
  }
  const auto post = [&](std::string v) {
    for (std::size_t i = 0; i < layer.post.size(); ++i) {
      const ProgramStep& step = layer.post[i];
      const bool stored = i + 1 == layer.post.size() && step.op == "Quantize" &&
                          static_cast<DType>(static_cast<int>(step.z)) == type_of(plan, layer.out[0]);
      v = stored ? stored_code(step, v) : step_expression(step, {v});
    }
    return v;
  };
  if (reduces) {
    t += "  if (lane == 0) put_(out0[row], " + post("v") + ");\n";
  } else {
    const std::size_t gamma = layer.in.size() - 2, beta = layer.in.size() - 1;
    t += fmt::format(
        "#pragma unroll\n  for (int k = 0; k < {}; ++k) {{\n    const u32 {} = (k * {}u + lane) * {}u;\n    "
        "if ({} >= {}u) continue;\n",
        chunks, last, threads, w, last, columns);
    for (const std::size_t slot : {gamma, beta})
      if (layer.in[slot].present() && !early(slot))
        t += fmt::format("    float p{0}[{1}]; load_<{1}>(p{0}, in{0} + {2});\n", slot, w, last);
    t += fmt::format(
        "    float y[{}];\n#pragma unroll\n    for (int e = 0; e < {}; ++e) {{\n      float v = {};\n", w, w,
        value);
    if (layer.in[gamma].present()) t += fmt::format("      v *= p{}[e];\n", gamma);
    if (layer.in[beta].present()) t += fmt::format("      v += p{}[e];\n", beta);
    t += "      y[e] = " + post("v") + ";\n    }\n";
    t += code.store_output(0, w, "y");
    if (copies_codes(layer)) {
      ProgramStep step;
      step.op = "Quantize";
      step.x = layer.copy_scale;
      step.y = layer.copy_zero;
      step.z = static_cast<double>(static_cast<int>(type_of(plan, layer.out.back())));
      t += fmt::format("    float q[{0}];\n#pragma unroll\n    for (int e = 0; e < {0}; ++e) q[e] = {1};\n",
                       w, stored_code(step, "y[e]"));
      t += code.store_output(layer.out.size() - 1, w, "q");
    }
    t += "  }\n";
  }
  source.code = t + "}\n";
  return source;
}

}  // namespace

std::vector<KernelSource> rows_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not) {
  const ProgramCode code(layer, true);
  const std::int64_t columns = code.dims().back(),
                     rows = element_count(code.dims()) / std::max<std::int64_t>(columns, 1);
  if (columns > 16384 || rows > 0x7FFFFFFF) {
    why_not = "rows of more than 16384 values do not stay in registers";
    return {};
  }
  for (std::size_t slot = layer.in.size() - 2; slot < layer.in.size(); ++slot)
    if (layer.in[slot].present() && layer.in[slot].strides.back() != 1) {
      why_not = "scale or bias is not one value a column";
      return {};
    }
  int w = code.width();
  while (columns % w != 0) w /= 2;
  std::vector<KernelSource> sources;
  for (const int threads : {32, 128, 256})
    if (columns / w <= static_cast<std::int64_t>(threads) * (threads == 256 ? 64 : 8) &&
        (threads == 32 || columns / w > threads / 4))
      sources.push_back(rows_kernel(plan, layer, code, w, threads));
  if (sources.empty()) sources.push_back(rows_kernel(plan, layer, code, w, 256));
  return sources;
}

// A block of `threads`.
static KernelSource pool_kernel(const EnginePlan& plan, const PlanLayer& layer, int threads) {
  const ConvGeometry& g = layer.conv;
  const int w = g.c % 8 == 0 ? 8 : g.c % 4 == 0 ? 4 : 1;
  const std::int64_t vectors = g.c / w, outputs = g.n * g.oh * g.ow;
  // Large windows (global pooling) are cut over rows of threads, the more the fewer channels there are.
  int lanes = 256;
  if (g.kh * g.kw >= 32)
    for (lanes = 32; lanes > 4 && lanes / 2 >= vectors;) lanes /= 2;
  const int slices = std::max(threads / lanes, 1);
  KernelSource source;
  source.tactic = fmt::format("pool:{}x{}", slices, w);
  source.block = lanes * slices;
  const bool max = layer.op == "MaxPool";
  const std::int64_t total = vectors * outputs;
  source.grid[0] = (total + lanes - 1) / lanes;
  const std::string params = parameters(plan, layer, source);
  std::string code = "v[e]";
  const DType out = type_of(plan, layer.out[0]);
  if (bits(out) == 8 && bits(type_of(plan, layer.in[0])) != 8) {
    code = fmt::format("v[e] * {}", number(1 / static_cast<double>(layer.epilogue.y_scale)));
    if (out != DType::kE4M3FN)
      code = fmt::format("clip_(rintf({}) + {}, {}, {})", code,
                         number(static_cast<double>(layer.epilogue.y_zero)), number(code_low(out)),
                         number(code_high(out)));
  }
  source.code = fill(R"(
extern "C" __global__ void __launch_bounds__($BLOCK$) kernel($PARAMS$) {
  __shared__ float part[$SLICES$][$LANES$][$W$ + 1];
  await_(eager);
  const u32 lane = threadIdx.x % $LANES$u, slice = threadIdx.x / $LANES$u;
  const i64 t = (i64)blockIdx.x * $LANES$ + lane;
  float v[$W$];
#pragma unroll
  for (int e = 0; e < $W$; ++e) v[e] = $START$;
  const i64 o = t / $VECTORS$;
  const u32 c = (u32)(t % $VECTORS$) * $W$u;
  const int ox = (int)(o % $OW$), oy = (int)(o / $OW$ % $OH$);
  const i64 n = o / ($OW$ * $OH$);
  int count = 0;
  if (t < $TOTAL$) {
#pragma unroll 4
    for (int k = slice; k < $KH$ * $KW$; k += $SLICES$) {
      const int iy = oy * $SH$ - $TOP$ + k / $KW$ * $DH$, ix = ox * $SW$ - $LEFT$ + k % $KW$ * $DW$;
      if (iy < 0 || iy >= $H$ || ix < 0 || ix >= $WIDTH$) continue;
      float x[$W$];
      load_<$W$>(x, in0 + ((n * $H$ + iy) * $WIDTH$ + ix) * $C$ + c);
#pragma unroll
      for (int e = 0; e < $W$; ++e) v[e] = $STEP$;
    }
  }
  if ($SLICES$ > 1) {
#pragma unroll
    for (int e = 0; e < $W$; ++e) part[slice][lane][e] = v[e];
    __syncthreads();
#pragma unroll
    for (int half = $SLICES$ / 2; half > 0; half /= 2) {
      if (slice < half)
#pragma unroll
        for (int e = 0; e < $W$; ++e) { const float x[1] = {part[slice + half][lane][e]}; part[slice][lane][e] = v[e] = $JOIN$; }
      __syncthreads();
    }
    if (slice != 0) return;
  }
  if (t >= $TOTAL$) return;
  if ($MEAN$) {
    int y0 = oy * $SH$ - $TOP$, x0 = ox * $SW$ - $LEFT$, rows = 0, columns = 0;
    for (int k = 0; k < $KH$; ++k) rows += y0 + k * $DH$ >= 0 && y0 + k * $DH$ < $H$;
    for (int k = 0; k < $KW$; ++k) columns += x0 + k * $DW$ >= 0 && x0 + k * $DW$ < $WIDTH$;
    count = $PADS$ ? $KH$ * $KW$ : rows * columns;
#pragma unroll
    for (int e = 0; e < $W$; ++e) v[e] = v[e] / (float)count;
  }
#pragma unroll
  for (int e = 0; e < $W$; ++e) v[e] = $CODE$;
  store_<$W$>(out0 + o * $C$ + c, v);
}
)",
                     {{"PARAMS", params},
                      {"CODE", code},
                      {"BLOCK", std::to_string(source.block)},
                      {"SLICES", std::to_string(slices)},
                      {"LANES", std::to_string(lanes)},
                      {"W", std::to_string(w)},
                      {"START", max ? "__int_as_float(0xff800000)" : "0.f"},
                      {"STEP", max ? "max_(v[e], x[e])" : "v[e] + x[e]"},
                      {"JOIN", max ? "max_(v[e], x[0])" : "v[e] + x[0]"},
                      {"MEAN", max ? "false" : "true"},
                      {"PADS", layer.op == "AveragePool+pads" ? "true" : "false"},
                      {"VECTORS", std::to_string(vectors)},
                      {"TOTAL", std::to_string(total)},
                      {"C", std::to_string(g.c)},
                      {"H", std::to_string(g.h)},
                      {"WIDTH", std::to_string(g.w)},
                      {"OH", std::to_string(g.oh)},
                      {"OW", std::to_string(g.ow)},
                      {"KH", std::to_string(g.kh)},
                      {"KW", std::to_string(g.kw)},
                      {"SH", std::to_string(g.sh)},
                      {"SW", std::to_string(g.sw)},
                      {"DH", std::to_string(g.dh)},
                      {"DW", std::to_string(g.dw)},
                      {"TOP", std::to_string(g.top)},
                      {"LEFT", std::to_string(g.left)}});
  return source;
}

std::vector<KernelSource> pool_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not) {
  (void)why_not;
  std::vector<KernelSource> sources = {pool_kernel(plan, layer, 256)};
  // A large window is a long sum: more threads share it.
  if (layer.conv.kh * layer.conv.kw >= 128) sources.push_back(pool_kernel(plan, layer, 1024));
  return sources;
}

}  // namespace pare::cuda
