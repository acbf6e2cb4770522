// One channel a group, one output channel each: vectorised over channels, taps in pairs.
#include <algorithm>

#include "engine/ops/qconv.h"

namespace pare::qconv {
namespace {

constexpr std::int64_t kPixels = 8;  // finished at once

struct Plan {
  const QKernels* kernels;
  Tensor weights;
  QFinishPlan finish;
  std::vector<std::uint8_t> zeros;  // channels of real zero: what lies outside of x
};

std::string depthwise_why_not(const OpCall& call) {
  if (q_kernels() == nullptr) return "needs AVX2";
  if (std::string why = why_not(call); !why.empty()) return why;
  const Geometry g = geometry(call);
  return g.group == g.c && g.m == g.c && g.group > 1 ? "" : "not one input and one output channel a group";
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  const Geometry g = geometry(call);
  auto plan = std::make_shared<Plan>();
  plan->kernels = q_kernels();
  plan->weights = q_pack_depthwise(plan->kernels, q_type(call, kQW, kQWZero),
                                   call.input(kQW).as<std::uint8_t>(), g.c, static_cast<int>(g.kh * g.kw));
  plan->finish = plan_finish(call, g.m, 1);
  plan->zeros.assign(static_cast<std::size_t>(g.c),
                     static_cast<std::uint8_t>(q_type(call, kQX, kQXZero).zero));
  return plan;
}

void run(const OpCall& call) {
  const auto& plan = *static_cast<const Plan*>(call.prepared);
  const Geometry g = geometry(call);
  const QFinish finish = plan.finish.finish_of(call, 0, g.m);
  const QType type = q_type(call, kQX, kQXZero);
  const auto* x = call.input(kQX).as<std::uint8_t>();
  const auto* w = plan.weights.as<std::int16_t>();
  const auto finish_pixels = PARE_SIMD_PICK(q_finish);
  const std::int64_t block = plan.kernels->depthwise_block, padded = (g.c + block - 1) / block * block;
  const auto taps = static_cast<std::size_t>(g.kh * g.kw);

  call.pool->parallel_for(g.n * g.oh, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const std::uint8_t*> tap(taps);
    std::vector<std::int32_t> acc(static_cast<std::size_t>(kPixels * padded));
    for (std::int64_t line = begin; line < end; ++line) {
      const std::uint8_t* image = x + line / g.oh * g.h * g.w * g.c;
      const std::int64_t y0 = line % g.oh * g.sh - g.top;
      for (std::int64_t ox = 0; ox < g.ow; ox += kPixels) {
        const std::int64_t pixels = std::min(kPixels, g.ow - ox);
        for (std::int64_t p = 0; p < pixels; ++p) {
          const std::int64_t x0 = (ox + p) * g.sw - g.left;
          std::size_t t = 0;
          for (std::int64_t kh = 0; kh < g.kh; ++kh) {
            const std::int64_t yy = y0 + kh * g.dh;
            const bool inside = yy >= 0 && yy < g.h;
            for (std::int64_t kw = 0; kw < g.kw; ++kw, ++t) {
              const std::int64_t xx = x0 + kw * g.dw;
              tap[t] = inside && xx >= 0 && xx < g.w ? image + (yy * g.w + xx) * g.c : plan.zeros.data();
            }
          }
          plan.kernels->depthwise(tap.data(), type, static_cast<int>(taps), w, g.c, acc.data() + p * padded);
        }
        finish_pixels(finish, acc.data(), padded, line * g.ow + ox, static_cast<int>(pixels), 0, g.c);
      }
    }
  });
}

}  // namespace

Kernel depthwise_kernel() {
  return {"pare", "QConv", Backend::kCpu, "pare.QConv/cpu:depthwise", depthwise_why_not, prepare, run};
}

}  // namespace pare::qconv
