// One channel a group, one output channel each: vectorised over channels, taps in pairs.
#include <algorithm>

#include "engine/ops/integer/qconv.h"

namespace pare::qconv {
namespace {

constexpr std::int64_t kPixels = 8;  // finished at once

struct Plan {
  QDepthwise weights;
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
  plan->weights = q_pack_depthwise(q_kernels(), q_type(call, kQX, kQXZero), q_type(call, kQW, kQWZero),
                                   call.input(kQW).as<std::uint8_t>(), g.c, static_cast<int>(g.kh * g.kw));
  plan->finish = plan_finish(call, g.m, 1);
  plan->zeros.assign(static_cast<std::size_t>(g.c),
                     static_cast<std::uint8_t>(q_type(call, kQX, kQXZero).zero));
  return plan;
}

// Where the taps of one output pixel lie in x.
class Taps {
 public:
  Taps(const Geometry& g, const std::uint8_t* zeros)
      : g_(g), zeros_(zeros), line_(static_cast<std::size_t>(g.kh * g.kw)), pixel_(line_.size()) {}

  // A line of output whose windows start at row y0 of `image`.
  void start_line(const std::uint8_t* image, std::int64_t y0) {
    image_ = image;
    y0_ = y0;
    rows_inside_ = y0 >= 0 && y0 + (g_.kh - 1) * g_.dh < g_.h;
    if (!rows_inside_) return;
    for (std::int64_t kh = 0, t = 0; kh < g_.kh; ++kh)
      for (std::int64_t kw = 0; kw < g_.kw; ++kw, ++t)
        line_[static_cast<std::size_t>(t)] = image + ((y0 + kh * g_.dh) * g_.w + kw * g_.dw) * g_.c;
  }

  // The window that starts at column x0: tap t lies `shift` behind the returned pointer t.
  const std::uint8_t* const* window(std::int64_t x0, std::int64_t* shift) {
    if (rows_inside_ && x0 >= 0 && x0 + (g_.kw - 1) * g_.dw < g_.w) {
      *shift = x0 * g_.c;
      return line_.data();
    }
    *shift = 0;
    for (std::int64_t kh = 0, t = 0; kh < g_.kh; ++kh) {
      const std::int64_t y = y0_ + kh * g_.dh;
      for (std::int64_t kw = 0; kw < g_.kw; ++kw, ++t) {
        const std::int64_t x = x0 + kw * g_.dw;
        const bool inside = y >= 0 && y < g_.h && x >= 0 && x < g_.w;
        pixel_[static_cast<std::size_t>(t)] = inside ? image_ + (y * g_.w + x) * g_.c : zeros_;
      }
    }
    return pixel_.data();
  }

 private:
  const Geometry& g_;
  const std::uint8_t *zeros_, *image_ = nullptr;
  std::int64_t y0_ = 0;
  bool rows_inside_ = false;
  std::vector<const std::uint8_t*> line_, pixel_;
};

void run(const OpCall& call) {
  const auto& plan = *static_cast<const Plan*>(call.prepared);
  const Geometry g = geometry(call);
  const QFinish finish = plan.finish.finish_of(call, 0, g.m);
  const bool is_signed = call.input(kQX).dtype == DType::kI8;
  const auto* x = call.input(kQX).as<std::uint8_t>();
  const auto finish_pixels = PARE_SIMD_PICK(q_finish);
  const std::int64_t padded = plan.finish.padded;

  call.pool->parallel_for(g.n * g.oh, 1, [&](std::int64_t begin, std::int64_t end) {
    Taps taps(g, plan.zeros.data());
    std::vector<std::int32_t> acc(static_cast<std::size_t>(kPixels * padded));
    for (std::int64_t line = begin; line < end; ++line) {
      taps.start_line(x + line / g.oh * g.h * g.w * g.c, line % g.oh * g.sh - g.top);
      for (std::int64_t ox = 0; ox < g.ow; ox += kPixels) {
        const std::int64_t pixels = std::min(kPixels, g.ow - ox);
        for (std::int64_t p = 0; p < pixels; ++p) {
          std::int64_t shift = 0;
          const auto* window = taps.window((ox + p) * g.sw - g.left, &shift);
          plan.weights.pixel(window, shift, is_signed, static_cast<int>(g.kh * g.kw), g.c,
                             acc.data() + p * padded);
        }
        finish_pixels(finish, acc.data(), padded, line * g.ow + ox, static_cast<int>(pixels), 0, g.c);
      }
    }
  });
}

}  // namespace

Kernel depthwise_kernel() {
  Kernel kernel{"pare", "QConv", Backend::kCpu, "pare.QConv/cpu:depthwise", depthwise_why_not, prepare, run};
  kernel.share = PreparedShare::kAll;
  return kernel;
}

}  // namespace pare::qconv
