#include "quant/learned_rounding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/tensor.h"
#include "engine/numeric/e4m3.h"
#include "engine/ops/gemm_f32.h"
#include "quant/gptq.h"
#include "quant/ladder_table.h"
#include "quant/linalg.h"
#include "quant/rounding_simd.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kChunk = 16;  // rows that a thread takes together

// Scales and zero points to try around the present ones; the present ones come first.
void list_trials(const GridFormat& format, float global, float scale, float zero, int sweep,
                 std::vector<RoundingTrial>& trials) {
  static const std::vector<double> kWide = {0.88, 0.91, 0.94, 0.97, 1.03, 1.06, 1.09, 1.12},
                                   kNarrow = {0.96, 0.98, 1.02, 1.04}, kFine = {0.99, 1.01};
  trials.assign(1, {scale, zero});
  std::vector<float> scales;
  if (format.scales == DType::kE8M0) {
    scales = {scale * 2, scale / 2};
  } else if (format.scales == DType::kE4M3FN) {
    const int code = encode_e4m3(scale / global), reach = sweep == 0 ? 3 : 1;
    for (int k = -reach; k <= reach; ++k)
      if (k != 0 && code + k >= 1 && code + k <= 0x7E)
        scales.push_back(decode_e4m3(static_cast<std::uint8_t>(code + k)) * global);
  } else {
    for (const double factor : sweep == 0 ? kWide : sweep == 1 ? kNarrow : kFine)
      scales.push_back(round_scale(format, static_cast<double>(scale) * factor, global));
  }
  for (const float s : scales)
    if (std::isnormal(s) && s != scale) trials.push_back({s, zero});
  if (format.symmetric) return;
  const std::size_t same_zero = trials.size();
  for (std::size_t i = 0; i < same_zero; ++i)
    for (const float shift : {-1.0f, 1.0f}) {
      const float moved = trials[i].zero + shift;
      if (static_cast<double>(moved) < format.lowest_code() ||
          static_cast<double>(moved) > format.largest_code())
        continue;
      trials.push_back({trials[i].scale, moved});
    }
}

// The rows of a chunk, one thread's work.
class Chunk {
 public:
  Chunk(const RoundingMatrix& matrix, const GridFormat& format, const RowShape& shape, const Tensor& packed,
        const RoundingOptions& options)
      : matrix_(matrix), format_(format), shape_(shape), packed_(packed), options_(options), table_(format) {
    const std::int64_t n = shape.cols;
    errors_ = Tensor::allocate(DType::kF32, {kChunk, n});
    slopes_ = Tensor::allocate(DType::kF32, {kChunk, n});
    for (std::vector<float>* v : {&target_, &level_, &best_level_, &room_})
      v->resize(static_cast<std::size_t>(4 * n));
    row_.ladder = table_.get();
    row_.n = n;
    row_.gram = matrix.gram().data();
    row_.group = matrix.group_of().data();
    row_.room = room_.data();
    zeros_.resize(static_cast<std::size_t>(kChunk * groups()));
  }

