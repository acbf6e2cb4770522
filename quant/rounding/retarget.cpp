#include "quant/rounding/retarget.h"

#include <cmath>

#include "engine/base/error.h"
#include "quant/rounding/linalg.h"

namespace pare::quant {

bool retarget(WeightRows& weight, const std::vector<float>& gram, const std::vector<double>& cross,
              double ridge) {
  const auto n = static_cast<std::size_t>(weight.shape.cols), m = static_cast<std::size_t>(weight.shape.rows);
  PARE_ASSERT(gram.size() == n * n && cross.size() == m * n);
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += static_cast<double>(gram[i * n + i]) / static_cast<double>(n);
  if (!(mean > 0) || !std::isfinite(mean)) return false;
  std::vector<double> matrix(gram.begin(), gram.end());
  for (std::size_t i = 0; i < n; ++i) matrix[i * n + i] += ridge * mean;
  std::vector<double> shift = cross;
  if (!solve_spd(matrix.data(), static_cast<std::int64_t>(n), shift.data(), static_cast<std::int64_t>(m)))
    return false;
  for (std::size_t i = 0; i < m * n; ++i)
    weight.values[i] = static_cast<float>(static_cast<double>(weight.values[i]) + shift[i]);
  return true;
}

}  // namespace pare::quant
