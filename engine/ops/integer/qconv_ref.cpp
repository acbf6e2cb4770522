#include <vector>

#include "engine/ops/integer/qconv.h"

namespace pare::qconv {
namespace {

std::int32_t code(const TensorView& t, std::int64_t i) {
  return t.dtype == DType::kI8 ? t.as<std::int8_t>()[i] : t.as<std::uint8_t>()[i];
}

std::int64_t window_sum(const OpCall& call, const Geometry& g, std::int64_t n, std::int64_t oy,
                        std::int64_t ox, std::int64_t m) {
  const std::int32_t zx = q_type(call, kQX, kQXZero).zero, zw = q_type(call, kQW, kQWZero).zero;
  const std::int64_t first_c = m / (g.m / g.group) * g.group_c();
  std::int64_t sum = 0;
  for (std::int64_t kh = 0; kh < g.kh; ++kh) {
    const std::int64_t y = oy * g.sh - g.top + kh * g.dh;
    if (y < 0 || y >= g.h) continue;
    for (std::int64_t kw = 0; kw < g.kw; ++kw) {
      const std::int64_t x = ox * g.sw - g.left + kw * g.dw;
      if (x < 0 || x >= g.w) continue;
      for (std::int64_t c = 0; c < g.group_c(); ++c)
        sum += static_cast<std::int64_t>(code(call.in[kQX], ((n * g.h + y) * g.w + x) * g.c + first_c + c) -
                                         zx) *
               (code(call.in[kQW], ((m * g.group_c() + c) * g.kh + kh) * g.kw + kw) - zw);
    }
  }
  return sum;
}

void run(const OpCall& call) {
  const Geometry g = geometry(call);
  const QFinishPlan plan = plan_finish(call, g.m, 1);
  const QFinish finish = plan.finish_of(call, 0, g.m);
  call.pool->parallel_for(g.n * g.oh, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> acc(static_cast<std::size_t>(plan.padded));
    for (std::int64_t line = begin; line < end; ++line) {
      for (std::int64_t ox = 0; ox < g.ow; ++ox) {
        for (std::int64_t m = 0; m < g.m; ++m)
          acc[static_cast<std::size_t>(m)] =
              static_cast<std::int32_t>(window_sum(call, g, line / g.oh, line % g.oh, ox, m));
        simd_scalar::q_finish(finish, acc.data(), 0, line * g.ow + ox, 1, 0, g.m);
      }
    }
  });
}

}  // namespace

Kernel ref_kernel() { return {"pare", "QConv", Backend::kCpu, "pare.QConv/cpu:ref", why_not, nullptr, run}; }

}  // namespace pare::qconv
