#include "quant/transform/activation_rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/numeric/quantize.h"
#include "quant/grid/grid.h"
#include "quant/plan.h"

namespace pare::quant {
namespace {

void round_static(const Format& format, float* x, std::int64_t count, double largest) {
  if (!(largest > 0)) return;
  double low = 0, high = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, static_cast<double>(x[i]));
    high = std::max(high, static_cast<double>(x[i]));
  }
  (-low > high ? low : high) = -low > high ? -largest : largest;
  QuantTarget target;
  target.type = format.dtype;
  std::vector<float> image(static_cast<std::size_t>(count)), best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 10; i >= 4; --i) {
    const ActivationPlan plan = activation_from_range(format, {low * i / 10, high * i / 10, ""});
    fake_quantize(x, ScaleLayout::per_tensor(count), &plan.scale,
                  plan.zero_point != 0 ? &plan.zero_point : nullptr, target, image.data());
    double error = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const double e = static_cast<double>(image[static_cast<std::size_t>(k)]) - static_cast<double>(x[k]);
      error += e * e;
    }
    if (error >= least) continue;
    least = error;
    best = image;
  }
  if (!best.empty()) std::copy(best.begin(), best.end(), x);
}

}  // namespace

ActivationRounding activation_rounding(const Format& format, ThreadPool& pool) {
  if (!format.active()) return nullptr;
  if (!format.dynamic)
    return [format](float* x, std::int64_t rows, std::int64_t channels, double largest) {
      round_static(format, x, rows * channels, largest);
    };
  const GridFormat grid = grid_format(format);
  return [grid, &pool](float* x, std::int64_t rows, std::int64_t channels, double) {
    const RowShape shape = RowShape::whole(rows, channels);
    const Grid scales = amax_grid(grid, shape, x, pool);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape.count()));
    encode(grid, shape, scales, x, codes.data(), pool);
    decode(grid, shape, scales, codes.data(), x, pool);
  };
}

}  // namespace pare::quant
