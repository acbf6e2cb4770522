// Formats and weights for the tests of grids.
#pragma once

#include <random>
#include <vector>

#include "quant/grid/grid.h"

namespace pare::quant {

inline GridFormat format_of(DType codes, std::int64_t group, DType scales = DType::kF32,
                            bool symmetric = true, int bits = 0) {
  GridFormat format;
  format.codes = codes;
  format.group = group;
  format.symmetric = symmetric;
  format.scales = scales;
  format.bits = bits;
  return format;
}

// Normal weights, with a group of zeros in every format and one that is far larger than the others; n > 40.
inline std::vector<float> grid_weights(std::int64_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.03f);
  std::vector<float> w(static_cast<std::size_t>(n));
  for (float& v : w) v = normal(random);
  for (int i = 0; i < 33; ++i) w[static_cast<std::size_t>(i)] = 0;
  w[40] = 0.5f;
  return w;
}

}  // namespace pare::quant
