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

// The arithmetic on one sum `f`, whose column values are scale[e], bias[e] and so on; `out` is what is
// stored.
static std::string value_code(const EnginePlan& plan, const PlanLayer& layer) {
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

// The code of v[e] in the copy.
static std::string copy_code(const EnginePlan& plan, const PlanLayer& layer) {
  const DType type = type_of(plan, layer.out[1]);
  const std::string scaled = fmt::format("      v[e] *= {};\n", number(1 / layer.copy_scale));
  if (type == DType::kE4M3FN) return scaled;
  return scaled + clipped_code("v[e]", code_low(type) - layer.copy_zero, code_high(type) - layer.copy_zero,
                               layer.copy_zero);
}

std::string store_word(DType type, int w) {
  return fmt::format("{}<{}>", type == DType::kI8 || type == DType::kU8 ? "store_codes_" : "store_", w);
}

// Names of the values that belong to columns, by slot.
static std::vector<std::pair<std::size_t, const char*>> column_values(const PlanLayer& layer) {
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

// Sum and squared deviations of 32 neighbouring values of a row, 8 of them in each of 4 neighbouring lanes.
static const char* kPieceSums = R"CUDA(
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
  if (leaves_sums(layer)) t += fill(kPieceSums, {{"PIECES", std::to_string(layer.out[0].dims.back() / 32)}});
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

// Four lanes hold four pairs each of the same 32 columns, p[0] .. p[3]: exchanged so that each has eight
// neighbours, or back again. Pairs of codes are 16 bits: two words, the first two pairs in the first.
static const char* kExchange = R"CUDA(
          {
            const u32 a = __shfl_xor_sync(0xffffffffu, lane & 1 ? p[0] : p[1], 1), b = __shfl_xor_sync(0xffffffffu, lane & 1 ? p[2] : p[3], 1);
            if (lane & 1) p[0] = a, p[2] = b; else p[1] = a, p[3] = b;
            const u32 c = __shfl_xor_sync(0xffffffffu, lane & 2 ? p[0] : p[2], 2), d = __shfl_xor_sync(0xffffffffu, lane & 2 ? p[1] : p[3], 2);
            if (lane & 2) p[0] = c, p[1] = d; else p[2] = c, p[3] = d;
          }
)CUDA";
static const char* kExchangeCodes = R"CUDA(
          {
            const u32 far = __shfl_xor_sync(0xffffffffu, lane & 2 ? p[0] : p[1], 2);
            const u32 first = lane & 2 ? far : p[0], second = lane & 2 ? p[1] : far;
            const u32 near_ = __byte_perm(first, second, lane & 1 ? 0x7632 : 0x5410);
            const u32 other_ = __shfl_xor_sync(0xffffffffu, __byte_perm(first, second, lane & 1 ? 0x5410 : 0x7632), 1);
            const u32 low = lane & 1 ? other_ : near_, high = lane & 1 ? near_ : other_;
            p[0] = __byte_perm(low, high, 0x5410);
            p[1] = __byte_perm(low, high, 0x7632);
          }
)CUDA";

// Where a row of the residual and of the output begins.
static std::vector<std::pair<std::string, std::string>> places(const LinearSizes& s) {
  return {{"LDD", std::to_string(s.ldd)},
          {"FIRST", s.batch > 1 ? fmt::format("batch * (i64){}", s.step_d) : "0"}};
}

// Eight neighbours of each of the thread's rows.
static std::string residual_rows(bool codes, const char* name, bool declare) {
  const char* word = codes ? "uint2" : "uint4";
  return fmt::format(R"CUDA({2}#pragma unroll
      for (int i = 0; i < MI * 2; ++i) {{
        const i64 row = ROW_AT(FIRST_ROW + (i >> 1) * 64 + (warp & 3) * 16 + (i & 1) * 8 + (lane >> 2));
        {1}[i] = *reinterpret_cast<const {0}*>(in3 + $FIRST$ + (row < M ? row : 0) * $LDD$ + (own < N ? own : 0));
      }}
)CUDA",
                     word, name, declare ? fmt::format("      {} {}[MI * 2];\n", word, name) : "");
}

