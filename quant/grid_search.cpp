#include "quant/grid_search.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/base/error.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

// A group's weights, and what may become of them.
struct Group {
  const float* w;
  const float* importance;  // or nullptr
  std::int64_t n;
};

struct Choice {
  float scale = 1;
  int zero = 0;
  double error = 0;
};

class Searcher {
 public:
  Searcher(const GridFormat& format, float global)
      : format_(format), info_(format_info(format.codes)), global_(global) {}

  Choice run(const Group& group, const Choice& start) const {
    Choice best = start;
    best.error = error(group, best.scale, best.zero);
    if (format_.scales == DType::kE4M3FN) {
      for (int code = 1; code < 127; ++code)
        offer(group, decode_e4m3(static_cast<std::uint8_t>(code)) * global_, 0, best);
    } else if (format_.scales == DType::kE8M0) {
      for (int e = -3; e <= 2; ++e) offer(group, std::ldexp(start.scale, e), 0, best);
    } else if (info_.is_integer()) {
      integers(group, best);
    } else {
      for (int i = -8; i < 32; ++i)
        offer(group, start.scale * std::exp2(static_cast<float>(i) / 32), 0, best);
      refine(group, best);
    }
    return best;
  }

  double error(const Group& group, double scale, int zero) const {
    double sum = 0;
    for (std::int64_t i = 0; i < group.n; ++i) {
      const double d = static_cast<double>(group.w[i]) - steps(group.w[i], scale, zero) * scale;
      sum += (group.importance ? static_cast<double>(group.importance[i]) : 1.0) * d * d;
    }
    return sum;
  }

 private:
  double steps(float w, double scale, int zero) const {
    const float quotient = w / static_cast<float>(scale);
    if (info_.is_integer())
      return std::clamp(std::nearbyint(static_cast<double>(quotient)), format_.lowest_code() - zero,
                        format_.largest_code() - zero);
    std::uint8_t code = 0;
    float value = 0;
    info_.encode(&quotient, &code, 1);
    info_.decode(&code, &value, 1);
    return static_cast<double>(value);
  }

  void offer(const Group& group, double scale, int zero, Choice& best) const {
    const float rounded = round_scale(format_, scale, global_);
    if (!std::isnormal(rounded)) return;
    const double e = error(group, static_cast<double>(rounded), zero);
    if (e < best.error) best = {rounded, zero, e};
  }

  void integers(const Group& group, Choice& best) const {
    double low = 0, high = 0;
    for (std::int64_t i = 0; i < group.n; ++i) {
      low = std::min(low, static_cast<double>(group.w[i]));
      high = std::max(high, static_cast<double>(group.w[i]));
    }
    const int first = format_.symmetric ? 0 : best.zero - 2, last = format_.symmetric ? 0 : best.zero + 2;
    for (int zero = first; zero <= last; ++zero) {
      const double below = zero - format_.lowest_code(), above = format_.largest_code() - zero;
      if (below < 0 || above < 0) continue;
      for (const int sign : {1, -1}) {
        if (sign < 0 && (format_.positive || !format_.symmetric)) continue;
        const double l = sign > 0 ? -low : high, h = sign > 0 ? high : -low;
        const double full = std::max(below > 0 ? l / below : 0.0, above > 0 ? h / above : 0.0);
        for (int i = -8; i <= 40; ++i) offer(group, sign * full * (1 - 0.0125 * i), zero, best);
      }
    }
    refine(group, best);
  }

  // s = sum(w q) / sum(q q) is the best scale for given codes.
  void refine(const Group& group, Choice& best) const {
    for (int round = 0; round < 2; ++round) {
      double wq = 0, qq = 0;
      for (std::int64_t i = 0; i < group.n; ++i) {
        const double h = group.importance ? static_cast<double>(group.importance[i]) : 1.0;
        const double q = steps(group.w[i], static_cast<double>(best.scale), best.zero);
        wq += h * q * static_cast<double>(group.w[i]);
        qq += h * q * q;
      }
      if (qq == 0) return;
      const Choice before = best;
      if (format_.positive && wq / qq <= 0) return;
      offer(group, wq / qq, best.zero, best);
      if (best.scale == before.scale) return;
    }
  }

  const GridFormat& format_;
  const FormatInfo& info_;
  float global_;
};

const float* importance_of(const RowShape& shape, const GridSearch& options, std::int64_t row) {
  if (options.importance == nullptr) return nullptr;
  return options.importance + (options.importance_rows == 0 ? 0 : row / options.importance_rows) * shape.cols;
}

