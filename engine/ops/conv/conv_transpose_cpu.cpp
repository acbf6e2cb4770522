#include "engine/ops/conv/conv_transpose.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/matmul/gemm_f32.h"

namespace pare {
namespace {

struct Prepared {
  ConvGeometry geometry;
  Activation act;
  bool joined = false;  // one product for all taps of a kernel row
  std::int64_t packed_floats = 0;
  Tensor packed;  // [group][kh][kw, or 1 when joined]; depthwise: [kh][kw][c] as it is
};

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

std::string why_not(const OpCall& call) {
  ConvGeometry g;
  return packed_conv_why_not(call, g);
}

std::string depthwise_why_not(const OpCall& call) {
  ConvGeometry g;
  std::string why = packed_conv_why_not(call, g);
  return why.empty() && (g.group != g.c || g.m != g.c) ? "more than one channel a group" : why;
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  ConvGeometry& g = p->geometry;
  const std::string why = resolve_conv(call, g, p->act);
  PARE_ASSERT(why.empty());
  p->joined = g.group == 1 && g.kw == g.sw && g.dw == 1 && g.left == 0 && g.ow == g.w * g.sw;
  const std::int64_t k = g.group_c(), n = g.group_m(), taps = g.kh * g.kw;
  const std::int64_t columns = p->joined ? g.kw * n : n, steps = p->joined ? 1 : g.kw;
  p->packed_floats = round_up(packed_b_floats(k, columns), 16);
  p->packed = Tensor::allocate(DType::kF32, {g.group * g.kh * steps * p->packed_floats});
  std::vector<float> joined(static_cast<std::size_t>(p->joined ? k * columns : 0));
  float* to = p->packed.mut<float>();
  for (std::int64_t group = 0; group < g.group; ++group) {
    const float* w = call.in[1].as<float>() + group * k * n * taps;
    for (std::int64_t ky = 0; ky < g.kh; ++ky) {
      for (std::int64_t i = 0; p->joined && i < k * columns; ++i) {  // [c][kx][m]
        const std::int64_t c = i / columns, kx = i % columns / n, m = i % n;
        joined[static_cast<std::size_t>(i)] = w[(c * n + m) * taps + ky * g.kw + kx];
      }
      for (std::int64_t step = 0; step < steps; ++step, to += p->packed_floats) {
        if (p->joined)
          pack_b(joined.data(), columns, 1, k, columns, to);
        else
          pack_b(w + ky * g.kw + step, n * taps, taps, k, n, to);
      }
    }
  }
  return p;
}

// The input row that kernel row ky adds to output row oy; -1: none.
std::int64_t input_row(const ConvGeometry& g, std::int64_t oy, std::int64_t ky) {
  const std::int64_t at = oy + g.top - ky * g.dh;
  return at >= 0 && at % g.sh == 0 && at / g.sh < g.h ? at / g.sh : -1;
}

// Outputs ox = phase + j * sw of tap kx lie over inputs base + j.
struct TapRange {
  std::int64_t kx = 0, base = 0, first = 0, last = 0;  // j in [first, last)
};

std::vector<std::vector<TapRange>> ranges_of(const ConvGeometry& g) {
  std::vector<std::vector<TapRange>> phases(static_cast<std::size_t>(g.sw));
  for (std::int64_t phase = 0; phase < g.sw; ++phase) {
    const std::int64_t count = g.ow > phase ? (g.ow - phase + g.sw - 1) / g.sw : 0;
    for (std::int64_t kx = 0; kx < g.kw; ++kx) {
      const std::int64_t at = phase + g.left - kx * g.dw;
      if (at % g.sw != 0) continue;
      const std::int64_t base = at / g.sw;
      const TapRange range = {kx, base, std::max<std::int64_t>(0, -base), std::min(count, g.w - base)};
      if (range.first < range.last) phases[static_cast<std::size_t>(phase)].push_back(range);
    }
  }
  return phases;
}

bool is_identity(const Activation& act) {
  const Activation none;
  return act.kind == Activation::Kind::kClip && act.lo == none.lo && act.hi == none.hi;
}

class Lines {
 public:
  explicit Lines(const OpCall& call)
      : p_(*static_cast<const Prepared*>(call.prepared)),
        g_(p_.geometry),
        x_(call.in[0].as<float>()),
        y_(call.out[0].mut<float>()),
        bias_(static_cast<std::size_t>(g_.m * (p_.joined ? g_.kw : 1)), 0),
        ranges_(ranges_of(g_)),
        multiply_(PARE_SIMD_PICK(gemm_f32_task)) {
    if (call.has(2))
      for (std::size_t i = 0; i < bias_.size(); ++i)
        bias_[i] = call.in[2].as<float>()[i % static_cast<std::size_t>(g_.m)];
  }

