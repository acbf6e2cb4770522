#include "quant/rounding/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/tensor.h"
#include "engine/ops/matmul/gemm_f32.h"
#include "quant/grid/ladder_table.h"
#include "quant/rounding/gptq_simd.h"
#include "quant/rounding/linalg.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kChunk = 2 * kGptqRows;  // rows that a thread takes together

std::vector<std::int64_t> column_order(const float* gram, const std::vector<std::int32_t>& group,
                                       std::int64_t n, ColumnOrder order) {
  std::vector<std::int64_t> columns(static_cast<std::size_t>(n));
  std::iota(columns.begin(), columns.end(), 0);
  if (order == ColumnOrder::kNatural) return columns;
  const auto diagonal = [&](std::int64_t c) { return gram[c * n + c]; };
  std::vector<float> largest(static_cast<std::size_t>(n));  // of a group
  for (std::int64_t c = 0; c < n; ++c) {
    float& most = largest[static_cast<std::size_t>(group[static_cast<std::size_t>(c)])];
    most = std::max(most, diagonal(c));
  }
  std::stable_sort(columns.begin(), columns.end(), [&](std::int64_t a, std::int64_t b) {
    if (order == ColumnOrder::kGroupAware) {
      const auto ga = static_cast<std::size_t>(group[static_cast<std::size_t>(a)]),
                 gb = static_cast<std::size_t>(group[static_cast<std::size_t>(b)]);
      if (ga != gb) return largest[ga] != largest[gb] ? largest[ga] > largest[gb] : ga < gb;
    }
    return diagonal(a) > diagonal(b);
  });
  return columns;
}

// One thread's rows, and room for them.
class Rows {
 public:
  Rows(const GptqFactor& factor, const LadderTable& table, const RowShape& shape, const Grid& grid,
       const std::vector<std::int32_t>& group, std::int64_t groups)
      : factor_(factor), shape_(shape), grid_(grid), group_(group), groups_(groups) {
    errors_ = Tensor::allocate(DType::kF32, {kChunk, shape.cols});
    constexpr std::int64_t kBlock = kGptqColumns * kGptqRows;
    for (Tensor* tensor : {&weight_, &scale_, &zero_, &feedback_, &level_, &error_})
      *tensor = Tensor::allocate(DType::kF32, {kBlock});
    sums_ = Tensor::allocate(DType::kF32, {kChunk, kGptqColumns});
    block_.ladder = table.get();
    block_.weight = weight_.as<float>();
    block_.scale = scale_.as<float>();
    block_.zero = zero_.as<float>();
    block_.feedback = feedback_.mut<float>();
    block_.level = level_.mut<float>();
    block_.error = error_.mut<float>();
    block_.upper_stride = shape.cols;
  }

  // Rows [first, first + count) of the weight, count <= kChunk. `packed`: by block of columns.
  void run(const float* weight, std::int64_t first, std::int64_t count, const std::vector<Tensor>& packed,
           float* levels) {
    const std::int64_t n = shape_.cols;
    float* errors = errors_.mut<float>();
    for (std::int64_t at = 0, b = 0; at < n; at += kGptqColumns, ++b) {
      block_.columns = std::min(kGptqColumns, n - at);
      block_.upper = factor_.upper.data() + at * n + at;
      if (at > 0) {  // feedback of all columns in front of the block
        GemmTask task;
        task.a = errors;
        task.lda = n;
        task.b = packed[static_cast<std::size_t>(b)].as<float>();
        task.c = sums_.mut<float>();
        task.ldc = kGptqColumns;
        task.m = count;
        task.k = at;
        task.n = block_.columns;
        task.panel_end = gemm_panels(task.n);
        PARE_SIMD_PICK(gemm_f32_task)(task);
      }
      for (std::int64_t part = 0; part < count; part += kGptqRows) {
        const std::int64_t rows = std::min(kGptqRows, count - part);
        load(weight, first + part, part, rows, at);
        PARE_SIMD_PICK(gptq_block)(block_);
        for (std::int64_t j = 0; j < block_.columns; ++j) {
          const std::int64_t column = factor_.order[static_cast<std::size_t>(at + j)];
          for (std::int64_t r = 0; r < rows; ++r) {
            errors[(part + r) * n + at + j] = block_.error[j * kGptqRows + r];
            levels[(first + part + r) * n + column] = block_.level[j * kGptqRows + r];
          }
        }
      }
    }
  }

 private:
  void load(const float* weight, std::int64_t row, std::int64_t part, std::int64_t rows, std::int64_t at) {
    float *w = weight_.mut<float>(), *s = scale_.mut<float>(), *z = zero_.mut<float>();
    for (std::int64_t j = 0; j < block_.columns; ++j) {
      const std::int64_t column = factor_.order[static_cast<std::size_t>(at + j)];
      const std::int64_t group = group_[static_cast<std::size_t>(column)];
      for (std::int64_t r = 0; r < kGptqRows; ++r) {
        const std::int64_t to = j * kGptqRows + r;
        const bool inside = r < rows;
        const auto cell = static_cast<std::size_t>((row + r) * groups_ + group);
        w[to] = inside ? weight[(row + r) * shape_.cols + column] : 0.0f;
        s[to] = inside ? grid_.scales[cell] : 1.0f;
        z[to] = inside && !grid_.zero_points.empty() ? static_cast<float>(grid_.zero_points[cell]) : 0.0f;
        block_.feedback[to] = inside && at > 0 ? sums_.as<float>()[(part + r) * kGptqColumns + j] : 0.0f;
      }
    }
  }

