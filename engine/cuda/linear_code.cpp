#include "engine/cuda/linear_code.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/build/plan/program.h"

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

std::string finish_why_not(const PlanLayer& layer, int w) {
  if (has_shortcut(layer)) return "a shortcut inside";
  if (leaves_sums(layer) && (w != 8 || layer.out[0].dims.back() % 32 != 0))
    return "sums of rows need columns in pieces of 32";
  return "";
}

std::string stats_code(const PlanLayer& layer) {
  std::string text;
  const auto rows = [&](std::size_t slot, const char* name, double epsilon) {
    if (slot >= layer.in.size() || !layer.in[slot].present()) return;
    const std::int64_t pieces = layer.in[slot].dims[1];
    text += fmt::format(
        "    __shared__ float2 {0}[BM];\n    for (int r = tid; r < BM; r += THREADS)\n      if (m0 + r < M) "
        "{0}[r] = row_stats_<{1}>(in{2} + (i64)(m0 + r) * {3}, {4});\n",
        name, pieces, slot, layer.in[slot].strides[0], number(epsilon));
  };
  rows(kNormStats, "stat_", layer.epsilon);
  rows(kResidualStats, "residual_stat_", layer.r_epsilon);
  return text.empty() ? text : text + "    SYNC_();\n";
}

std::string lane_stats_shared(const PlanLayer& layer, int groups) {
  std::string text;
  for (const auto& [slot, name] :
       {std::pair<std::size_t, const char*>{kNormStats, "stat_"}, {kResidualStats, "residual_stat_"}})
    if (slot < layer.in.size() && layer.in[slot].present())
      text += fmt::format("  __shared__ float2 {}[{}][BM];\n", name, groups);
  return text;
}

std::string lane_stats_code(const PlanLayer& layer) {
  std::string text;
  const auto rows = [&](std::size_t slot, const char* name, double epsilon) {
    if (slot >= layer.in.size() || !layer.in[slot].present()) return;
    const std::int64_t pieces = layer.in[slot].dims[1];
    text += fmt::format(
        "      for (int r = FIRST_ROW + (tid & 127); r < FIRST_ROW + MI * 64; r += 128)\n        if (m0 + r "
        "< M) {}[group][r] = "
        "row_stats_<{}>(in{} + "
        "(i64)(m0 + r) * {}, {});\n",
        name, pieces, slot, layer.in[slot].strides[0], number(epsilon));
  };
  rows(kNormStats, "stat_", layer.epsilon);
  rows(kResidualStats, "residual_stat_", layer.r_epsilon);
  return text.empty() ? text
                      : text + "      asm volatile(\"bar.sync %0, 128;\" ::\"r\"(4 + group) : \"memory\");\n";
}

const char* add_parts_code() {
  return R"CUDA(
#pragma unroll
        for (int e = 0; e < V; ++e) v[e] = 0.f;
        for (int s = 0; s < SPLITS; ++s) {
          const float* part = parts + (i64)s * BM * BN + r * BN + c;
#pragma unroll
          for (int e = 0; e < V; ++e) v[e] += __ldcg(part + e);
        }
)CUDA";
}

std::string clipped_code(const char* value, double lo, double hi, double zero) {
  std::string t = fmt::format("      {0} = in_codes_({0}, {1}, {2});\n", value, number(lo), number(hi));
  // Rounded before the zero point comes: ties go to even without it.
  if (zero != 0) t += fmt::format("      {0} = round_code_({0}) + {1};\n", value, number(zero));
  return t;
}