  void line(std::int64_t index) const {
    const std::int64_t n = index / g_.oh, oy = index % g_.oh;
    float* const out = y_ + index * g_.ow * g_.m;
    bool started = false;
    std::int64_t adds = 0;
    for (std::int64_t ky = 0; ky < g_.kh; ++ky) adds += input_row(g_, oy, ky) >= 0 ? 1 : 0;
    // With one product for every output, bias and activation are its business.
    const bool whole = p_.joined && adds == 1;
    if (!whole) {
      for (std::int64_t ox = 0; ox < g_.ow; ++ox) std::copy_n(bias_.data(), g_.m, out + ox * g_.m);
      started = true;
    }
    for (std::int64_t ky = 0; ky < g_.kh; ++ky) {
      const std::int64_t iy = input_row(g_, oy, ky);
      if (iy < 0) continue;
      const float* in = x_ + (n * g_.h + iy) * g_.w * g_.c;
      if (p_.joined)
        joined(in, ky, out, started);
      else
        separate(in, ky, out);
    }
    if (!whole && !is_identity(p_.act)) activate(out);
  }

 private:
  GemmTask task(std::int64_t group, std::int64_t ky, std::int64_t kx) const {
    GemmTask t;
    const std::int64_t steps = p_.joined ? 1 : g_.kw;
    t.b = p_.packed.as<float>() + ((group * g_.kh + ky) * steps + kx) * p_.packed_floats;
    t.k = g_.group_c();
    t.n = p_.joined ? g_.kw * g_.m : g_.group_m();
    t.panel_end = gemm_panels(t.n);
    return t;
  }

  void joined(const float* in, std::int64_t ky, float* out, bool started) const {
    GemmTask t = task(0, ky, 0);
    t.a = in;
    t.lda = g_.c;
    t.m = g_.w;
    t.c = out;
    t.ldc = t.ldr = t.n;
    if (started) {
      t.residual = out;
    } else {
      t.bias = bias_.data();
      t.act = p_.act;
    }
    multiply_(t);
  }

  void separate(const float* in, std::int64_t ky, float* out) const {
    for (std::int64_t group = 0; group < g_.group; ++group)
      for (std::size_t phase = 0; phase < ranges_.size(); ++phase)
        for (const TapRange& range : ranges_[phase]) {
          GemmTask t = task(group, ky, range.kx);
          t.a = in + (range.base + range.first) * g_.c + group * g_.group_c();
          t.lda = g_.c;
          t.m = range.last - range.first;
          t.c = out + (static_cast<std::int64_t>(phase) + range.first * g_.sw) * g_.m + group * g_.group_m();
          t.ldc = t.ldr = g_.sw * g_.m;
          t.residual = t.c;
          multiply_(t);
        }
  }

  void activate(float* out) const {  // a product over nothing, plus what is there
    GemmTask t;
    t.b = p_.packed.as<float>();
    t.a = x_;
    t.m = g_.ow;
    t.n = g_.m;
    t.c = out;
    t.residual = out;
    t.ldc = t.ldr = g_.m;
    t.panel_end = gemm_panels(t.n);
    t.act = p_.act;
    multiply_(t);
  }

  const Prepared& p_;
  const ConvGeometry& g_;
  const float* x_;
  float* y_;
  std::vector<float> bias_;
  std::vector<std::vector<TapRange>> ranges_;
  void (*multiply_)(const GemmTask&);
};

void run(const OpCall& call) {
  if (call.out[0].size() == 0) return;
  const Lines lines(call);
  const ConvGeometry& g = static_cast<const Prepared*>(call.prepared)->geometry;
  constexpr std::int64_t kWorthAThread = 1 << 16;
  call.pool->parallel_for(g.n * g.oh, grain_for(kWorthAThread, g.w * g.c * g.group_m() * g.kw),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t i = begin; i < end; ++i) lines.line(i);
                          });
}

// --- one channel a group

