// The epilogue of wgmma's sums where they lie, in registers (linear_code.h).
#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/program.h"
#include "engine/cuda/linear_code.h"

namespace pare::cuda {

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
static std::string residual_rows(bool codes, const char* name) {
  return fmt::format(R"CUDA(#pragma unroll
      for (int i = 0; i < MI * 2; ++i) {{
        const i64 row = ROW_AT(FIRST_ROW + (i >> 1) * 64 + (warp & 3) * 16 + (i & 1) * 8 + (lane >> 2));
        {1}[i] = *reinterpret_cast<const {0}*>(in3 + $FIRST$ + (row < M ? row : 0) * $LDD$ + (own < N ? own : 0));
      }}
)CUDA",
                     codes ? "uint2" : "uint4", name);
}

// `name`[8]: the thread's columns of the values in place k.
static std::string column_code(const char* name, const char* group, std::size_t k) {
  return fmt::format(
      "      float {0}[8];\n#pragma unroll\n      for (int j = 0; j < 4; ++j) load_<2>({0} + 2 * j, "
      "&columns_[{1}][{2}][g * 32 + j * 8 + (lane & 3) * 2]);\n",
      name, group, k);
}

// v[8] of a row, or the words p[] that already hold its pairs, exchanged and stored as `type` into `to`.
static std::string stored_code(const char* to, DType type, bool packed = false) {
  std::string text = "          {\n";
  if (type == DType::kF32)
    return text + fmt::format(
                      "#pragma unroll\n          for (int j = 0; j < 4; ++j) if (row < M && c0 + j * 8 < N) "
                      "store_<2>({} + $FIRST$ + row * $LDD$ + c0 + j * 8, v + 2 * j);\n          }}\n",
                      to);
  if (bits(type) == 8) {
    text += "          u32 p[2];\n";
    for (int word = 0; word < 2; ++word)
      text += fmt::format("          p[{0}] = four_codes_({1}, v + {2});\n", word, to, 4 * word);
    text += kExchangeCodes;
  } else {
    if (!packed)
      text += fmt::format(
          "          u32 p[4];\n#pragma unroll\n          for (int j = 0; j < 4; ++j) p[j] = pair_({}, v[2 * "
          "j], v[2 * j + 1]);\n",
          to);
    text += kExchange;
  }
  return text +
         fmt::format(
             "          if (own < N && row < M) *reinterpret_cast<{1}*>({0} + $FIRST$ + row * $LDD$ + own) = "
             "{1}{{{2}}};\n          }}\n",
             to, bits(type) == 8 ? "uint2" : "uint4",
             bits(type) == 8 ? "p[0], p[1]" : "p[0], p[1], p[2], p[3]");
}

// The same of E4M3 codes whose activation is one of pairs: v[8] have not been through it.
static std::string stored_pairs(double inverse) {
  return fmt::format(R"CUDA(          {{
          u32 p[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) p[j] = halves_times_(activation_pair_(pair_((const F16*)0, v[2 * j], v[2 * j + 1])), {0});
          p[0] = two_codes_(p[0]) | two_codes_(p[1]) << 16, p[1] = two_codes_(p[2]) | two_codes_(p[3]) << 16;
{1}          if (own < N && row < M) *reinterpret_cast<uint2*>(out0 + $FIRST$ + row * $LDD$ + own) = uint2{{p[0], p[1]}};
          }}
)CUDA",
                     number(inverse), kExchangeCodes);
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
  for (const auto& entry : column_values(layer)) t += column_code(entry.second, group, k++);
  // Of a shortcut, already where the sums are: nothing to exchange.
  const bool own = has_shortcut(layer);
  const DType residual = own ? layer.shortcut.type : has(3) ? type_of(plan, layer.in[3]) : DType::kUndefined;
  const bool pieces = own || (has(3) && bits(residual) <= 16), codes = pieces && bits(residual) == 8;
  if (pieces && !loaded)
    t += fmt::format("      {} near[MI * 2];\n", codes ? "uint2" : "uint4") + residual_rows(codes, "near");
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
  const bool by_pairs = activates_pairs(layer, out);
  t += "#pragma unroll\n          for (int e = 0; e < 8; ++e) {\n      float f = v[e];\n" +
       value_code(plan, layer, by_pairs) + "      v[e] = f;\n          }\n";
  t += by_pairs ? stored_pairs(1 / static_cast<double>(layer.epilogue.y_scale)) : stored_code("out0", out);
  if (copies_codes(layer))
    t += "#pragma unroll\n          for (int e = 0; e < 8; ++e) {\n" + copy_code(plan, layer) +
         "          }\n" + stored_code("out1", type_of(plan, layer.out[1]));
  if (leaves_sums(layer))
    t += "          {\n          const i64 column = n0 + g * 32;\n          if (column < N && row < M) {" +
         fill(piece_sums_code(), {{"PIECES", std::to_string(layer.out[0].dims.back() / 32)}}) +
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
    if (slot == kShortScale || slot == kShortBias) t += column_code(name, group, k);
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
                  codes ? "uint2" : "uint4", residual_rows(codes, "near[g]")),
      places(linear_sizes(layer)));
}

int fragment_residual_registers(const EnginePlan& plan, const PlanLayer& layer, int mi, int n) {
  if (has_shortcut(layer)) return mi * 2 * (n / 32) * bits(layer.shortcut.type) / 4;
  if (!layer.in[3].present() || bits(type_of(plan, layer.in[3])) > 16) return 0;
  return mi * 2 * (n / 32) * bits(type_of(plan, layer.in[3])) / 4;
}

}  // namespace pare::cuda
