// Gram matrices: G = sum over positions of x x^T, where x is what a linear layer's weight row is multiplied
// with at one position (a token, a pixel). A layer's squared output error is then tr(dW G dW^T), so GPTQ,
// learned rounding, AWQ and low-rank corrections need G and never the activations again.
//
// Columns are those of quant's WeightRows: (tap, input channel) of one convolution group; a grouped
// convolution has a matrix a group.
//
// Positions come as one stream, in order of samples. The stream is cut into blocks of kGramBlock positions;
// a block's products are summed in float32 (a chain of fused multiply-adds in order), blocks in float64. So
// the bits depend on the samples and their order, and on nothing else: neither batches nor threads nor
// instruction class. Relative error of a sum of K positive terms: at most (kGramBlock + 1) 2^-24 in the
// worst case, about sqrt(kGramBlock) 2^-24 for data that knows nothing of rounding.
//
// A position that holds a NaN or an infinity is left out, and counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"

namespace pare {

constexpr std::int64_t kGramBlock = 512;  // positions

struct Gram {
  std::string name;                // of the layer
  std::int64_t n = 0, groups = 1;  // columns; matrices
  std::uint64_t count = 0;         // positions that were summed
  std::uint64_t nonfinite = 0;     // positions left out
  std::vector<double> sums;        // [groups][n (n + 1) / 2]: row i holds j = i .. n-1
  std::vector<double> totals;      // [groups][n]: sum of x

  static std::int64_t triangle(std::int64_t n) { return n * (n + 1) / 2; }
  // Where element (i, j), i <= j, of a matrix lies.
  std::int64_t index(std::int64_t i, std::int64_t j) const { return i * n - i * (i - 1) / 2 + j - i; }
  double at(std::int64_t group, std::int64_t i, std::int64_t j) const {
    return sums[static_cast<std::size_t>(group * triangle(n) + (i <= j ? index(i, j) : index(j, i)))];
  }
  bool empty() const { return count == 0; }

  // E[x^2] and E[x] of one group, [n]; zeros when no position was seen.
  std::vector<double> mean_square(std::int64_t group) const;
  std::vector<double> mean(std::int64_t group) const;
  // E[x x^T] of one group, both triangles, row-major [n][n], rounded to float32 once.
  std::vector<float> dense(std::int64_t group) const;
};

// Adds positions: x [positions][groups * n], group by group. Plain double sums, in order: the reference.
void add_plain(Gram& gram, const float* x, std::int64_t positions);

// The same at the speed of a matrix product. rows(k) lends room for the next positions of the stream, at
// most as many as come back in `k`; who has filled them calls commit(k).
class GramAccumulator {
 public:
  GramAccumulator(std::string name, std::int64_t n, std::int64_t groups, ThreadPool& pool);

  // How room for a position is laid out: column k of group g at g * group_stride + k * column_stride. Many
  // small groups (depthwise convolutions) lie interleaved, so that vectors run across groups.
  std::int64_t group_stride() const { return group_stride_; }
  std::int64_t column_stride() const { return column_stride_; }
  std::int64_t width() const { return gram_.n * gram_.groups; }  // floats a position

  float* rows(std::int64_t& k);
  void commit(std::int64_t k);
  // What was summed so far, and a fresh start.
  Gram take();
  // The same without a copy, at the end: nothing can be added any more.
  Gram finish();

  // What is held of one part of the samples; positions that wait for a whole block; packed copies of a block
  // while it is summed (one accumulator at a time).
  static std::int64_t held_bytes(std::int64_t n, std::int64_t groups);
  static std::int64_t waiting_bytes(std::int64_t n, std::int64_t groups);
  static std::int64_t work_bytes(std::int64_t n);

 private:
  void flush();
  void add_dense(std::int64_t group);
  void add_interleaved();

  ThreadPool& pool_;
  Gram gram_;
  std::int64_t group_stride_, column_stride_;
  Tensor pending_;  // [kGramBlock][width]
  std::int64_t filled_ = 0;
};

}  // namespace pare