std::shared_ptr<const void> prepare_depthwise(const OpCall& call) {
  auto p = std::make_shared<Prepared>();
  ConvGeometry& g = p->geometry;
  const std::string why = resolve_conv(call, g, p->act);
  PARE_ASSERT(why.empty());
  const std::int64_t taps = g.kh * g.kw;
  p->packed = Tensor::allocate(DType::kF32, {taps * g.c});
  for (std::int64_t i = 0; i < taps * g.c; ++i)
    p->packed.mut<float>()[i] = call.in[1].as<float>()[i % g.c * taps + i / g.c];
  return p;
}

void run_depthwise(const OpCall& call) {
  const auto& p = *static_cast<const Prepared*>(call.prepared);
  const ConvGeometry& g = p.geometry;
  const std::vector<float> zeros(static_cast<std::size_t>(g.c), 0);
  const float *x = call.in[0].as<float>(), *w = p.packed.as<float>();
  const float* bias = call.has(2) ? call.in[2].as<float>() : zeros.data();
  const bool plain = is_identity(p.act);
  call.pool->parallel_for(g.n * g.oh, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      float* out = call.out[0].mut<float>() + line * g.ow * g.c;
      for (std::int64_t ox = 0; ox < g.ow; ++ox, out += g.c) {
        std::copy_n(bias, g.c, out);
        for (std::int64_t ky = 0; ky < g.kh; ++ky) {
          const std::int64_t iy = input_row(g, line % g.oh, ky);
          if (iy < 0) continue;
          for (std::int64_t kx = 0; kx < g.kw; ++kx) {
            const std::int64_t at = ox + g.left - kx * g.dw;
            if (at < 0 || at % g.sw != 0 || at / g.sw >= g.w) continue;
            const float* in = x + ((line / g.oh * g.h + iy) * g.w + at / g.sw) * g.c;
            const float* weight = w + (ky * g.kw + kx) * g.c;
            for (std::int64_t c = 0; c < g.c; ++c) out[c] += in[c] * weight[c];
          }
        }
        if (plain) continue;
        for (std::int64_t c = 0; c < g.c; ++c)
          out[c] = static_cast<float>(p.act(static_cast<double>(out[c])));
      }
    }
  });
}

// --- reference

std::string reference_why_not(const OpCall& call) {
  ConvGeometry g;
  Activation act;
  return resolve_conv(call, g, act);
}

void run_reference(const OpCall& call) {
  ConvGeometry g;
  Activation act;
  resolve_conv(call, g, act);
  const float *x = call.in[0].as<float>(), *w = call.in[1].as<float>();
  float* y = call.out[0].mut<float>();
  for (std::int64_t at = 0; at < call.out[0].size(); ++at) {
    const std::int64_t m = at % g.m, ox = at / g.m % g.ow, oy = at / g.m / g.ow % g.oh,
                       n = at / g.m / g.ow / g.oh;
    double sum = 0;
    for (std::int64_t ky = 0; ky < g.kh; ++ky)
      for (std::int64_t kx = 0; kx < g.kw; ++kx) {
        const std::int64_t iy = input_row(g, oy, ky), column = ox + g.left - kx * g.dw;
        if (iy < 0 || column < 0 || column % g.sw != 0 || column / g.sw >= g.w) continue;
        for (std::int64_t c = 0; c < g.group_c(); ++c) {
          const std::int64_t channel = m / g.group_m() * g.group_c() + c;
          sum += static_cast<double>(x[((n * g.h + iy) * g.w + column / g.sw) * g.c + channel]) *
                 static_cast<double>(w[((channel * g.group_m() + m % g.group_m()) * g.kh + ky) * g.kw + kx]);
        }
      }
    if (call.has(2)) sum += static_cast<double>(call.in[2].as<float>()[m]);
    y[at] = static_cast<float>(act(sum));
  }
}

}  // namespace

Kernel conv_transpose_depthwise_kernel() {
  return {"pare",
          "ConvTranspose",
          Backend::kCpu,
          "pare.ConvTranspose/cpu:depthwise",
          depthwise_why_not,
          prepare_depthwise,
          run_depthwise};
}

Kernel conv_transpose_rows_kernel() {
  return {"pare", "ConvTranspose", Backend::kCpu, "pare.ConvTranspose/cpu:rows", why_not, prepare, run};
}

Kernel conv_transpose_reference_kernel() {
  return {"pare",  "ConvTranspose", Backend::kCpu, "pare.ConvTranspose/cpu:reference", reference_why_not,
          nullptr, run_reference};
}

}  // namespace pare
