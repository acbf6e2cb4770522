#include "engine/cuda/kernel_source.h"

#include <cmath>

#include "engine/base/error.h"

namespace pare::cuda {

const std::string& prelude() {
  static const std::string text = R"CUDA(
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char i8; typedef unsigned char u8; typedef long long i64; typedef int i32;
struct F16 { u16 b; }; struct BF16 { u16 b; }; struct E4M3 { u8 b; };
__device__ __forceinline__ float get_(float v) { return v; }
__device__ __forceinline__ float get_(F16 v) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.b)); return f; }
__device__ __forceinline__ float get_(BF16 v) { return __uint_as_float((u32)v.b << 16); }
__device__ __forceinline__ float get_(E4M3 v) {
  u32 pair; u16 low; float f;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)v.b));
  low = (u16)pair;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(low));
  return f;
}
__device__ __forceinline__ float get_(i8 v) { return (float)v; }
__device__ __forceinline__ float get_(u8 v) { return (float)v; }
__device__ __forceinline__ float get_(i32 v) { return (float)v; }
__device__ __forceinline__ float get_(i64 v) { return (float)v; }
__device__ __forceinline__ void put_(float& o, float v) { o = v; }
__device__ __forceinline__ void put_(F16& o, float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(o.b) : "f"(v)); }
__device__ __forceinline__ void put_(BF16& o, float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(o.b) : "f"(v)); }
__device__ __forceinline__ void put_(E4M3& o, float v) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(v));
  o.b = (u8)pair;
}
__device__ __forceinline__ float e4m3_(float v) { E4M3 o; put_(o, v); return get_(o); }
__device__ __forceinline__ void put_(i8& o, float v) { o = (i8)(int)v; }
__device__ __forceinline__ void put_(u8& o, float v) { o = (u8)(int)v; }
__device__ __forceinline__ void put_(i32& o, float v) { o = (i32)v; }
__device__ __forceinline__ void put_(i64& o, float v) { o = (i64)v; }
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec { T v[N]; };
template <int N, typename T> __device__ __forceinline__ void load_(float* o, const T* p) {
  const Vec<T, N> r = *reinterpret_cast<const Vec<T, N>*>(p);
#pragma unroll
  for (int i = 0; i < N; ++i) o[i] = get_(r.v[i]);
}
template <int N, typename T> __device__ __forceinline__ void store_(T* p, const float* v) {
  Vec<T, N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) put_(r.v[i], v[i]);
  *reinterpret_cast<Vec<T, N>*>(p) = r;
}
template <int N> __device__ __forceinline__ void store_(E4M3* p, const float* v) {
  if constexpr (N % 2 == 0) {
    Vec<u16, N / 2> r;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r.v[i]) : "f"(v[2 * i + 1]), "f"(v[2 * i]));
    *reinterpret_cast<Vec<u16, N / 2>*>(p) = r;
  } else {
    for (int i = 0; i < N; ++i) put_(p[i], v[i]);
  }
}
// Two neighbours as one word; o says which type.
__device__ __forceinline__ u32 pair_(const F16*, float a, float b) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ u32 pair_(const BF16*, float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ u32 pair_(const E4M3*, float a, float b) { u16 r; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(b), "f"(a)); return r; }
__device__ __forceinline__ float clip_(float v, float lo, float hi) { return v < lo ? lo : v > hi ? hi : v; }
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ float max_(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
__device__ __forceinline__ float min_(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
#else
__device__ __forceinline__ float max_(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }
__device__ __forceinline__ float min_(float a, float b) { return a != a || b != b ? a + b : fminf(a, b); }
#endif
// Codes of 8 bits without conversions, of which a multiprocessor does fewer than additions: a number below
// 2^22 plus 1.5 * 2^23 is rounded to even, and its lowest byte is the code; an integer below 2^22 in those bits is a float.
__device__ __forceinline__ float in_codes_(float v, float lo, float hi) { return fminf(fmaxf(v, lo), hi); }
__device__ __forceinline__ u32 code_bits_(float v) { return __float_as_uint(v + 12582912.f); }
__device__ __forceinline__ float round_code_(float v) { return (v + 12582912.f) - 12582912.f; }
__device__ __forceinline__ float small_(int v) { return __int_as_float(v + 0x4B400000) - 12582912.f; }
__device__ __forceinline__ u32 pair_(const i8*, float a, float b) { return __byte_perm(code_bits_(a), code_bits_(b), 0x0040) & 0xffffu; }
template <typename T> __device__ __forceinline__ u32 four_codes_(const T*, const float* v) {
  return __byte_perm(__byte_perm(code_bits_(v[0]), code_bits_(v[1]), 0x0040), __byte_perm(code_bits_(v[2]), code_bits_(v[3]), 0x0040), 0x5410);
}
__device__ __forceinline__ u32 four_codes_(const E4M3* o, const float* v) { return pair_(o, v[0], v[1]) | pair_(o, v[2], v[3]) << 16; }
template <int N, typename T> __device__ __forceinline__ void store_codes_(T* p, const float* v) {
  if constexpr (N % 4 == 0) {
    struct alignas(N < 16 ? N : 16) Words { u32 w[N / 4]; } r;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) r.w[i] = four_codes_(p, v + 4 * i);
    *reinterpret_cast<Words*>(p) = r;
  } else {
    Vec<T, N> r;
#pragma unroll
    for (int i = 0; i < N; ++i) r.v[i] = (T)code_bits_(v[i]);
    *reinterpret_cast<Vec<T, N>*>(p) = r;
  }
}
// Code k of the four in a word.
template <int K> __device__ __forceinline__ float nth_code_(const i8*, u32 w) { return __uint_as_float(__byte_perm(w ^ 0x80808080u, 0x4B000000u, 0x7650 + K)) - 8388736.f; }
template <int K> __device__ __forceinline__ float nth_code_(const u8*, u32 w) { return __uint_as_float(__byte_perm(w, 0x4B000000u, 0x7650 + K)) - 8388608.f; }
// Abramowitz and Stegun 7.1.26: off by at most 1.5e-7, a third of the instructions of erff.
__device__ __forceinline__ float erf_(float v) {
  const float a = fabsf(v), t = __fdividef(1.f, 1.f + 0.3275911f * a);
  const float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  return copysignf(1.f - p * __expf(-a * a), v);
}
// x Phi(x) = max(x, 0) - |x| / 2 erfc(|x| / sqrt(2)), with erfc as above.
__device__ __forceinline__ float gelu_exact_(float x) {
  const float a = fabsf(x), t = __fdividef(1.f, 1.f + 0.23164189f * a);
  const float p = ((((0.5307027f * t - 0.7265760f) * t + 0.7107069f) * t - 0.1422484f) * t + 0.1274148f) * t;
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * x * -0.72134752f));
  return a == __int_as_float(0x7f800000) ? fmaxf(x, 0.f) : fmaxf(x, 0.f) - a * p * e;
}
// x Phi(x) = max(x, 0) - |x| Phi(-|x|), with a polynomial for log2 Phi(-a): half the instructions. Terms: gelu_tail().
template <int N> __device__ __forceinline__ float gelu_short_(float x, const float (&c)[N]) {
  float a, e;
  asm("min.NaN.f32 %0, %1, 0f41800000;" : "=f"(a) : "f"(fabsf(x)));
  float p = c[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) p = fmaf(p, a, c[i]);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(p));
  return fmaf(-a, e, fmaxf(x, 0.f));
}
// The same for two float16 at once, in their arithmetic: off by 1 % of a value that E4M3 shows.
__device__ __forceinline__ u32 halves_(float v) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(r) : "f"(v)); return r; }
template <int N> __device__ __forceinline__ u32 gelu_pair_(u32 x, const float (&c)[N]) {
  u32 a, p = halves_(c[N - 1]), e, m, r;
  asm("{\n.reg .b32 t;\nabs.f16x2 t, %1;\nmin.NaN.f16x2 %0, t, %2;\n}" : "=r"(a) : "r"(x), "r"(0x4C004C00));
#pragma unroll
  for (int i = N - 2; i >= 0; --i) asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(p) : "r"(p), "r"(a), "r"(halves_(c[i])));
  asm("ex2.approx.f16x2 %0, %1;" : "=r"(e) : "r"(p));
  asm("max.f16x2 %0, %1, %2;" : "=r"(m) : "r"(x), "r"(0));
  asm("{\n.reg .b32 t;\nneg.f16x2 t, %1;\nfma.rn.f16x2 %0, t, %2, %3;\n}" : "=r"(r) : "r"(a), "r"(e), "r"(m));
  return r;
}
__device__ __forceinline__ u32 halves_times_(u32 v, float by) { u32 r; asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(halves_(by))); return r; }
__device__ __forceinline__ u32 two_codes_(u32 v) { u16 r; asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(r) : "r"(v)); return r; }
__device__ __forceinline__ float gelu_(float a, float tanh_form) {
  return tanh_form != 0.f ? 0.5f * a * (1.f + tanhf(0.7978845608f * (a + 0.044715f * a * a * a))) : gelu_exact_(a);
}
// A kernel may be launched while the one in front of it still runs: nothing that others write is touched before this.
// `eager`: the one behind it is ours too and waits in turn. Libraries start theirs early as well, but not all of them
// wait, so they are let in only when this kernel is done.
__device__ __forceinline__ void await_(u32 eager) {
#if __CUDA_ARCH__ >= 900
  if (eager) asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Mean and 1 / deviation of a row from the sums and squared deviations of its pieces of 32 columns.
template <int C> __device__ __forceinline__ float2 row_stats_(const float* p, float epsilon) {
  float2 piece[C], r;
  float mean = 0.f, square = 0.f;
#pragma unroll
  for (int i = 0; i < C; ++i) piece[i] = reinterpret_cast<const float2*>(p)[i];
#pragma unroll
  for (int i = 0; i < C; ++i) mean += piece[i].x;
  mean *= 1.f / (32 * C);
#pragma unroll
  for (int i = 0; i < C; ++i) { const float d = piece[i].x * (1.f / 32) - mean; square += piece[i].y + 32.f * d * d; }
  r.x = mean;
  r.y = rsqrtf(fmaxf(square * (1.f / (32 * C)), 0.f) + epsilon);
  return r;
}
__device__ __forceinline__ float softplus_(float a) { return fmaxf(a, 0.f) + log1pf(expf(-fabsf(a))); }
)CUDA";
  return text;
}

