#include "quant/rounding/learned_rounding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/tensor.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/table.h"
#include "engine/ops/matmul/whole_product.h"
#include "quant/grid/ladder_table.h"
#include "quant/rounding/gptq.h"
#include "quant/rounding/gptq_simd.h"
#include "quant/rounding/rounding_simd.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kChunk = 64;  // rows that a thread takes together
constexpr std::int64_t kBatch = kGptqRows;

// Scales and zero points to try around the present ones, which come first. The number depends on format and
// sweep alone: what cannot be had is the present one again.
void list_trials(const GridFormat& format, float global, float scale, float zero, int sweep,
                 std::vector<RoundingTrial>& trials) {
  static const std::vector<double> kWide = {0.88, 0.91, 0.94, 0.97, 1.03, 1.06, 1.09, 1.12},
                                   kNarrow = {0.96, 0.98, 1.02, 1.04}, kFine = {0.99, 1.01};
  trials.assign(1, {scale, zero});
  const auto add = [&](float s) { trials.push_back({std::isnormal(s) ? s : scale, zero}); };
  if (format.scales == DType::kE8M0) {
    add(scale * 2);
    add(scale / 2);
  } else if (format.scales == DType::kE4M3FN) {
    const int code = encode_e4m3(scale / global), reach = sweep == 0 ? 3 : 1;
    for (int k = -reach; k <= reach; ++k)
      if (k != 0)
        add(code + k >= 1 && code + k <= 0x7E ? decode_e4m3(static_cast<std::uint8_t>(code + k)) * global
                                              : scale);
  } else {
    for (const double factor : sweep < 2 ? kWide : sweep < 4 ? kNarrow : kFine)
      add(round_scale(format, static_cast<double>(scale) * factor, global));
    // The other sign gives the one code more to the other end.
    if (sweep == 0 && format.symmetric && !format.positive && format_info(format.codes).is_integer())
      for (const double factor : {-1.0, -0.94, -1.06})
        add(round_scale(format, static_cast<double>(scale) * factor, global));
  }
  if (format.symmetric) return;
  const std::size_t same_zero = trials.size();
  for (std::size_t i = 0; i < same_zero; ++i)
    for (const float shift : {-1.0f, 1.0f}) {
      const double moved = static_cast<double>(trials[i].zero + shift);
      const bool inside = moved >= format.lowest_code() && moved <= format.largest_code();
      trials.push_back({trials[i].scale, inside ? static_cast<float>(moved) : zero});
    }
}

// The rows of a chunk, one thread's work.
class Chunk {
 public:
  Chunk(const RoundingMatrix& matrix, const GridFormat& format, const RowShape& shape, const Tensor& packed,
        const RoundingOptions& options)
      : matrix_(matrix), format_(format), shape_(shape), packed_(packed), options_(options), table_(format) {
    const std::int64_t n = shape.cols;
    for (const RoundingMatrix::Group& group : matrix.groups()) widest_ = std::max(widest_, group.size);
    errors_ = Tensor::allocate(DType::kF32, {kChunk, n});
    slopes_ = Tensor::allocate(DType::kF32, {kChunk, n});
    for (Tensor* t : {&target_, &level_, &best_level_, &scale_, &zero_, &error_, &feedback_, &gathered_})
      *t = Tensor::allocate(DType::kF32, {widest_, kBatch});
    for (Tensor* t : {&row_target_, &row_level_}) *t = Tensor::allocate(DType::kF32, {widest_});
    room_ = Tensor::allocate(DType::kF32, {4 * n});
    sums_ = Tensor::allocate(DType::kF32, {kBatch, kGptqColumns});
    row_.ladder = table_.get();
    row_.n = n;
    row_.gram = matrix.gram().data();
    row_.diagonal = matrix.diagonal().data();
    row_.group = matrix.group_of().data();
    row_.room = room_.mut<float>();
    if (options.effort > 1) {
      row_.first = 1.0f;
      row_.further = 0.5f;
    }
    zeros_.resize(static_cast<std::size_t>(kChunk * groups()));
    trials_.resize(static_cast<std::size_t>(kBatch));
  }