std::string value_code(const EnginePlan& plan, const PlanLayer& layer, bool by_pairs) {
  const Epilogue& e = layer.epilogue;
  const auto has = [&](std::size_t slot) { return slot < layer.in.size() && layer.in[slot].present(); };
  std::string t;
  if (e.alpha != 1) t += fmt::format("      f *= {};\n", number(static_cast<double>(e.alpha)));
  if (has(kNormStats)) t += "      f = norm.y * (f - norm.x * columns[e]);\n";
  if (has(4)) t += "      f *= scale[e];\n";
  if (has(2)) t += "      f += bias[e];\n";
  if (has(kResidualStats)) {
    t += "      residual[e] = (residual[e] - other.x) * other.y;\n";
    if (has(kResidualGamma)) t += "      residual[e] *= gamma[e];\n";
    if (has(kResidualBeta)) t += "      residual[e] += beta[e];\n";
  }
  if (has(3) || has_shortcut(layer))
    t += e.r_scale == 1
             ? "      f += residual[e];\n"
             : fmt::format("      f += {} * residual[e];\n", number(static_cast<double>(e.r_scale)));
  const DType out = type_of(plan, layer.out[0]);
  const bool integers = out == DType::kI8 || out == DType::kU8, by_column = has(kYScales);
  // Limits of the activation and of the codes are one clip where both are numbers (or 0) in units of a code.
  const bool merged = integers && e.act.kind == Activation::Kind::kClip &&
                      (!by_column || ((e.act.lo == 0 || std::isinf(e.act.lo)) && std::isinf(e.act.hi)));
  if (by_pairs) return t;
  if (!merged) t += "      f = activation_(f);\n";
  if (by_column && bits(out) != 8)
    t += "      if (steps[e] != 0.f) f = clip_(rintf(f * steps[e]), -128.f, 127.f);\n";
  else if (by_column)
    t += "      f *= steps[e];\n";
  else if (bits(out) == 8)
    t += fmt::format("      f *= {};\n", number(1 / static_cast<double>(e.y_scale)));
  if (integers) {
    const float step = by_column ? 1.0f : static_cast<float>(1 / static_cast<double>(e.y_scale));
    const auto limit = [&](float v) { return static_cast<double>(std::isinf(v) || v == 0 ? v : v * step); };
    const double zero = static_cast<double>(e.y_zero);
    double lo = code_low(out) - zero, hi = code_high(out) - zero;
    if (merged) lo = std::clamp(limit(e.act.lo), lo, hi), hi = std::clamp(limit(e.act.hi), lo, hi);
    t += clipped_code("f", lo, hi, zero);
  }
  return t;
}

std::string copy_code(const EnginePlan& plan, const PlanLayer& layer) {
  const DType type = type_of(plan, layer.out[1]);
  const std::string scaled = fmt::format("      v[e] *= {};\n", number(1 / layer.copy_scale));
  if (type == DType::kE4M3FN) return scaled;
  return scaled + clipped_code("v[e]", code_low(type) - layer.copy_zero, code_high(type) - layer.copy_zero,
                               layer.copy_zero);
}

std::string store_word(DType type, int w) {
  return fmt::format("{}<{}>", type == DType::kI8 || type == DType::kU8 ? "store_codes_" : "store_", w);
}

std::vector<std::pair<std::size_t, const char*>> column_values(const PlanLayer& layer) {
  std::vector<std::pair<std::size_t, const char*>> list;
  const auto add = [&](std::size_t slot, const char* name) {
    if (slot < layer.in.size() && layer.in[slot].present()) list.emplace_back(slot, name);
  };
  add(4, "scale");
  add(2, "bias");
  add(kNormColumns, "columns");
  add(kResidualGamma, "gamma");
  add(kResidualBeta, "beta");
  add(kYScales, "steps");
  add(kShortScale, "short_scale");
  add(kShortBias, "short_bias");
  return list;
}

const char* piece_sums_code() {
  return R"CUDA(
    const u32 four = 15u << (threadIdx.x & 28u);
    float total = 0.f, square = 0.f;
#pragma unroll
    for (int e = 0; e < 8; ++e) total += v[e];
    total += __shfl_xor_sync(four, total, 1);
    total += __shfl_xor_sync(four, total, 2);
#pragma unroll
    for (int e = 0; e < 8; ++e) { const float d = v[e] - total * (1.f / 32); square += d * d; }
    square += __shfl_xor_sync(four, square, 1);
    square += __shfl_xor_sync(four, square, 2);
    if ((threadIdx.x & 3u) == 0) {
      const float pair[2] = {total, square};
      store_<2>(out1 + (row * $PIECES$ + column / 32) * 2, pair);
    }
)CUDA";
}

