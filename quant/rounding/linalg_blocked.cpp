// The parts of linalg.h that run on the engine's matrix product.
#include <algorithm>
#include <cmath>

#include "engine/base/tensor.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "quant/rounding/linalg.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kBlock = 64;
constexpr int kLanes = 8;

// L of one diagonal block (lower triangle of a, rows n apart), and L^-1 [size][size].
bool factor_block(float* a, std::int64_t n, std::int64_t size, double* inverse) {
  double l[kBlock][kBlock] = {};
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      double sum = static_cast<double>(a[i * n + j]);
      for (std::int64_t k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
      if (i == j) {
        // What is left of a pivot must stand out of the rounding of what was taken away.
        const double least = static_cast<double>(a[i * n + i]) * 0x1p-18;
        if (!(sum > 0) || !(sum >= least) || !std::isfinite(sum)) return false;
        l[i][i] = std::sqrt(sum);
      } else {
        l[i][j] = sum / l[j][j];
      }
    }
  for (std::int64_t j = 0; j < size; ++j)
    for (std::int64_t i = 0; i < size; ++i) {
      double sum = i == j ? 1.0 : 0.0;
      for (std::int64_t k = j; k < i; ++k) sum -= l[i][k] * inverse[k * size + j];
      inverse[i * size + j] = i < j ? 0.0 : sum / l[i][i];
    }
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) a[i * n + j] = static_cast<float>(l[i][j]);
  return true;
}

// Lower triangular L with A = L L^T in A's place, block column by block column.
bool factor_lower(float* a, std::int64_t n, ThreadPool& pool) {
  Tensor packed = Tensor::allocate(DType::kF32, {packed_b_floats(std::max(n, kBlock), kBlock)});
  std::vector<float> panel, inverse_t;
  std::vector<double> inverse(static_cast<std::size_t>(kBlock * kBlock));
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t size = std::min(kBlock, n - at), rows = n - at;
    if (at > 0) {  // what the columns before have of it
      pack_b(a + at * n, 1, n, at, size, packed.mut<float>());
      GemmTask task;
      task.a = a + at * n;
      task.lda = n;
      task.b = packed.as<float>();
      task.c = a + at * n + at;
      task.ldc = n;
      task.m = rows;
      task.k = at;
      task.n = size;
      task.alpha = -1;
      task.residual = task.c;
      task.ldr = n;
      gemm_f32(pool, task);
    }
    if (!factor_block(a + at * n + at, n, size, inverse.data())) return false;
    const std::int64_t below = rows - size;
    if (below == 0) continue;
    panel.resize(static_cast<std::size_t>(below * size));
    for (std::int64_t r = 0; r < below; ++r)
      std::copy_n(a + (at + size + r) * n + at, size, panel.data() + r * size);
    inverse_t.resize(static_cast<std::size_t>(size * size));
    for (std::int64_t i = 0; i < size * size; ++i)
      inverse_t[static_cast<std::size_t>(i)] = static_cast<float>(inverse[static_cast<std::size_t>(i)]);
    pack_b(inverse_t.data(), 1, size, size, size, packed.mut<float>());
    GemmTask task;
    task.a = panel.data();
    task.lda = size;
    task.b = packed.as<float>();
    task.c = a + (at + size) * n + at;
    task.ldc = n;
    task.m = below;
    task.k = size;
    task.n = size;
    gemm_f32(pool, task);
  }
  return true;
}

}  // namespace

bool factor_upper(float* h, std::int64_t n, ThreadPool& pool) {
  std::reverse(h, h + n * n);
  if (!factor_lower(h, n, pool)) return false;
  for (std::int64_t i = 0; i < n; ++i) std::fill(h + i * n + i + 1, h + (i + 1) * n, 0.0f);
  std::reverse(h, h + n * n);
  for (std::int64_t i = 0; i < n; ++i)
    if (!std::isfinite(h[i * n + i])) return false;
  return true;
}

std::vector<double> quadratic_loss(const float* d, std::int64_t rows, std::int64_t n, const float* h,
                                   ThreadPool& pool) {
  // H is symmetric, so of the columns of a block only the rows down to its end are multiplied: those above
  // the block count twice.
  constexpr std::int64_t kRows = 256, kColumns = 128;
  std::vector<double> loss(static_cast<std::size_t>(rows));
  std::vector<Tensor> above, inside;
  for (std::int64_t c = 0; c < n; c += kColumns) {
    const std::int64_t width = std::min(kColumns, n - c);
    above.push_back(Tensor::allocate(DType::kF32, {packed_b_floats(c, width)}));
    inside.push_back(Tensor::allocate(DType::kF32, {packed_b_floats(width, width)}));
    if (c > 0) pack_b(h + c, n, 1, c, width, above.back().mut<float>());
    pack_b(h + c * n + c, n, 1, width, width, inside.back().mut<float>());
  }
  Tensor product = Tensor::allocate(DType::kF32, {std::min(kRows, rows), n});
  for (std::int64_t row = 0; row < rows; row += kRows) {
    GemmTask task;
    task.a = d + row * n;
    task.lda = task.ldc = task.ldr = n;
    task.m = std::min(kRows, rows - row);
    for (std::int64_t c = 0, b = 0; c < n; c += kColumns, ++b) {
      GemmTask upper = task;
      upper.n = std::min(kColumns, n - c);
      upper.c = product.mut<float>() + c;
      GemmTask own = upper;
      own.a += c;
      own.k = upper.n;
      own.b = inside[static_cast<std::size_t>(b)].as<float>();
      if (c > 0) {
        upper.k = c;
        upper.b = above[static_cast<std::size_t>(b)].as<float>();
        upper.alpha = 2;
        gemm_f32(pool, upper);
        own.residual = upper.c;
      }
      gemm_f32(pool, own);
    }
    pool.parallel_for(task.m, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* left = d + (row + r) * n;
        const float* right = product.as<float>() + r * n;
        double lane[kLanes] = {};
        for (std::int64_t i = 0; i < n; ++i)
          lane[i % kLanes] += static_cast<double>(left[i]) * static_cast<double>(right[i]);
        double sum = 0;
        for (const double v : lane) sum += v;
        loss[static_cast<std::size_t>(row + r)] = sum;
      }
    });
  }
  return loss;
}

}  // namespace pare::quant