const char* type_word(DType type) {
  switch (type) {
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kE4M3FN:
      return "E4M3";
    case DType::kI8:
      return "i8";
    case DType::kU8:
    case DType::kBool:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    default:
      fail(ErrorCode::kUnsupported, "kernels have no type {}", name(type));
  }
}

int size_of(DType type) { return bits(type) / 8; }

DType type_of(const EnginePlan& plan, const PlanView& view) {
  return plan.tensors[static_cast<std::size_t>(view.tensor)].dtype;
}

std::string number(double value) {
  if (std::isnan(value)) return "__int_as_float(0x7fc00000)";
  if (std::isinf(value)) return value > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  return fmt::format("{:.9e}f", value);
}

std::string fill(std::string text, const Replacements& words) {
  std::string out;
  out.reserve(text.size() * 2);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      out += text[i++];
      continue;
    }
    const std::size_t end = text.find('$', i + 1);
    PARE_ASSERT(end != std::string::npos);
    const std::string word = text.substr(i + 1, end - i - 1);
    bool found = false;
    for (const auto& [key, value] : words)
      if (key == word) {
        out += value;
        found = true;
        break;
      }
    if (!found) fail(ErrorCode::kInternal, "a kernel text has no value for ${}$", word);
    i = end + 1;
  }
  return out;
}

