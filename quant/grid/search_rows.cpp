#include "quant/grid/search_rows.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/quantize.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

constexpr int kLanes = 8;

double squared_error(const float* a, const float* b, std::int64_t n) {
  double lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const double d = static_cast<double>(a[i + k]) - static_cast<double>(b[i + k]);
      lane[k] += d * d;
    }
  for (; i < n; ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    lane[i % kLanes] += d * d;
  }
  double sum = 0;
  for (const double v : lane) sum += v;
  return sum;
}

// One row's weights, and room for their images.
struct Row {
  const float* values;
  std::vector<float> image;
};

class Searcher {
 public:
  explicit Searcher(DType dtype) : info_(format_info(dtype)) { target_.type = dtype; }

  // From the scale of the largest magnitude, which is above 0.
  float choose(Row& row, float start) const {
    float best = start;
    double least = error(row, start);
    for (const double factor : factors()) {
      const float scale = static_cast<float>(static_cast<double>(start) * factor);
      const double e = error(row, scale);
      if (e < least) {
        least = e;
        best = scale;
      }
    }
    if (info_.is_integer()) refine(row, best, least);
    return best;
  }

  double error(Row& row, float scale) const {
    const auto n = static_cast<std::int64_t>(row.image.size());
    fake_quantize(row.values, ScaleLayout::per_tensor(n), &scale, nullptr, target_, row.image.data());
    return squared_error(row.values, row.image.data(), n);
  }

 private:
  // Integers: clipping the tail buys a finer step. FP8: the step grows with the value, so what matters is
  // where in a binade the values fall; one octave covers every position.
  const std::vector<double>& factors() const {
    static const std::vector<double> integer = [] {
      std::vector<double> list;
      for (int i = 1; i <= 40; ++i) list.push_back(1.0 - 0.0125 * i);
      return list;
    }();
    static const std::vector<double> floating = [] {
      std::vector<double> list;
      for (int i = 1; i < 32; ++i) list.push_back(std::exp2(i / 32.0));
      for (int i = 1; i <= 8; ++i) list.push_back(std::exp2(-i / 32.0));
      return list;
    }();
    return info_.is_integer() ? integer : floating;
  }

  // s = sum(w q) / sum(q q) is the best scale for given codes.
  void refine(Row& row, float& best, double& least) const {
    for (int round = 0; round < 2; ++round) {
      error(row, best);
      double wq = 0, qq = 0;
      for (std::size_t i = 0; i < row.image.size(); ++i) {
        const double q = static_cast<double>(row.image[i]) / static_cast<double>(best);
        wq += static_cast<double>(row.values[i]) * q;
        qq += q * q;
      }
      if (qq == 0) return;
      const float scale = static_cast<float>(wq / qq);
      if (!(scale > 0) || !std::isnormal(scale)) return;
      const double e = error(row, scale);
      if (e >= least) return;
      least = e;
      best = scale;
    }
  }

  const FormatInfo& info_;
  QuantTarget target_;
};

}  // namespace

void search_rows(const GridFormat& format, const RowShape& shape, const float* weight, Grid& grid,
                 ThreadPool& pool) {
  PARE_ASSERT(format.group == 0 && format.symmetric && format.scales == DType::kF32);
  const Searcher searcher(format.codes);
  pool.parallel_for(shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    Row row;
    row.image.resize(static_cast<std::size_t>(shape.cols));
    for (std::int64_t r = begin; r < end; ++r) {
      row.values = weight + r * shape.cols;
      const bool zeros = std::all_of(row.values, row.values + shape.cols, [](float v) { return v == 0; });
      float& scale = grid.scales[static_cast<std::size_t>(r)];
      if (!zeros) scale = searcher.choose(row, scale);
    }
  });
}

}  // namespace pare::quant