  std::int64_t run(const float* weight, std::int64_t first, std::int64_t count, Grid& grid, float* levels) {
    weight_ = weight;
    levels_ = levels;
    grid_ = &grid;
    first_ = first;
    for (std::int64_t r = 0; r < count; ++r) {
      point_at(r);
      for (std::int64_t g = 0; g < groups(); ++g)
        row_.zero[g] = grid.zero_points.empty() ? 0.0f : static_cast<float>(grid.zero_points[cell(r, g)]);
      for (std::int64_t j = 0; j < shape_.cols; ++j)
        row_.error[j] = row_.weight[j] - row_.level[j] * row_.scale[row_.group[j]];
    }
    std::vector<std::int64_t> active(static_cast<std::size_t>(count));
    std::iota(active.begin(), active.end(), 0);
    std::int64_t turns = 0;
    for (int sweep = 0; sweep < options_.sweeps && !active.empty(); ++sweep) {
      refresh(count);
      turns += static_cast<std::int64_t>(active.size());
      turn(active, sweep);
    }
    if (!grid.zero_points.empty())
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t g = 0; g < groups(); ++g)
          grid.zero_points[cell(r, g)] =
              static_cast<std::int32_t>(zeros_[static_cast<std::size_t>(r * groups() + g)]);
    return turns;
  }

 private:
  std::int64_t groups() const { return static_cast<std::int64_t>(matrix_.groups().size()); }
  std::size_t cell(std::int64_t r, std::int64_t group) const {
    return static_cast<std::size_t>((first_ + r) * groups() + group);
  }

  void point_at(std::int64_t r) {
    const std::int64_t n = shape_.cols;
    row_.weight = weight_ + (first_ + r) * n;
    row_.level = levels_ + (first_ + r) * n;
    row_.error = errors_.mut<float>() + r * n;
    row_.slope = slopes_.mut<float>() + r * n;
    row_.scale = grid_->scales.data() + (first_ + r) * groups();
    row_.zero = zeros_.data() + r * groups();
  }

  // Slopes from scratch: moves leave rounding behind.
  void refresh(std::int64_t count) {
    multiply(errors_.as<float>(), shape_.cols, packed_, slopes_.mut<float>(), shape_.cols, count, shape_.cols,
             shape_.cols);
  }
  static void multiply(const float* a, std::int64_t lda, const Tensor& b, float* c, std::int64_t ldc,
                       std::int64_t m, std::int64_t k, std::int64_t n) {
    PARE_SIMD_PICK(gemm_f32_task)(whole_product(a, lda, b.as<float>(), c, ldc, m, k, n));
  }

  double loss() const {
    double sum = 0;
    for (std::int64_t j = 0; j < row_.n; ++j)
      sum += static_cast<double>(row_.error[j]) * static_cast<double>(row_.slope[j]);
    return sum;
  }

  // Rows that are done leave `active`.
  void turn(std::vector<std::int64_t>& active, int sweep) {
    std::vector<double> before;
    for (const std::int64_t r : active) {
      point_at(r);
      before.push_back(loss());
    }
    for (std::size_t at = 0; at < active.size(); at += kBatch) {
      const std::size_t count = std::min(static_cast<std::size_t>(kBatch), active.size() - at);
      for (const RoundingMatrix::Group& group : matrix_.groups())
        improve_group(group, active.data() + at, static_cast<std::int64_t>(count), sweep);
    }
    std::vector<std::int64_t> left;
    for (std::size_t i = 0; i < active.size(); ++i) {
      point_at(active[i]);
      if (before[i] > 0 && improve_codes(before[i], sweep)) left.push_back(active[i]);
    }
    active = left;
  }

  // False when the row is done.
  bool improve_codes(double before, int sweep) {
    codes();
    double after = loss();
    constexpr int kFirstChains = 2;  // turns in which scales still move much
    if (sweep < kFirstChains || before - after > 4 * options_.stop * before) return true;
    if (options_.effort > 0 && PARE_SIMD_PICK(rounding_chains)(row_) > 0) {
      codes();
      after = loss();
    }
    return before - after > options_.stop * before;
  }

  void codes() {
    constexpr int kMost = 8;
    for (int i = 0; i < kMost; ++i)
      if (PARE_SIMD_PICK(rounding_sweep)(row_) == 0) break;
  }

  // Nearest plane in the group for all trials of up to kBatch rows side by side.
  void improve_group(const RoundingMatrix::Group& group, const std::int64_t* rows, std::int64_t count,
                     int sweep) {
    load_targets(group, rows, count);
    const std::int64_t index = matrix_.group_of()[static_cast<std::size_t>(group.begin)];
    for (std::int64_t r = 0; r < count; ++r) {
      point_at(rows[r]);
      std::vector<RoundingTrial>& list = trials_[static_cast<std::size_t>(r)];
      if (options_.scales)
        list_trials(format_, grid_->global, row_.scale[index], row_.zero[index], sweep, list);
      else
        list.assign(1, {row_.scale[index], row_.zero[index]});
    }
    float least[kBatch], loss[kBatch];
    RoundingTrial chosen[kBatch];
    bool found[kBatch] = {};
    for (std::int64_t r = 0; r < kBatch; ++r) least[r] = present_[r] * (1 - 1e-5f);
    const std::size_t tries = trials_[0].size();
    for (std::size_t t = 0; t < tries; ++t) {
      try_once(group, count, t, loss);
      bool any = false;
      for (std::int64_t r = 0; r < count; ++r) any = any || loss[r] < least[r];
      if (!any) continue;
      float* to = best_level_.mut<float>();
      const float* from = level_.as<float>();
      for (std::int64_t i = 0; i < group.size; ++i)
        for (std::int64_t r = 0; r < count; ++r)
          to[i * kBatch + r] = loss[r] < least[r] ? from[i * kBatch + r] : to[i * kBatch + r];
      for (std::int64_t r = 0; r < count; ++r) {
        if (!(loss[r] < least[r])) continue;
        least[r] = loss[r];
        chosen[r] = trials_[static_cast<std::size_t>(r)][t];
        found[r] = true;
      }
    }
    for (std::int64_t r = 0; r < count; ++r) {
      point_at(rows[r]);
      settle(group, r, index, found[r], chosen[r], found[r] ? least[r] : present_[r]);
    }
  }

  // The best free values of the group's columns, given all others, in the order of the factor; and what the
  // present codes lose against them.
  void load_targets(const RoundingMatrix::Group& group, const std::int64_t* rows, std::int64_t count) {
    float* free = gathered_.mut<float>();  // [count][size]
    const std::int64_t m = group.size;
    if (!group.whole) {
      float* slopes = feedback_.mut<float>();
      for (std::int64_t r = 0; r < count; ++r)
        std::copy_n(slopes_.as<float>() + rows[r] * shape_.cols + group.begin, m, slopes + r * m);
      multiply(slopes, m, group.inverse, free, m, count, m, m);
    }
    std::fill_n(target_.mut<float>(), m * kBatch, 0.0f);
    std::fill_n(present_, kBatch, 0.0f);
    for (std::int64_t r = 0; r < count; ++r) {
      point_at(rows[r]);
      double gain = 0;
      for (std::int64_t i = 0; i < m; ++i) {
        const float v = group.whole ? row_.error[i] : free[r * m + i];
        gain += static_cast<double>(v) * static_cast<double>(row_.slope[group.begin + i]);
      }
      present_[r] = static_cast<float>(gain);
      for (std::int64_t i = 0; i < m; ++i) {
        const std::int64_t c = group.order[static_cast<std::size_t>(i)], j = group.begin + c;
        target_.mut<float>()[i * kBatch + r] =
            group.whole ? row_.weight[j] : row_.weight[j] - row_.error[j] + free[r * m + c];
      }
    }
  }

  void try_once(const RoundingMatrix::Group& group, std::int64_t count, std::size_t trial, float* loss) {
    float scale[kBatch], zero[kBatch];
    for (std::int64_t r = 0; r < kBatch; ++r) {
      const RoundingTrial* t = r < count ? &trials_[static_cast<std::size_t>(r)][trial] : nullptr;
      scale[r] = t != nullptr ? t->scale : 1.0f;
      zero[r] = t != nullptr ? t->zero : 0.0f;
      loss[r] = 0;
    }
    for (std::int64_t i = 0; i < std::min(group.size, kGptqColumns); ++i) {
      std::copy_n(scale, kBatch, scale_.mut<float>() + i * kBatch);
      std::copy_n(zero, kBatch, zero_.mut<float>() + i * kBatch);
    }
    GptqBlock block;
    block.ladder = table_.get();
    block.scale = scale_.as<float>();
    block.zero = zero_.as<float>();
    block.upper_stride = group.size;
    block.feedback = feedback_.mut<float>();
    block.loss = loss;
    for (std::int64_t at = 0, b = 0; at < group.size; at += kGptqColumns, ++b) {
      block.columns = std::min(kGptqColumns, group.size - at);
      block.weight = target_.as<float>() + at * kBatch;
      block.level = level_.mut<float>() + at * kBatch;
      block.error = error_.mut<float>() + at * kBatch;
      block.upper = group.upper.data() + at * group.size + at;
      block.pivot = group.pivot.data() + at;
      std::fill_n(block.feedback, block.columns * kBatch, 0.0f);
      if (at > 0) {
        multiply(gathered_.as<float>(), group.size, group.above[static_cast<std::size_t>(b)],
                 sums_.mut<float>(), kGptqColumns, count, at, block.columns);
        for (std::int64_t j = 0; j < block.columns; ++j)
          for (std::int64_t r = 0; r < count; ++r)
            block.feedback[j * kBatch + r] = sums_.as<float>()[r * kGptqColumns + j];
      }
      PARE_SIMD_PICK(gptq_block)(block);
      for (std::int64_t r = 0; r < count && at + block.columns < group.size; ++r)
        for (std::int64_t j = 0; j < block.columns; ++j)
          gathered_.mut<float>()[r * group.size + at + j] = block.error[j * kBatch + r];
    }
  }

  // Takes the best trial of row r of the batch over, with the best scale for its codes.
  void settle(const RoundingMatrix::Group& group, std::int64_t r, std::int64_t index, bool found,
              RoundingTrial chosen, float loss) {
    float *target = row_target_.mut<float>(), *level = row_level_.mut<float>();
    for (std::int64_t i = 0; i < group.size; ++i) {
      const std::int64_t c = group.order[static_cast<std::size_t>(i)];
      target[c] = target_.as<float>()[i * kBatch + r];
      level[c] = found ? best_level_.as<float>()[i * kBatch + r] : row_.level[group.begin + c];
    }
    // Where no trial helped, the present codes may still want another scale.
    if (!found) chosen = {row_.scale[index], row_.zero[index]};
    const RoundingGroup columns = {group.begin, group.size};
    if (options_.scales && format_.scales != DType::kE8M0) found = refit(columns, chosen, loss) || found;
    if (found) PARE_SIMD_PICK(rounding_accept)(row_, columns, chosen, level);
  }

  // The least-squares scale of the levels, where it helps after rounding.
  bool refit(const RoundingGroup& group, RoundingTrial& chosen, float loss) {
    float ht = 0, hl = 0;
    PARE_SIMD_PICK(rounding_refit)(row_, group, row_target_.as<float>(), row_level_.as<float>(), &ht, &hl);
    if (!(hl > 0)) return false;
    const double best = static_cast<double>(ht) / static_cast<double>(hl);
    if (!std::isnormal(best) || (best > 0) != (chosen.scale > 0)) return false;
    const float scale = round_scale(format_, best, grid_->global);
    if (!std::isnormal(scale) || scale == chosen.scale) return false;
    const auto above = [&](float s) {  // what the scale adds to the least loss of these codes
      const double off = static_cast<double>(s) - best;
      return off * off * static_cast<double>(hl);
    };
    const double gain = above(chosen.scale) - above(scale);
    if (!(gain > 1e-6 * static_cast<double>(loss))) return false;
    chosen.scale = scale;
    return true;
  }

  const RoundingMatrix& matrix_;
  const GridFormat& format_;
  const RowShape& shape_;
  const Tensor& packed_;
  const RoundingOptions& options_;
  LadderTable table_;
  RoundingRow row_;
  const float* weight_ = nullptr;
  float* levels_ = nullptr;
  Grid* grid_ = nullptr;
  std::int64_t first_ = 0, widest_ = 1;
  Tensor errors_, slopes_;                                                           // [kChunk][cols]
  Tensor target_, level_, best_level_, scale_, zero_, error_, feedback_, gathered_;  // [widest][kBatch]
  Tensor row_target_, row_level_, room_, sums_;
  float present_[kBatch] = {};
  std::vector<float> zeros_;
  std::vector<std::vector<RoundingTrial>> trials_;  // by row of the batch
};

}  // namespace

std::int64_t learn_rounding(const RoundingMatrix& matrix, const GridFormat& format, const RowShape& shape,
                            const float* weight, std::int64_t begin, std::int64_t end, Grid& grid,
                            float* levels, const RoundingOptions& options, ThreadPool& pool) {
  PARE_ASSERT(matrix.usable());
  const std::int64_t n = shape.cols;
  Tensor packed = Tensor::allocate(DType::kF32, {packed_b_floats(n, n)});
  pack_b(matrix.gram().data(), n, 1, n, n, packed.mut<float>());
  std::atomic<std::int64_t> turns = 0;
  pool.parallel_for((end - begin + kChunk - 1) / kChunk, 1, [&](std::int64_t from, std::int64_t to) {
    Chunk chunk(matrix, format, shape, packed, options);
    for (std::int64_t c = from; c < to; ++c) {
      const std::int64_t first = begin + c * kChunk;
      turns += chunk.run(weight, first, std::min(kChunk, end - first), grid, levels);
      if (options.rows_done) options.rows_done(std::min(kChunk, end - first));
    }
  });
  return turns;
}

}  // namespace pare::quant