  std::int64_t run(const float* weight, std::int64_t first, std::int64_t count, Grid& grid, float* levels) {
    const std::int64_t n = shape_.cols;
    global_ = grid.global;
    for (std::int64_t r = 0; r < count; ++r) {
      point_at(weight, first, r, grid, levels);
      for (std::int64_t g = 0; g < groups(); ++g)
        row_.zero[g] =
            grid.zero_points.empty()
                ? 0.0f
                : static_cast<float>(grid.zero_points[static_cast<std::size_t>((first + r) * groups() + g)]);
      for (std::int64_t j = 0; j < n; ++j)
        row_.error[j] = row_.weight[j] - row_.level[j] * row_.scale[row_.group[j]];
    }
    std::vector<bool> done(static_cast<std::size_t>(count));
    std::int64_t turns = 0;
    for (int sweep = 0; sweep < options_.sweeps && std::count(done.begin(), done.end(), false) > 0; ++sweep) {
      refresh(count);
      for (std::int64_t r = 0; r < count; ++r) {
        if (done[static_cast<std::size_t>(r)]) continue;
        point_at(weight, first, r, grid, levels);
        done[static_cast<std::size_t>(r)] = !turn(sweep);
        ++turns;
      }
    }
    if (!grid.zero_points.empty())
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t g = 0; g < groups(); ++g)
          grid.zero_points[static_cast<std::size_t>((first + r) * groups() + g)] =
              static_cast<std::int32_t>(zeros_[static_cast<std::size_t>(r * groups() + g)]);
    return turns;
  }

 private:
  std::int64_t groups() const { return static_cast<std::int64_t>(matrix_.groups().size()); }

  void point_at(const float* weight, std::int64_t first, std::int64_t r, Grid& grid, float* levels) {
    const std::int64_t n = shape_.cols;
    row_.weight = weight + (first + r) * n;
    row_.level = levels + (first + r) * n;
    row_.error = errors_.mut<float>() + r * n;
    row_.slope = slopes_.mut<float>() + r * n;
    row_.scale = grid.scales.data() + (first + r) * groups();
    row_.zero = zeros_.data() + r * groups();
  }

  // Slopes from scratch: moves leave rounding behind.
  void refresh(std::int64_t count) {
    GemmTask task;
    task.a = errors_.as<float>();
    task.lda = shape_.cols;
    task.b = packed_.as<float>();
    task.c = slopes_.mut<float>();
    task.ldc = shape_.cols;
    task.m = count;
    task.k = task.n = shape_.cols;
    task.panel_end = gemm_panels(task.n);
    PARE_SIMD_PICK(gemm_f32_task)(task);
  }

  double loss() const {
    double sum = 0;
    for (std::int64_t j = 0; j < row_.n; ++j)
      sum += static_cast<double>(row_.error[j]) * static_cast<double>(row_.slope[j]);
    return sum;
  }

  // False when the row is done.
  bool turn(int sweep) {
    const double before = loss();
    if (!(before > 0)) return false;
    for (const RoundingMatrix::Group& group : matrix_.groups()) improve_group(group, sweep);
    codes();
    double after = loss();
    if (sweep < 2 || before - after > 4 * options_.stop * before) return true;
    if (options_.pairs && PARE_SIMD_PICK(rounding_pairs)(row_) > 0) {
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

  void improve_group(const RoundingMatrix::Group& g, int sweep) {
    const RoundingGroup group = {g.begin,        g.size,         g.whole,       g.inverse.data(),
                                 g.upper.data(), g.pivot.data(), g.order.data()};
    const std::int32_t index = row_.group[g.begin];
    const float present = PARE_SIMD_PICK(rounding_target)(row_, group, target_.data());
    if (options_.scales)
      list_trials(format_, global_, row_.scale[index], row_.zero[index], sweep, trials_);
    else
      trials_.assign(1, {row_.scale[index], row_.zero[index]});
    float least = present * (1 - 1e-5f);
    RoundingTrial chosen;
    bool found = false;
    for (const RoundingTrial& trial : trials_) {
      const float loss = PARE_SIMD_PICK(rounding_trial)(row_, group, target_.data(), trial, least,
                                                        level_.data(), room_.data());
      if (!(loss < least)) continue;
      least = loss;
      chosen = trial;
      found = true;
      std::swap(level_, best_level_);
    }
    if (options_.scales && is_free_scale()) {
      // Where no trial helped, the present codes may still want another scale.
      if (!found) {
        std::copy_n(row_.level + g.begin, g.size, best_level_.data());
        chosen = {row_.scale[index], row_.zero[index]};
      }
      found = refit(group, chosen, found ? least : present) || found;
    }
    if (found) PARE_SIMD_PICK(rounding_accept)(row_, group, chosen, best_level_.data());
  }

  bool is_free_scale() const { return format_.scales != DType::kE8M0; }

  // The least-squares scale of best_level_, where it helps after rounding.
  bool refit(const RoundingGroup& group, RoundingTrial& chosen, float loss) {
    float ht = 0, hl = 0;
    PARE_SIMD_PICK(rounding_refit)(row_, group, target_.data(), best_level_.data(), &ht, &hl);
    if (!(hl > 0)) return false;
    const double best = static_cast<double>(ht) / static_cast<double>(hl);
    if (!std::isnormal(best) || (best > 0) != (chosen.scale > 0)) return false;
    const float scale = round_scale(format_, best, global_);
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
  float global_ = 1;
  Tensor errors_, slopes_;
  std::vector<float> zeros_, target_, level_, best_level_, room_;
  std::vector<RoundingTrial> trials_;
};

}  // namespace

RoundingMatrix::RoundingMatrix(const float* gram, const GridFormat& format, const RowShape& shape,
                               double ridge, ThreadPool& pool)
    : gram_(gram, gram + shape.cols * shape.cols), group_of_(groups_of_columns(format, shape)) {
  const std::int64_t n = shape.cols;
  double mean = 0;
  for (std::int64_t j = 0; j < n; ++j) mean += static_cast<double>(gram[j * n + j]) / static_cast<double>(n);
  if (!(mean > 0)) mean = 1;
  for (std::int64_t j = 0; j < n; ++j)
    gram_[static_cast<std::size_t>(j * n + j)] += static_cast<float>(ridge * mean);

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
      if (g.whole) continue;
      std::vector<double> inverse(static_cast<std::size_t>(m * m));
      for (std::int64_t a = 0; a < m; ++a)
        for (std::int64_t b = 0; b < m; ++b)
          inverse[static_cast<std::size_t>(a * m + b)] = static_cast<double>(at(a, b));
      if (!invert_spd(inverse.data(), m)) usable = false;
      g.inverse.assign(inverse.begin(), inverse.end());
    }
  });
  usable_ = usable;
}

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
    }
  });
  return turns;
}

}  // namespace pare::quant
