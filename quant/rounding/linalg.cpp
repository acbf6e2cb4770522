#include "quant/rounding/linalg.h"

#include <Eigen/Dense>

namespace pare::quant {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

bool factor_upper(double* h, std::int64_t n) {
  Eigen::Map<Matrix> matrix(h, n, n);
  if (!matrix.allFinite()) return false;
  // With rows and columns reversed, the lower factor becomes the upper one.
  const Matrix reversed = matrix.reverse();
  const Eigen::LLT<Matrix> llt(reversed);
  if (llt.info() != Eigen::Success) return false;
  const Matrix lower = llt.matrixL();
  matrix = lower.reverse();
  return matrix.allFinite();
}

bool invert_spd(double* h, std::int64_t n) {
  Eigen::Map<Matrix> matrix(h, n, n);
  if (!matrix.allFinite()) return false;
  const Eigen::LLT<Matrix> llt(matrix);
  if (llt.info() != Eigen::Success) return false;
  const Matrix inverse = llt.solve(Matrix::Identity(n, n));
  matrix = (inverse + inverse.transpose()) / 2;
  return matrix.allFinite();
}

bool solve_spd(const double* h, std::int64_t n, double* b, std::int64_t rows) {
  const Eigen::Map<const Matrix> matrix(h, n, n);
  Eigen::Map<Matrix> sides(b, rows, n);
  if (!matrix.allFinite() || !sides.allFinite()) return false;
  const Eigen::LLT<Matrix> llt(matrix);
  if (llt.info() != Eigen::Success) return false;
  const Matrix solved = llt.solve(sides.transpose());  // H is symmetric
  sides = solved.transpose();
  return sides.allFinite();
}

}  // namespace pare::quant