Replacements with_geometry(Replacements words, const ConvGeometry& g) {
  for (const auto& [name, size] : {std::pair{"KH", g.kh},
                                   {"KW", g.kw},
                                   {"SH", g.sh},
                                   {"SW", g.sw},
                                   {"DH", g.dh},
                                   {"DW", g.dw},
                                   {"TOP", g.top},
                                   {"LEFT", g.left},
                                   {"OH", g.oh},
                                   {"OW", g.ow},
                                   {"H", g.h},
                                   {"W", g.w},
                                   {"C", g.c}})
    words.emplace_back(name, std::to_string(size));
  return words;
}

std::string parameters(const EnginePlan& plan, const PlanLayer& layer, KernelSource& source) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
  for (std::size_t i = 0; i < layer.in.size(); ++i) {
    if (!layer.in[i].present()) continue;
    source.in.push_back(static_cast<int>(i));
    add(fmt::format("const {}* __restrict__ in{}", type_word(type_of(plan, layer.in[i])), i));
  }
  for (std::size_t i = 0; i < layer.out.size(); ++i) {
    source.out.push_back(static_cast<int>(i));
    add(fmt::format("{}* __restrict__ out{}", type_word(type_of(plan, layer.out[i])), i));
  }
  if (source.workspace_bytes > 0) add("float* __restrict__ workspace");
  if (source.counters > 0) add("u32* __restrict__ counters");
  add("u32 eager");
  return text;
}