void check_importance(const RowShape& shape, const GridSearch& options) {
  if (options.importance == nullptr || shape.rows == 0) return;
  const std::int64_t lines =
      options.importance_rows == 0 ? 1 : (shape.rows - 1) / options.importance_rows + 1;
  for (std::int64_t i = 0; i < lines * shape.cols; ++i)
    if (!(options.importance[i] >= 0) || !std::isfinite(options.importance[i]))
      fail(ErrorCode::kBadFile, "the importance of column {} is NaN, infinite or negative", i % shape.cols);
}

// Calls visit(group index in the tensor, row, first column, length).
void for_groups(const GridFormat& format, const RowShape& shape, std::int64_t begin, std::int64_t end,
                const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const std::int64_t groups = groups_of(format, shape);
  const std::int64_t segment = format.group == 0 ? shape.cols : shape.segment;
  const std::int64_t width = format.group == 0 ? shape.cols : format.group;
  for (std::int64_t row = begin; row < end; ++row) {
    std::int64_t g = row * groups;
    for (std::int64_t s = 0; s < shape.cols; s += segment)
      for (std::int64_t c = s; c < s + segment; c += width)
        visit(g++, row, c, std::min(width, s + segment - c));
  }
}

float amax_global(const GridFormat& format, const std::vector<GridSource>& sources) {
  float amax = 0;
  for (const GridSource& s : sources)
    for (std::int64_t i = 0; i < s.shape.count(); ++i) {
      if (!std::isfinite(s.weight[i])) fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
      amax = std::max(amax, std::fabs(s.weight[i]));
    }
  const auto global =
      static_cast<float>(static_cast<double>(amax) / (format_info(format.codes).largest * 448));
  return std::isnormal(global) ? global : 1;
}

// amax_grid for a given global scale.
Grid start_grid(const GridFormat& format, const RowShape& shape, const float* weight, float global,
                ThreadPool& pool) {
  Grid grid = amax_grid(format, shape, weight, pool);
  if (format.scales != DType::kE4M3FN || global == grid.global) return grid;
  grid.global = global;
  for_groups(format, shape, 0, shape.rows,
             [&](std::int64_t g, std::int64_t row, std::int64_t c, std::int64_t n) {
               float amax = 0;
               for (std::int64_t i = 0; i < n; ++i)
                 amax = std::max(amax, std::fabs(weight[row * shape.cols + c + i]));
               const double scale = amax > 0 ? static_cast<double>(amax) / format.largest_code() : 1.0;
               grid.scales[static_cast<std::size_t>(g)] =
                   round_scale(format, amax > 0 ? scale : static_cast<double>(global), global);
             });
  return grid;
}

}  // namespace

Grid choose_grid(const GridFormat& format, const RowShape& shape, const float* weight,
                 const GridSearch& options, ThreadPool& pool) {
  check_importance(shape, options);
  float global = options.global;
  if (format.scales == DType::kE4M3FN && global == 0)
    global = choose_global(format, {{shape, weight, options}}, pool);
  Grid grid = start_grid(format, shape, weight, global, pool);
  if (!options.search) return grid;
  const Searcher searcher(format, grid.global);
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for_groups(format, shape, begin, end,
               [&](std::int64_t g, std::int64_t row, std::int64_t c, std::int64_t n) {
                 const auto i = static_cast<std::size_t>(g);
                 const float* h = importance_of(shape, options, row);
                 const Group group{weight + row * shape.cols + c, h == nullptr ? nullptr : h + c, n};
                 Choice start;
                 start.scale = grid.scales[i];
                 if (!format.symmetric) start.zero = grid.zero_points[i];
                 if (std::all_of(group.w, group.w + n, [](float v) { return v == 0; })) return;
                 const Choice best = searcher.run(group, start);
                 grid.scales[i] = best.scale;
                 if (!format.symmetric) grid.zero_points[i] = best.zero;
               });
  });
  return grid;
}

float choose_global(const GridFormat& format, const std::vector<GridSource>& sources, ThreadPool&) {
  return amax_global(format, sources);
}

double grid_error(const GridFormat& format, const RowShape& shape, const Grid& grid, const float* weight,
                  const GridSearch& options, ThreadPool& pool) {
  std::vector<double> rows(static_cast<std::size_t>(shape.rows));
  const Searcher searcher(format, grid.global);
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for_groups(format, shape, begin, end,
               [&](std::int64_t g, std::int64_t row, std::int64_t c, std::int64_t n) {
                 const auto i = static_cast<std::size_t>(g);
                 const float* h = importance_of(shape, options, row);
                 rows[static_cast<std::size_t>(row)] += searcher.error(
                     {weight + row * shape.cols + c, h == nullptr ? nullptr : h + c, n},
                     static_cast<double>(grid.scales[i]), grid.zero_points.empty() ? 0 : grid.zero_points[i]);
               });
  });
  double sum = 0;
  for (const double row : rows) sum += row;
  return sum;
}

}  // namespace pare::quant