std::string fragment_code(const EnginePlan& plan, const PlanLayer& layer, const char* group, bool loaded) {
  const auto has = [&](std::size_t slot) { return slot < layer.in.size() && layer.in[slot].present(); };
  const DType out = type_of(plan, layer.out[0]);
  // No branches but around loads and stores, so that the rows of a thread overlap; what rows beyond M compute
  // is stored nowhere.
  std::string t = R"CUDA(
#pragma unroll
    for (int g = 0; g < BN / 32; ++g) {
      const int c0 = n0 + g * 32 + (lane & 3) * 2, own = n0 + g * 32 + (lane & 3) * 8;
)CUDA";
  std::size_t k = 0;
  for (const auto& entry : column_values(layer))
    t += fmt::format(
        "      float {0}[8];\n#pragma unroll\n      for (int j = 0; j < 4; ++j) load_<2>({0} + 2 * j, "
        "&columns_[{1}][{2}][g * 32 + j * 8 + (lane & 3) * 2]);\n",
        entry.second, group, k++);
  // Of a shortcut, already where the sums are: nothing to exchange.
  const bool own = has_shortcut(layer);
  const DType residual = own ? layer.shortcut.type : has(3) ? type_of(plan, layer.in[3]) : DType::kUndefined;
  const bool pieces = own || (has(3) && bits(residual) <= 16), codes = pieces && bits(residual) == 8;
  if (pieces && !loaded) t += residual_rows(codes, "near", true);
  const LinearSizes s = linear_sizes(layer);
  const DType x = type_of(plan, layer.in[0]);
  // Sums of few products of codes are integers below 2^22.
  const bool small =
      (x == DType::kI8 || x == DType::kU8) && s.k * (x == DType::kI8 ? 128 : 255) * 128 < 1 << 22;
  t += fmt::format(R"CUDA(
#pragma unroll
      for (int i = 0; i < MI; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {{
          const int r = FIRST_ROW + i * 64 + (warp & 3) * 16 + h * 8 + (lane >> 2);
          const i64 row = ROW_AT(r);
          float v[8];
#pragma unroll
          for (int e = 0; e < 8; ++e) v[e] = {}(sum[i][(g * 4 + (e >> 1)) * 4 + h * 2 + (e & 1)]);
)CUDA",
                   small ? "small_" : "(float)");
  if (has(kNormStats)) t += "          const float2 norm = STAT_ROW(stat_);\n";
  if (has(kResidualStats)) t += "          const float2 other = STAT_ROW(residual_stat_);\n";
  if (pieces) {
    const std::string from = loaded ? "near[g][i * 2 + h]" : "near[i * 2 + h]";
    t += "          float residual[8];\n          {\n";
    if (codes) {
      t += fmt::format("          u32 p[2] = {{{0}.x, {0}.y}};\n", from);
      if (!own) t += kExchangeCodes;
      for (int e = 0; e < 8; ++e)
        t += residual == DType::kE4M3FN
                 ? fmt::format("          residual[{0}] = get_(E4M3{{(u8)(p[{1}] >> {2})}});\n", e, e / 4,
                               e % 4 * 8)
                 : fmt::format("          residual[{0}] = nth_code_<{2}>((const {3}*)0, p[{1}]);\n", e, e / 4,
                               e % 4, type_word(residual));
    } else {
      t += fmt::format("          u32 p[4] = {{{0}.x, {0}.y, {0}.z, {0}.w}};\n", from);
      if (!own) t += kExchange;
      t += fmt::format(
          "#pragma unroll\n          for (int j = 0; j < 4; ++j) {{\n            const Vec<{0}, 2> both = "
          "*reinterpret_cast<const Vec<{0}, 2>*>(&p[j]);\n            residual[2 * j] = get_(both.v[0]), "
          "residual[2 * j + 1] = get_(both.v[1]);\n          }}\n",
          type_word(residual));
    }
    t += "          }\n";
  } else if (has(3)) {
    t += "          float residual[8];\n#pragma unroll\n          for (int j = 0; j < 4; ++j) "
         "load_<2>(residual + 2 * j, "
         "in3 + $FIRST$ + (row < M ? row : 0) * $LDD$ + (c0 + j * 8 < N ? c0 + j * 8 : 0));\n";
  }
  t += "#pragma unroll\n          for (int e = 0; e < 8; ++e) {\n      float f = v[e];\n" +
       value_code(plan, layer) + "      v[e] = f;\n          }\n";
  const auto exchanged = [&](const char* to, DType type) {
    std::string text = "          {\n";
    if (bits(type) == 8) {
      text += "          u32 p[2];\n";
      for (int word = 0; word < 2; ++word)
        text += fmt::format("          p[{0}] = four_codes_({1}, v + {2});\n", word, to, 4 * word);
      text += kExchangeCodes;
    } else {
      text += fmt::format(
          "          u32 p[4];\n#pragma unroll\n          for (int j = 0; j < 4; ++j) p[j] = pair_({}, v[2 * "
          "j], "
          "v[2 * j + 1]);\n{}",
          to, kExchange);
    }
    return text + fmt::format(
                      "          if (own < N && row < M) *reinterpret_cast<{1}*>({0} + $FIRST$ + row * $LDD$ "
                      "+ own) = "
                      "{1}{{{2}}};\n          }}\n",
                      to, bits(type) == 8 ? "uint2" : "uint4",
                      bits(type) == 8 ? "p[0], p[1]" : "p[0], p[1], p[2], p[3]");
  };
  if (out == DType::kF32) {
    t += "#pragma unroll\n          for (int j = 0; j < 4; ++j) if (row < M && c0 + j * 8 < N) "
         "store_<2>(out0 + "
         "$FIRST$ + row * $LDD$ + c0 + j * 8, v + 2 * j);\n";
  } else {
    t += exchanged("out0", out);
  }
  if (copies_codes(layer))
    t += "#pragma unroll\n          for (int e = 0; e < 8; ++e) {\n" + copy_code(plan, layer) +
         "          }\n" + exchanged("out1", type_of(plan, layer.out[1]));
  if (leaves_sums(layer))
    t += "          {\n          const i64 column = n0 + g * 32;\n          if (column < N && row < M) {" +
         fill(kPieceSums, {{"PIECES", std::to_string(layer.out[0].dims.back() / 32)}}) +
         "          }\n          }\n";
  t += "        }\n    }\n";
  return fill(t, places(s));
}

std::string fragment_shortcut_code(const EnginePlan& plan, const PlanLayer& layer, const char* group) {
  const DType type = layer.shortcut.type, x = type_of(plan, layer.in[kShortX]);
  const bool codes = bits(type) == 8, integer = x == DType::kI8 || x == DType::kU8;
  const bool small = integer && layer.shortcut.conv.c * (x == DType::kI8 ? 128 : 255) * 128 < 1 << 22;
  std::string t = fmt::format(R"CUDA(
    {0} near[BN / 32][MI * 2];
#pragma unroll
    for (int g = 0; g < BN / 32; ++g) {{
)CUDA",
                              codes ? "uint2" : "uint4");
  std::size_t k = 0;
  for (const auto& [slot, name] : column_values(layer)) {
    if (slot == kShortScale || slot == kShortBias)
      t += fmt::format(
          "      float {0}[8];\n#pragma unroll\n      for (int j = 0; j < 4; ++j) load_<2>({0} + 2 * j, "
          "&columns_[{1}][{2}][g * 32 + j * 8 + (lane & 3) * 2]);\n",
          name, group, k);
    ++k;
  }
  t += fmt::format(R"CUDA(
#pragma unroll
      for (int i = 0; i < MI * 2; ++i) {{
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {{
          v[e] = {0}(sum[i >> 1][(g * 4 + (e >> 1)) * 4 + (i & 1) * 2 + (e & 1)]);
)CUDA",
                   small ? "small_" : "(float)");
  if (layer.shortcut.alpha != 1)
    t += fmt::format("          v[e] *= {};\n", number(static_cast<double>(layer.shortcut.alpha)));
  if (layer.in[kShortScale].present()) t += "          v[e] *= short_scale[e];\n";
  if (layer.in[kShortBias].present()) t += "          v[e] += short_bias[e];\n";
  if (codes)
    t += fmt::format("          v[e] *= {};\n", number(1 / static_cast<double>(layer.shortcut.y_scale)));
  const double zero = static_cast<double>(layer.shortcut.y_zero);
  if (codes && type != DType::kE4M3FN)
    t += clipped_code("v[e]", code_low(type) - zero, code_high(type) - zero, zero);
  const std::string to = fmt::format("(const {}*)0", type_word(type));
  t += "        }\n";
  t += codes
           ? fmt::format("        near[g][i] = uint2{{four_codes_({0}, v), four_codes_({0}, v + 4)}};\n", to)
           : fmt::format(
                 "        near[g][i] = uint4{{pair_({0}, v[0], v[1]), pair_({0}, v[2], v[3]), pair_({0}, "
                 "v[4], "
                 "v[5]), pair_({0}, v[6], v[7])}};\n",
                 to);
  return t + "      }\n    }\n";
}

std::string fragment_residual_code(const EnginePlan& plan, const PlanLayer& layer) {
  const bool codes = bits(type_of(plan, layer.in[3])) == 8;
  return fill(
      fmt::format("    {} near[BN / 32][MI * 2];\n#pragma unroll\n    for (int g = 0; g < BN / 32; ++g) {{\n"
                  "      const int own = n0 + g * 32 + (lane & 3) * 8;\n{}    }}\n",
                  codes ? "uint2" : "uint4", residual_rows(codes, "near[g]", false)),
      places(linear_sizes(layer)));
}

int fragment_residual_registers(const EnginePlan& plan, const PlanLayer& layer, int mi, int n) {
  if (has_shortcut(layer)) return mi * 2 * (n / 32) * bits(layer.shortcut.type) / 4;
  if (!layer.in[3].present() || bits(type_of(plan, layer.in[3])) > 16) return 0;
  return mi * 2 * (n / 32) * bits(type_of(plan, layer.in[3])) / 4;
}

}  // namespace pare::cuda
