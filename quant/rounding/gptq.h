// GPTQ: codes on a given grid, column by column, each column rounded against the error that the columns
// before it left in the layer's output (Frantar et al. 2022, arXiv:2210.17323).
//
// With H = G / count + damp * mean(diag) I = R R^T (R upper triangular, in the chosen order of columns) and
// d = w - q, the loss of a row is d H d^T = sum_j (sum_{i<=j} d_i R_ij)^2. Column j is therefore rounded at
// w_j + sum_{i<j} d_i R_ij / R_jj: the published update, whose U is R^-1, without an inverse and in one
// product a block of columns. R is float32 (linalg.h), the feedback a float32 chain a weight in order of
// columns: the same bits for any threads and instruction class.
//
// Groups are static: the grid is chosen before, so any order of columns is one for the file as well.
// Dead columns (zero diagonal) get the nearest code and spread no error. When H cannot be factored, damping
// grows by 0.01 of the mean up to kGptqTries times; then diagonal entries below the mean are raised to it;
// then the caller falls back, with the reason.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quant/grid/grid.h"

namespace pare::quant {

enum class ColumnOrder {
  kNatural,
  kDiagonal,   // by descending diagonal of H ("act order")
  kGroupAware  // by descending diagonal inside each group, groups by their largest
};

constexpr int kGptqTries = 10;

struct GptqFactor {
  std::vector<std::int64_t> order;  // order[i]: the column that is rounded i-th
  std::vector<float> upper;         // [n][n]: R_ij / R_jj
  std::vector<float> pivots;        // [n]: R_jj
  double damp = 0;                  // that was needed, as a share of the mean
  int dead = 0;                     // columns that no data reaches
  std::string failure;              // not empty: no factor, and why
};

// `gram` [n][n]: E[x x^T]; n = shape.cols.
GptqFactor gptq_factor(const float* gram, const GridFormat& format, const RowShape& shape, double damp,
                       ColumnOrder order, ThreadPool& pool);

// Called with numbers of rows that are finished, from any thread; may be empty.
using RowsDone = std::function<void(std::int64_t rows)>;

// Levels (ladder.h) of rows [begin, end) of the weight, at levels[row * cols + column].
void gptq_rows(const GptqFactor& factor, const GridFormat& format, const RowShape& shape, const Grid& grid,
               const float* weight, std::int64_t begin, std::int64_t end, float* levels, ThreadPool& pool,
               const RowsDone& done = {});

// The group that each column of a row is in, [cols].
std::vector<std::int32_t> groups_of_columns(const GridFormat& format, const RowShape& shape);

}  // namespace pare::quant