std::string finish_code(const EnginePlan& plan, const PlanLayer& layer, int w, bool asked) {
  if (has_shortcut(layer)) return "";  // finished where the sums lie
  const auto has = [&](std::size_t slot) { return slot < layer.in.size() && layer.in[slot].present(); };
  std::string arrays, loads;
  const auto vector = [&](std::size_t slot, const char* index, const char* name) {
    arrays += fmt::format("  float {}[{}];\n", name, w);
    loads += fmt::format("    load_<{}>({}, in{} + {});\n", w, name, slot, index);
  };
  for (const auto& [slot, name] : column_values(layer)) vector(slot, "column", name);
  if (has(3)) vector(3, "at", "residual");
  std::string t;
  if (asked) t += arrays + "  auto ask_ = [&](i64 column, i64 at) {\n" + loads + "  };\n";
  // Shared arrays are declared behind this text, so what they hold comes as an argument.
  t += "  auto finish_values_ = [&](float* v, i64 column, i64 at, i64 row, float2 norm, float2 other) {\n";
  if (!asked) t += arrays + loads;
  t += fmt::format("#pragma unroll\n    for (int e = 0; e < {}; ++e) {{\n      float f = v[e];\n", w);
  t += value_code(plan, layer);
  t += fmt::format("      v[e] = f;\n    }}\n    {}(out0 + at, v);\n",
                   store_word(type_of(plan, layer.out[0]), w));
  if (leaves_sums(layer))
    t += fill(piece_sums_code(), {{"PIECES", std::to_string(layer.out[0].dims.back() / 32)}});
  if (copies_codes(layer))
    t += fmt::format("#pragma unroll\n    for (int e = 0; e < {}; ++e) {{\n{}    }}\n    {}(out1 + at, v);\n",
                     w, copy_code(plan, layer), store_word(type_of(plan, layer.out[1]), w));
  t += "  };\n";
  t += fmt::format("#define finish_(v, column, at, row, r) finish_values_(v, column, at, row, {}, {})\n",
                   has(kNormStats) ? "stat_[r]" : "float2{0.f, 1.f}",
                   has(kResidualStats) ? "residual_stat_[r]" : "float2{0.f, 1.f}");
  return t;
}

bool has_fragment_code(const EnginePlan& plan, const PlanLayer& layer) {
  const DType out = type_of(plan, layer.out[0]);
  return epilogue_width(plan, layer, linear_sizes(layer).n) == 8 && out != DType::kU8 &&
         !(copies_codes(layer) && type_of(plan, layer.out[1]) == DType::kU8);
}

std::string columns_shared(const PlanLayer& layer, int groups) {
  const std::size_t count = column_values(layer).size();
  return count == 0 ? "" : fmt::format("  __shared__ float columns_[{}][{}][BN];\n", groups, count);
}

bool columns_are_weights(const EnginePlan& plan, const PlanLayer& layer) {
  for (const auto& entry : column_values(layer))
    if (plan.tensors[static_cast<std::size_t>(layer.in[entry.first].tensor)].role != PlanRole::kWeight)
      return false;
  return true;
}

int columns_bytes(const PlanLayer& layer, int groups, int n) {
  return static_cast<int>(column_values(layer).size()) * groups * n * 4;
}

std::string columns_code(const PlanLayer& layer, const char* group, const char* thread, int threads) {
  std::string t;
  std::size_t k = 0;
  for (const auto& entry : column_values(layer))
    t += fmt::format("        columns_[{}][{}][c] = n0 + c < N ? get_(in{}[n0 + c]) : 0.f;\n", group, k++,
                     entry.first);
  return t.empty()
             ? t
             : fmt::format("      for (int c = {}; c < BN; c += {}) {{\n{}      }}\n", thread, threads, t);
}

}  // namespace pare::cuda