  const GptqFactor& factor_;
  const RowShape& shape_;
  const Grid& grid_;
  const std::vector<std::int32_t>& group_;
  std::int64_t groups_;
  GptqBlock block_;
  Tensor errors_, weight_, scale_, zero_, feedback_, level_, error_, sums_;
};

}  // namespace

std::vector<std::int32_t> groups_of_columns(const GridFormat& format, const RowShape& shape) {
  std::vector<std::int32_t> group(static_cast<std::size_t>(shape.cols), 0);
  if (format.group == 0) return group;
  const std::int64_t each = (shape.segment + format.group - 1) / format.group;
  for (std::int64_t c = 0; c < shape.cols; ++c)
    group[static_cast<std::size_t>(c)] =
        static_cast<std::int32_t>(c / shape.segment * each + c % shape.segment / format.group);
  return group;
}

GptqFactor gptq_factor(const float* gram, const GridFormat& format, const RowShape& shape, double damp,
                       ColumnOrder order, ThreadPool& pool) {
  const std::int64_t n = shape.cols;
  GptqFactor factor;
  factor.order = column_order(gram, groups_of_columns(format, shape), n, order);
  double mean = 0;
  for (std::int64_t c = 0; c < n; ++c) {
    const float diagonal = gram[c * n + c];
    if (!std::isfinite(diagonal)) {
      factor.failure = "the second moments hold NaN or infinity";
      return factor;
    }
    mean += static_cast<double>(diagonal) / static_cast<double>(n);
    factor.dead += diagonal <= 0 ? 1 : 0;
  }
  if (!(mean > 0)) {
    factor.failure = "no input of the layer is ever other than zero";
    return factor;
  }
  factor.upper.resize(static_cast<std::size_t>(n * n));
  const auto attempt = [&](double share, bool floor) {
    for (std::int64_t i = 0; i < n; ++i) {
      const float* from = gram + factor.order[static_cast<std::size_t>(i)] * n;
      float* to = factor.upper.data() + i * n;
      for (std::int64_t j = 0; j < n; ++j) to[j] = from[factor.order[static_cast<std::size_t>(j)]];
      const double diagonal = static_cast<double>(to[i]);
      double value = diagonal <= 0 ? mean : diagonal + share * mean;
      if (floor) value = std::max(value, mean * (1 + share));
      to[i] = static_cast<float>(value);
    }
    factor.damp = share;
    return factor_upper(factor.upper.data(), n, pool);
  };
  bool done = false;
  for (int i = 0; i <= kGptqTries && !done; ++i) done = attempt(damp + 0.01 * i, false);
  if (!done) done = attempt(damp + 0.01 * kGptqTries, true);
  if (!done) {
    factor.upper.clear();
    factor.failure = "the second moments stay indefinite with " +
                     std::to_string(static_cast<int>(std::lround(factor.damp * 100))) + " % of damping";
    return factor;
  }
  factor.pivots.resize(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j)
    factor.pivots[static_cast<std::size_t>(j)] = factor.upper[static_cast<std::size_t>(j * n + j)];
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = i; j < n; ++j)
      factor.upper[static_cast<std::size_t>(i * n + j)] /= factor.pivots[static_cast<std::size_t>(j)];
  return factor;
}

void gptq_rows(const GptqFactor& factor, const GridFormat& format, const RowShape& shape, const Grid& grid,
               const float* weight, std::int64_t begin, std::int64_t end, float* levels, ThreadPool& pool,
               const RowsDone& done) {
  const std::int64_t n = shape.cols;
  const LadderTable table(format);
  const std::vector<std::int32_t> group = groups_of_columns(format, shape);
  const std::int64_t groups = groups_of(format, shape);
  // The part of the factor above each block of columns, as the product wants it.
  std::vector<Tensor> packed(static_cast<std::size_t>((n + kGptqColumns - 1) / kGptqColumns));
  pool.parallel_for(static_cast<std::int64_t>(packed.size()), 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t b = std::max<std::int64_t>(from, 1); b < to; ++b) {
      const std::int64_t at = b * kGptqColumns, columns = std::min(kGptqColumns, n - at);
      packed[static_cast<std::size_t>(b)] = Tensor::allocate(DType::kF32, {packed_b_floats(at, columns)});
      pack_b(factor.upper.data() + at, n, 1, at, columns, packed[static_cast<std::size_t>(b)].mut<float>());
    }
  });
  pool.parallel_for((end - begin + kChunk - 1) / kChunk, 1, [&](std::int64_t from, std::int64_t to) {
    Rows rows(factor, table, shape, grid, group, groups);
    for (std::int64_t c = from; c < to; ++c) {
      const std::int64_t first = begin + c * kChunk;
      rows.run(weight, first, std::min(kChunk, end - first), packed, levels);
      if (done) done(std::min(kChunk, end - first));
    }
  });
}

}  // namespace pare::quant
