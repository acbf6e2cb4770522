#include "quant/rounding/coupled_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "quant/grid/grid_search.h"
#include "quant/rounding/linalg.h"

namespace pare::quant {
namespace {

// HO in `order`, damped by a part of its mean diagonal: R of R R^T, [m][m]. Empty: it cannot be factored.
std::vector<double> factor_of(const Gram& outputs, const std::vector<std::int64_t>& order, double damp) {
  const std::int64_t m = outputs.n;
  double mean = 0;
  for (std::int64_t i = 0; i < m; ++i) mean += outputs.at(0, i, i) / static_cast<double>(m);
  if (!(mean > 0) || !std::isfinite(mean)) return {};
  std::vector<double> h(static_cast<std::size_t>(m * m));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < m; ++j)
      h[static_cast<std::size_t>(i * m + j)] =
          outputs.at(0, order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]) / mean +
          (i == j ? damp : 0.0);
  if (!factor_upper(h.data(), m)) return {};
  return h;
}

class Coupled {
 public:
  Coupled(const LayerProblem& problem, const LayerOptions& options, ThreadPool& pool)
      : in_(problem), options_(options), pool_(pool), shape_(problem.weight->shape) {
    order_.resize(static_cast<std::size_t>(shape_.rows));
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
      return in_.outputs->at(0, a, a) > in_.outputs->at(0, b, b);
    });
    factor_ = factor_of(*in_.outputs, order_, options.output_damp);
  }

  bool usable() const { return !factor_.empty(); }

  LayerSolution run() {
    const std::int64_t m = shape_.rows, n = shape_.cols, groups = groups_of(in_.format, shape_);
    const bool two_levels = in_.format.scales == DType::kE4M3FN;
    float global = in_.global;
    if (two_levels && global == 0 && in_.grid == nullptr) {
      GridSource source;
      source.shape = shape_;
      source.weight = in_.weight->values.data();
      global = choose_global(in_.format, {source}, pool_);
    }
    LayerSolution result;
    result.method = options_.method;
    result.grid.scales.resize(static_cast<std::size_t>(m * groups));
    if (!in_.format.symmetric) result.grid.zero_points.resize(static_cast<std::size_t>(m * groups));
    result.codes.resize(static_cast<std::size_t>(m * n));
    errors_.assign(static_cast<std::size_t>(m * n), 0.0);
    std::vector<float> image(static_cast<std::size_t>(m * n));
    for (std::int64_t begin = 0; begin < m; begin += kCoupledRows) {
      const std::int64_t end = std::min(m, begin + kCoupledRows), count = end - begin;
      WeightRows rows;
      rows.shape = shape_;
      rows.shape.rows = count;
      rows.values = target(begin, end);
      LayerProblem part = in_;
      part.weight = &rows;
      part.outputs = part.held_out = nullptr;
      part.power = nullptr;  // of other rows
      part.global = global;
      Grid given;
      if (in_.grid != nullptr) {
        given.global = in_.grid->global;
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t g = 0; g < groups; ++g) {
            const std::size_t from = cell(r, g, groups);
            given.scales.push_back(in_.grid->scales[from]);
            if (!in_.grid->zero_points.empty()) given.zero_points.push_back(in_.grid->zero_points[from]);
          }
        part.grid = &given;
      }
      const LayerSolution solved = solve_layer(part, options_, pool_);
      if (!solved.fallback.empty()) result.fallback = solved.fallback;
      result.grid.global = solved.grid.global;
      std::vector<float> values(rows.values.size());
      decode(in_.format, rows.shape, solved.grid, solved.codes.data(), values.data(), pool_);
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::int64_t g = 0; g < groups; ++g) {
          const auto from = static_cast<std::size_t>((r - begin) * groups + g);
          result.grid.scales[cell(r, g, groups)] = solved.grid.scales[from];
          if (!result.grid.zero_points.empty())
            result.grid.zero_points[cell(r, g, groups)] = solved.grid.zero_points[from];
        }
        for (std::int64_t c = 0; c < n; ++c) {
          const auto from = static_cast<std::size_t>((r - begin) * n + c);
          const std::size_t to = cell(r, c, n);
          result.codes[to] = solved.codes[from];
          image[to] = values[from];
          errors_[static_cast<std::size_t>(r * n + c)] =
              static_cast<double>(in_.weight->values[to]) - static_cast<double>(values[from]);
        }
      }
    }
    const LayerLoss fit = layer_loss(*in_.weight, image.data(), in_.gram, pool_);
    result.loss = fit.loss;
    result.relative_loss = fit.power > 0 ? fit.loss / fit.power : 0;
    result.sqnr_db = -10 * std::log10(result.relative_loss);
    result.held_out_loss = std::numeric_limits<double>::quiet_NaN();
    if (in_.held_out != nullptr)
      result.held_out_loss = held_out_loss(*in_.weight, image.data(), *in_.held_out, pool_);
    return result;
  }

 private:
  // Place of column c of row `r` in order.
  std::size_t cell(std::int64_t r, std::int64_t c, std::int64_t columns) const {
    return static_cast<std::size_t>(order_[static_cast<std::size_t>(r)] * columns + c);
  }
  double factor(std::int64_t i, std::int64_t j) const {
    return factor_[static_cast<std::size_t>(i * shape_.rows + j)];
  }

  // W_b + R_bb^-T R_ab^T D_a.
  std::vector<float> target(std::int64_t begin, std::int64_t end) {
    const std::int64_t n = shape_.cols;
    std::vector<double> shift(static_cast<std::size_t>((end - begin) * n), 0.0);
    pool_.parallel_for(n, 64, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t r = begin; r < end; ++r) {
        double* out = shift.data() + (r - begin) * n;
        const auto minus = [&](const double* row, double f) {
          for (std::int64_t c = from; c < to; ++c) out[c] += f * row[c];
        };
        for (std::int64_t a = 0; a < begin; ++a) minus(errors_.data() + a * n, factor(a, r));
        for (std::int64_t b = begin; b < r; ++b) minus(shift.data() + (b - begin) * n, -factor(b, r));
        for (std::int64_t c = from; c < to; ++c) out[c] /= factor(r, r);
      }
    });
    std::vector<float> rows(shift.size());
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        const auto i = static_cast<std::size_t>((r - begin) * n + c);
        rows[i] = static_cast<float>(static_cast<double>(in_.weight->values[cell(r, c, n)]) + shift[i]);
      }
    return rows;
  }

  const LayerProblem& in_;
  const LayerOptions& options_;
  ThreadPool& pool_;
  RowShape shape_;
  std::vector<std::int64_t> order_;
  std::vector<double> factor_, errors_;  // errors in order
};

}  // namespace

std::optional<LayerSolution> solve_coupled(const LayerProblem& problem, const LayerOptions& options,
                                           ThreadPool& pool) {
  const bool looks = options.method == "gptq" || options.method == "learned";
  if (!looks || problem.outputs == nullptr || problem.outputs->empty() || problem.gram == nullptr ||
      problem.gram->groups != 1 || problem.outputs->n != problem.weight->shape.rows ||
      problem.format.rows > 1)
    return std::nullopt;
  Coupled coupled(problem, options, pool);
  if (!coupled.usable()) return std::nullopt;
  return coupled.run();
}

}  // namespace pare::quant
