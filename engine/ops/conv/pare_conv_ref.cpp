// pare.Conv in double, straight from its definition (conv.h).
#include "engine/ops/conv/conv.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  ConvGeometry geometry;
  Activation activation;
  return resolve_conv(call, geometry, activation);
}

double window_sum(const ConvGeometry& g, const float* image, const float* weight, std::int64_t first_channel,
                  std::int64_t oy, std::int64_t ox) {
  double sum = 0;
  for (std::int64_t ky = 0; ky < g.kh; ++ky) {
    const std::int64_t iy = oy * g.sh - g.top + ky * g.dh;
    if (iy < 0 || iy >= g.h) continue;
    for (std::int64_t kx = 0; kx < g.kw; ++kx) {
      const std::int64_t ix = ox * g.sw - g.left + kx * g.dw;
      if (ix < 0 || ix >= g.w) continue;
      const float* pixel = image + (iy * g.w + ix) * g.c + first_channel;
      for (std::int64_t c = 0; c < g.group_c(); ++c)
        sum += static_cast<double>(pixel[c]) * static_cast<double>(weight[(c * g.kh + ky) * g.kw + kx]);
    }
  }
  return sum;
}

void run(const OpCall& call) {
  ConvGeometry g;
  Activation activation;
  resolve_conv(call, g, activation);
  const TensorView &bias = call.input(2), &residual = call.input(3);
  float* y = call.out[0].mut<float>();
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < g.n; ++n) {
    const float* image = call.in[0].as<float>() + n * g.h * g.w * g.c;
    for (std::int64_t oy = 0; oy < g.oh; ++oy) {
      for (std::int64_t ox = 0; ox < g.ow; ++ox) {
        for (std::int64_t m = 0; m < g.m; ++m, ++at) {
          const float* weight = call.in[1].as<float>() + m * g.window();
          double sum = window_sum(g, image, weight, m / g.group_m() * g.group_c(), oy, ox);
          if (bias.present()) sum += static_cast<double>(bias.as<float>()[m]);
          if (residual.present()) sum += static_cast<double>(residual.as<float>()[at]);
          y[at] = static_cast<float>(activation(sum));
        }
      }
    }
  }
}

}  // namespace

Kernel conv_reference_kernel() {
  Kernel kernel;
  kernel.domain = "pare";
  kernel.op = "Conv";
  kernel.name = "pare.Conv/cpu:reference";
  kernel.why_not = why_not;
  kernel.run = run;
  kernel.in_place = 1u << 3;  // the residual
  return kernel;
}

}  // namespace pare
