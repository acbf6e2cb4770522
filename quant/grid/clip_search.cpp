#include "quant/grid/clip_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/table.h"

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
  explicit GroupClip(const GridFormat& format) : format_(format), info_(format_info(format.codes)) {}

  // d G d^T for the group's weights w[n] on the trial's grid; g is the group's first row in the block.
  double loss(const float* w, std::int64_t n, const float* g, std::int64_t stride, const Trial& trial) {
    error_.resize(static_cast<std::size_t>(n));
    codes_.resize(error_.size());
    const double zero = trial.zero;
    for (std::int64_t i = 0; i < n; ++i) {
      const float quotient = w[i] / trial.scale;
      float value = 0;
      if (info_.is_integer()) {
        const double code = std::clamp(std::nearbyint(static_cast<double>(quotient)) + zero,
                                       format_.lowest_code(), format_.largest_code());
        value = static_cast<float>(code - zero) * trial.scale;
      } else {
        info_.encode(&quotient, codes_.data(), 1);
        info_.decode(codes_.data(), &value, 1);
        value *= trial.scale;
      }
      error_[static_cast<std::size_t>(i)] = value - w[i];
    }
    double sum = 0;
    const float* __restrict d = error_.data();
    for (std::int64_t i = 0; i < n; ++i) {
      const float* __restrict row = g + i * stride;
      float lane[8] = {};
      std::int64_t j = 0;
      for (; j + 8 <= n; j += 8)
        for (int k = 0; k < 8; ++k) lane[k] += row[j + k] * d[j + k];
      double dot = 0;
      for (; j < n; ++j) dot += static_cast<double>(row[j] * d[j]);
      for (const float v : lane) dot += static_cast<double>(v);
      sum += dot * static_cast<double>(d[i]);
    }
    return sum;
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
        std::clamp(std::nearbyint(format_.lowest_code() - low / static_cast<double>(t.scale)),
                   format_.lowest_code(), format_.largest_code()));
    return t;
  }

 private:
  const GridFormat& format_;
  const FormatInfo& info_;
  std::vector<float> error_;
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
          Trial best = full;
          double least = std::numeric_limits<double>::infinity();
          for (int i = 0; i <= kSteps; ++i) {
            const Trial trial = clip.trial(w, n, full, grid.global, 1 - i / 20.0);
            if (i > 0 && trial.scale == best.scale && trial.zero == best.zero) continue;
            const double loss = clip.loss(w, n, gram + c * cols + c, cols, trial);
            if (!(loss < least)) continue;
            least = loss;
            best = trial;
          }
          grid.scales[g] = best.scale;
          if (!grid.zero_points.empty()) grid.zero_points[g] = best.zero;
        }
    }
  });
  return grid;
}

}  // namespace pare::quant
