#include "quant/grid/clip_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/grid/clip_simd.h"

namespace pare::quant {
namespace {

constexpr int kSteps = 10;

// One group on one scale.
struct Trial {
  float scale = 1;
  std::int32_t zero = 0;
};

class GroupClip {
 public:
  explicit GroupClip(const GridFormat& format)
      : format_(format),
        info_(format_info(format.codes)),
        low_(format.lowest_code()),
        high_(format.largest_code()) {}

  // The best of the group's trials; `g` is the group's first row in the block of the matrix.
  Trial choose(const float* w, std::int64_t n, const float* g, std::int64_t stride, const Trial& full,
               float global) {
    Trial trials[kSteps + 1];
    int count = 0;
    for (int i = 0; i <= kSteps; ++i) {
      const Trial one = trial(w, n, full, global, 1 - i / 20.0);
      if (count > 0 && one.scale == trials[count - 1].scale && one.zero == trials[count - 1].zero) continue;
      trials[count++] = one;
    }
    errors_.resize(static_cast<std::size_t>(count * n));
    for (int i = 0; i < count; ++i) errors(w, n, trials[i], errors_.data() + i * n);
    double losses[kSteps + 1];
    PARE_SIMD_PICK(clip_losses)(errors_.data(), count, n, g, stride, losses);
    Trial best = full;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < count; ++i) {
      if (!(losses[i] < least)) continue;
      least = losses[i];
      best = trials[i];
    }
    return best;
  }

 private:
  // What each weight is off on the trial's grid.
  void errors(const float* w, std::int64_t n, const Trial& trial, float* error) {
    if (info_.is_integer()) {
      PARE_SIMD_PICK(clip_errors)
      (w, n, trial.scale, static_cast<float>(low_ - trial.zero), static_cast<float>(high_ - trial.zero),
       error);
      return;
    }
    codes_.resize(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) error[i] = w[i] / trial.scale;
    info_.encode(error, codes_.data(), n);
    info_.decode(codes_.data(), error, n);
    for (std::int64_t i = 0; i < n; ++i) error[i] = error[i] * trial.scale - w[i];
  }

  // The range of the largest magnitude times `share`.
  Trial trial(const float* w, std::int64_t n, const Trial& full, float global, double share) const {
    if (share == 1) return full;
    Trial t = full;
    t.scale = round_scale(format_, static_cast<double>(full.scale) * share, global);
    if (!std::isnormal(t.scale)) return full;
    if (format_.symmetric) return t;
    const double low = std::min(0.0, static_cast<double>(*std::min_element(w, w + n))) * share;
    t.zero = static_cast<std::int32_t>(
        std::clamp(std::nearbyint(low_ - low / static_cast<double>(t.scale)), low_, high_));
    return t;
  }

  const GridFormat& format_;
  const FormatInfo& info_;
  const double low_, high_;  // codes
  std::vector<float> errors_;
  std::vector<std::uint8_t> codes_;
};

}  // namespace

Grid clip_grid(const GridFormat& format, const RowShape& shape, const float* weight,
               const std::vector<std::vector<float>>& grams, ThreadPool& pool) {
  PARE_ASSERT(!grams.empty());
  Grid grid = amax_grid(format, shape, weight, pool);
  const std::int64_t groups = groups_of(format, shape), cols = shape.cols;
  const std::int64_t segment = format.group == 0 ? cols : shape.segment;
  const std::int64_t width = format.group == 0 ? cols : format.group;
  const std::int64_t rows_a_gram = shape.rows / static_cast<std::int64_t>(grams.size());
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    GroupClip clip(format);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* gram = grams[static_cast<std::size_t>(row / rows_a_gram)].data();
      auto g = static_cast<std::size_t>(row * groups);
      for (std::int64_t s = 0; s < cols; s += segment)
        for (std::int64_t c = s; c < s + segment; c += width, ++g) {
          const std::int64_t n = std::min(width, s + segment - c);
          const float* w = weight + row * cols + c;
          const Trial full{grid.scales[g], grid.zero_points.empty() ? 0 : grid.zero_points[g]};
          const Trial best = clip.choose(w, n, gram + c * cols + c, cols, full, grid.global);
          grid.scales[g] = best.scale;
          if (!grid.zero_points.empty()) grid.zero_points[g] = best.zero;
        }
    }
  });
  return grid;
}

}  // namespace pare::quant
