// Convolution as a product: each output position is a row of A, gathered from the window's runs of channels.
#include <algorithm>

#include "engine/ops/integer/qconv.h"
#include "engine/ops/integer/qgemm_rows.h"

namespace pare::qconv {
namespace {

struct Plan {
  std::vector<QPacked> weights;  // one a group
  QFinishPlan finish;
};

class Windows final : public QRowSource {
 public:
  Windows(const OpCall& call, const Geometry& geometry, std::int64_t group)
      : g_(geometry), x_(call.input(kQX).as<std::uint8_t>() + group * geometry.group_c()) {
    // A tap's channels follow those of the tap before it, in x as in a row of A.
    runs_ = g_.group == 1 && g_.dw == 1;
    pointwise_ = g_.kh == 1 && g_.kw == 1 && g_.sh == 1 && g_.sw == 1 && g_.top == 0 && g_.left == 0 &&
                 g_.bottom == 0 && g_.right == 0 && g_.group == 1;
  }

  void gather(const QPacked& b, std::int64_t row, std::int64_t rows, std::uint8_t* a) const override {
    const std::int64_t stride = b.row_bytes();
    if (pointwise_ && g_.c * b.code_bytes() == stride) return b.copy(x_ + row * g_.c, rows * g_.c, a);
    std::int64_t ox = row % g_.ow, oy = row / g_.ow % g_.oh, n = row / (g_.ow * g_.oh);
    for (std::int64_t r = 0; r < rows; ++r, a += stride) {
      const std::int64_t x0 = ox * g_.sw - g_.left, y0 = oy * g_.sh - g_.top;
      const bool inside = x0 >= 0 && x0 + g_.kw <= g_.w && y0 >= 0 && y0 + (g_.kh - 1) * g_.dh < g_.h;
      if (runs_ && inside)
        b.copy_lines(x_ + ((n * g_.h + y0) * g_.w + x0) * g_.c, g_.dh * g_.w * g_.c, g_.kh, g_.kw * g_.c, a);
      else
        window(b, n, y0, x0, a);
      if (++ox < g_.ow) continue;
      ox = 0;
      if (++oy < g_.oh) continue;
      oy = 0, ++n;
    }
  }

 private:
  void window(const QPacked& b, std::int64_t n, std::int64_t y0, std::int64_t x0, std::uint8_t* a) const {
    const std::int64_t channels = g_.group_c(), code = b.code_bytes(), line = g_.kw * channels;
    for (std::int64_t kh = 0; kh < g_.kh; ++kh, a += line * code) {
      const std::int64_t y = y0 + kh * g_.dh;
      if (y < 0 || y >= g_.h) {
        b.fill_zero(line, a);
        continue;
      }
      const std::uint8_t* from = x_ + (n * g_.h + y) * g_.w * g_.c;
      if (runs_) {
        const std::int64_t first = std::clamp<std::int64_t>(-x0, 0, g_.kw);
        const std::int64_t last = std::clamp<std::int64_t>(g_.w - x0, first, g_.kw);
        if (first > 0) b.fill_zero(first * channels, a);
        b.copy(from + (x0 + first) * channels, (last - first) * channels, a + first * channels * code);
        if (last < g_.kw) b.fill_zero((g_.kw - last) * channels, a + last * channels * code);
        continue;
      }
      for (std::int64_t kw = 0; kw < g_.kw; ++kw) {
        const std::int64_t x = x0 + kw * g_.dw;
        std::uint8_t* to = a + kw * channels * code;
        if (x < 0 || x >= g_.w)
          b.fill_zero(channels, to);
        else
          b.copy(from + x * g_.c, channels, to);
      }
    }
  }

  const Geometry& g_;
  const std::uint8_t* x_;
  bool runs_, pointwise_;
};

std::string gemm_why_not(const OpCall& call) {
  if (q_kernels() == nullptr) return "needs AVX2";
  return why_not(call);
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  const Geometry g = geometry(call);
  auto plan = std::make_shared<Plan>();
  plan->finish = plan_finish(call, g.m, g.group);
  const QType x = q_type(call, kQX, kQXZero), w = q_type(call, kQW, kQWZero);
  // [m][c][kh][kw] to [m][kh][kw][c], the order in which windows are gathered.
  const auto* codes = call.input(kQW).as<std::uint8_t>();
  const std::int64_t taps = g.kh * g.kw, channels = g.group_c(), k = g.k();
  std::vector<std::uint8_t> ordered(static_cast<std::size_t>(g.m * k));
  for (std::int64_t m = 0; m < g.m; ++m)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t t = 0; t < taps; ++t)
        ordered[static_cast<std::size_t>(m * k + t * channels + c)] = codes[(m * channels + c) * taps + t];
  const std::int64_t columns = g.m / g.group;
  for (std::int64_t group = 0; group < g.group; ++group)
    plan->weights.push_back(
        qgemm_pack(q_kernels(), x, w, ordered.data() + group * columns * k, k, columns, 1, k));
  return plan;
}

void run(const OpCall& call) {
  const auto& plan = *static_cast<const Plan*>(call.prepared);
  const Geometry g = geometry(call);
  for (std::int64_t group = 0; group < g.group; ++group)
    qgemm_rows(plan.weights[static_cast<std::size_t>(group)], Windows(call, g, group), g.n * g.oh * g.ow,
               plan.finish.finish_of(call, group, g.m), call.pool);
}

}  // namespace

Kernel gemm_kernel() {
  Kernel kernel{"pare", "QConv", Backend::kCpu, "pare.QConv/cpu:gemm", gemm_why_not, prepare, run};
  kernel.share = PreparedShare::kAll;
  return kernel;
}

}  // namespace pare::qconv
