// Linear algebra of weight methods. Matrices are row-major and square unless said.
//
// factor_upper and quadratic_loss run on the engine's matrix product: the same bits for any number of threads
// and every instruction class. Eigen works behind the others, single-threaded, and stays in linalg.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/thread_pool.h"

namespace pare::quant {

// H = R R^T with R upper triangular, for a symmetric H [n][n] (both triangles given); R takes H's place,
// zeros below the diagonal. float32, with diagonal blocks of 64 in float64. False where H is not positive
// definite (in this precision) or holds a NaN; H is then garbage.
//
// R is what GPTQ needs: with d = w - q, d H d^T = sum_j (sum_{i<=j} d_i R_ij)^2, so rounding the columns in
// order, each against the error that those before it left, is GPTQ (whose U, with H^-1 = U^T U, is R^-1).
bool factor_upper(float* h, std::int64_t n, ThreadPool& pool);

// The same in float64 by Eigen's LLT.
bool factor_upper(double* h, std::int64_t n);

// H^-1 in H's place, by LLT in float64. False where H is not positive definite.
bool invert_spd(double* h, std::int64_t n);

// x H = b for each of the `rows` rows of b [rows][n], in b's place, by LLT in float64. False, with b garbage,
// where H is not positive definite or something is not finite.
bool solve_spd(const double* h, std::int64_t n, double* b, std::int64_t rows);

// d_r H d_r^T for each row r of d [rows][n]; H [n][n] symmetric. Sums in float64 over fixed lanes behind a
// float32 product.
std::vector<double> quadratic_loss(const float* d, std::int64_t rows, std::int64_t n, const float* h,
                                   ThreadPool& pool);

}  // namespace pare::quant
