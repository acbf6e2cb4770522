// What learned rounding needs of a layer's second moments (learned_rounding.h).
#include <algorithm>
#include <atomic>
#include <numeric>

#include "engine/ops/matmul/gemm_f32.h"
#include "quant/rounding/gptq.h"
#include "quant/rounding/gptq_simd.h"
#include "quant/rounding/learned_rounding.h"
#include "quant/rounding/linalg.h"

namespace pare::quant {

RoundingMatrix::RoundingMatrix(const float* gram, const GridFormat& format, const RowShape& shape,
                               double ridge, ThreadPool& pool)
    : gram_(gram, gram + shape.cols * shape.cols), group_of_(groups_of_columns(format, shape)) {
  const std::int64_t n = shape.cols;
  double mean = 0;
  for (std::int64_t j = 0; j < n; ++j) mean += static_cast<double>(gram[j * n + j]) / static_cast<double>(n);
  if (!(mean > 0)) mean = 1;
  for (std::int64_t j = 0; j < n; ++j)
    diagonal_.push_back(gram_[static_cast<std::size_t>(j * n + j)] += static_cast<float>(ridge * mean));

  for (std::int64_t j = 0; j < n; ++j) {
    const auto index = static_cast<std::size_t>(group_of_[static_cast<std::size_t>(j)]);
    if (groups_.size() <= index) {
      groups_.resize(index + 1);
      groups_[index].begin = j;
    }
    ++groups_[index].size;
  }
  std::atomic<bool> usable = true;
  pool.parallel_for(static_cast<std::int64_t>(groups_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Group& g = groups_[static_cast<std::size_t>(i)];
      const std::int64_t m = g.size;
      g.whole = m == n;
      g.order.resize(static_cast<std::size_t>(m));
      std::iota(g.order.begin(), g.order.end(), 0);
      const auto at = [&](std::int64_t a, std::int64_t b) {
        return gram_[static_cast<std::size_t>((g.begin + a) * n + g.begin + b)];
      };
      std::stable_sort(g.order.begin(), g.order.end(),
                       [&](std::int32_t a, std::int32_t b) { return at(a, a) > at(b, b); });
      g.upper.resize(static_cast<std::size_t>(m * m));
      const auto fill = [&](auto* to) {
        for (std::int64_t a = 0; a < m; ++a)
          for (std::int64_t b = 0; b < m; ++b)
            to[a * m + b] = at(g.order[static_cast<std::size_t>(a)], g.order[static_cast<std::size_t>(b)]);
      };
      if (m > 256) {
        fill(g.upper.data());
        if (!factor_upper(g.upper.data(), m, pool)) usable = false;
      } else {
        std::vector<double> block(static_cast<std::size_t>(m * m));
        fill(block.data());
        if (!factor_upper(block.data(), m)) usable = false;
        for (std::size_t k = 0; k < block.size(); ++k) g.upper[k] = static_cast<float>(block[k]);
      }
      for (std::int64_t j = 0; j < m; ++j) {
        const float pivot = g.upper[static_cast<std::size_t>(j * m + j)];
        g.pivot.push_back(pivot * pivot);
        for (std::int64_t k = 0; k <= j; ++k) g.upper[static_cast<std::size_t>(k * m + j)] /= pivot;
      }
      g.above.resize(static_cast<std::size_t>((m + kGptqColumns - 1) / kGptqColumns));
      for (std::int64_t k = kGptqColumns, block = 1; k < m; k += kGptqColumns, ++block) {
        Tensor& packed = g.above[static_cast<std::size_t>(block)];
        const std::int64_t columns = std::min(kGptqColumns, m - k);
        packed = Tensor::allocate(DType::kF32, {packed_b_floats(k, columns)});
        pack_b(g.upper.data() + k, m, 1, k, columns, packed.mut<float>());
      }
      if (g.whole) continue;
      std::vector<double> inverse(static_cast<std::size_t>(m * m));
      for (std::int64_t a = 0; a < m; ++a)
        for (std::int64_t b = 0; b < m; ++b)
          inverse[static_cast<std::size_t>(a * m + b)] = static_cast<double>(at(a, b));
      if (!invert_spd(inverse.data(), m)) usable = false;
      const std::vector<float> narrow(inverse.begin(), inverse.end());
      g.inverse = Tensor::allocate(DType::kF32, {packed_b_floats(m, m)});
      pack_b(narrow.data(), m, 1, m, m, g.inverse.mut<float>());
    }
  });
  usable_ = usable;
}

}  // namespace pare::quant