std::vector<float> gelu_tail(DType out) {
  // Minimax fits on [0, 6], weighted by what a float16 shows; from 16 on the argument stays 16, where the
  // tail is below 2^-140.
  if (out == DType::kF16 || out == DType::kBF16)
    return {-1.00010421f, -1.14942392f, -0.463575034f, -0.0486456326f, 0.00594959646f, -0.000333146475f};
  if (bits(out) == 8) return {-1.00085069f, -1.14025017f, -0.481603843f, -0.0363104055f, 0.00251831323f};
  return {};
}

bool activates_pairs(const PlanLayer& layer, DType out) {
  // Codes of at most 448 and steps of a float16 beside each other: the factor between them is one, too.
  const float scale = layer.epilogue.y_scale;
  return layer.epilogue.act.kind == Activation::Kind::kGelu && out == DType::kE4M3FN &&
         !(layer.in.size() > kYScales && layer.in[kYScales].present()) && scale >= 0x1p-10f &&
         scale <= 0x1p+8f;
}

std::string activation_code(const Activation& act, DType out) {
  using Kind = Activation::Kind;
  const auto x = number(static_cast<double>(act.alpha)), y = number(static_cast<double>(act.beta));
  std::string body;
  switch (act.kind) {
    case Kind::kClip:
      if (std::isinf(act.lo) && std::isinf(act.hi))
        body = "v";
      else if (std::isinf(act.hi))
        body = fmt::format("max_(v, {})", number(static_cast<double>(act.lo)));
      else
        body = fmt::format("clip_(v, {}, {})", number(static_cast<double>(act.lo)),
                           number(static_cast<double>(act.hi)));
      break;
    case Kind::kHardSwish:
      body = "v * clip_(v * 0.16666667f + 0.5f, 0.f, 1.f)";
      break;
    case Kind::kHardSigmoid:
      body = fmt::format("clip_({} * v + {}, 0.f, 1.f)", x, y);
      break;
    case Kind::kSigmoid:
      body = "1.f / (1.f + __expf(-v))";
      break;
    case Kind::kSilu:
      body = "v / (1.f + __expf(-v))";
      break;
    case Kind::kGelu:
      if (const std::vector<float> tail = gelu_tail(out); !tail.empty()) {
        for (const float c : tail) body += (body.empty() ? "" : ", ") + number(static_cast<double>(c));
        return fmt::format(
            "__device__ __forceinline__ float activation_(float v) {{ const float tail[] = {{{0}}}; return "
            "gelu_short_(v, tail); }}\n{1}",
            body,
            out != DType::kE4M3FN
                ? ""
                : fmt::format("__device__ __forceinline__ u32 activation_pair_(u32 v) {{ "
                              "const float tail[] = {{{}}}; return gelu_pair_(v, tail); }}\n",
                              body));
      }
      body = "gelu_(v, 0.f)";
      break;
    case Kind::kTanh:
      body = "tanhf(v)";
      break;
  }
  return "__device__ __forceinline__ float activation_(float v) { return " + body + "; }\n";
}

std::vector<KernelSource> generated_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not) {
  std::vector<KernelSource> all;
  const auto take = [&](const char* group, auto make) {
    std::string why;
    for (KernelSource& source : make(plan, layer, why)) all.push_back(std::move(source));
    if (!why.empty()) why_not += fmt::format("\n  {}: {}", group, why);
  };
  switch (layer.kind) {
    case LayerKind::kPointwise:
      take("pointwise", pointwise_kernels);
      break;
    case LayerKind::kRows:
      take("rows", rows_kernels);
      break;
    case LayerKind::kPool:
      take("pool by words", max_pool_kernels);
      take("pool", pool_kernels);
      break;
    case LayerKind::kAttention:
      take("attention", attention_kernels);
      break;
    case LayerKind::kConv:
    case LayerKind::kGemm:
      take("pingpong", pingpong_kernels);
      take("stream", stream_kernels);
      take("strip", strip_kernels);
      take("window", window_kernels);
      take("shared_tile", shared_tile_kernels);
      take("wgmma", wgmma_kernels);
      take("mma", mma_kernels);
      take("depthwise", depthwise_kernels);
      take("plain", plain_linear_kernels);
      break;
  }
  return all;
}

}  // namespace pare::cuda
