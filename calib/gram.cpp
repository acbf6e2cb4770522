#include "calib/gram.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "calib/gram_simd.h"
#include "engine/base/error.h"
#include "engine/ops/matmul/gemm_f32.h"

namespace pare {
namespace {

constexpr std::int64_t kRowsOfTile = 96, kColumnsOfTile = 256;
// Up to this many columns groups are interleaved: a matrix product would be mostly edges.
constexpr std::int64_t kSmall = 64;
constexpr std::int64_t kLanes = 32;  // groups side by side in the interleaved form

bool interleaved(std::int64_t n, std::int64_t groups) { return groups > 1 && n <= kSmall; }

bool is_finite(const float* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu);
  return largest < 0x7F800000u;
}

std::vector<double> scaled(const std::vector<double>& from, std::int64_t begin, std::int64_t n,
                           std::uint64_t count) {
  std::vector<double> to(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n && count > 0; ++i)
    to[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(begin + i)] / static_cast<double>(count);
  return to;
}

}  // namespace

std::vector<double> Gram::mean_square(std::int64_t group) const {
  std::vector<double> diagonal(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) diagonal[static_cast<std::size_t>(i)] = at(group, i, i);
  return scaled(diagonal, 0, n, count);
}

std::vector<double> Gram::mean(std::int64_t group) const { return scaled(totals, group * n, n, count); }

std::vector<float> Gram::dense(std::int64_t group) const {
  std::vector<float> full(static_cast<std::size_t>(n * n));
  const double positions = static_cast<double>(std::max<std::uint64_t>(count, 1));
  const double* from = sums.data() + group * triangle(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = i; j < n; ++j) {
      const auto value = static_cast<float>(*from++ / positions);
      full[static_cast<std::size_t>(i * n + j)] = value;
      full[static_cast<std::size_t>(j * n + i)] = value;
    }
  return full;
}

void add_plain(Gram& gram, const float* x, std::int64_t positions) {
  const std::int64_t n = gram.n;
  gram.sums.resize(static_cast<std::size_t>(gram.groups * Gram::triangle(n)));
  gram.totals.resize(static_cast<std::size_t>(gram.groups * n));
  for (std::int64_t p = 0; p < positions; ++p, x += gram.groups * n) {
    if (!is_finite(x, gram.groups * n)) {
      ++gram.nonfinite;
      continue;
    }
    ++gram.count;
    double* sum = gram.sums.data();
    for (std::int64_t g = 0; g < gram.groups; ++g)
      for (std::int64_t i = 0; i < n; ++i) {
        const double left = static_cast<double>(x[g * n + i]);
        gram.totals[static_cast<std::size_t>(g * n + i)] += left;
        for (std::int64_t j = i; j < n; ++j) *sum++ += left * static_cast<double>(x[g * n + j]);
      }
  }
}

GramAccumulator::GramAccumulator(std::string name, std::int64_t n, std::int64_t groups, ThreadPool& pool)
    : pool_(pool) {
  PARE_ASSERT(n > 0 && groups > 0);
  gram_.name = std::move(name);
  gram_.n = n;
  gram_.groups = groups;
  group_stride_ = interleaved(n, groups) ? 1 : n;
  column_stride_ = interleaved(n, groups) ? groups : 1;
  gram_.sums.resize(static_cast<std::size_t>(groups * Gram::triangle(n)));
  gram_.totals.resize(static_cast<std::size_t>(groups * n));
}

std::int64_t GramAccumulator::held_bytes(std::int64_t n, std::int64_t groups) {
  return groups * (Gram::triangle(n) + n) * 8;
}

std::int64_t GramAccumulator::waiting_bytes(std::int64_t n, std::int64_t groups) {
  return kGramBlock * n * groups * 4;
}

std::int64_t GramAccumulator::work_bytes(std::int64_t n) { return kGramBlock * n * 4 * 2; }

float* GramAccumulator::rows(std::int64_t& k) {
  if (pending_.empty()) pending_ = Tensor::allocate(DType::kF32, {kGramBlock, width()});
  k = std::min(k, kGramBlock - filled_);
  return pending_.mut<float>() + filled_ * width();
}

void GramAccumulator::commit(std::int64_t k) {
  PARE_ASSERT(k >= 0 && filled_ + k <= kGramBlock);
  filled_ += k;
  if (filled_ == kGramBlock) flush();
}

Gram GramAccumulator::take() {
  if (filled_ > 0) flush();
  Gram done = gram_;
  std::fill(gram_.sums.begin(), gram_.sums.end(), 0.0);
  std::fill(gram_.totals.begin(), gram_.totals.end(), 0.0);
  gram_.count = gram_.nonfinite = 0;
  return done;
}

Gram GramAccumulator::finish() {
  if (filled_ > 0) flush();
  pending_ = {};
  return std::move(gram_);
}

void GramAccumulator::flush() {
  float* x = pending_.mut<float>();
  const std::int64_t wide = width();
  // A position left out becomes zeros, which add nothing.
  std::vector<std::uint8_t> bad(static_cast<std::size_t>(filled_));
  pool_.parallel_for(filled_, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      if (is_finite(x + p * wide, wide)) continue;
      bad[static_cast<std::size_t>(p)] = 1;
      std::fill_n(x + p * wide, wide, 0.0f);
    }
  });
  const auto left_out = static_cast<std::uint64_t>(std::count(bad.begin(), bad.end(), 1));
  gram_.nonfinite += left_out;
  gram_.count += static_cast<std::uint64_t>(filled_) - left_out;

  pool_.parallel_for(wide, 64, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> total(static_cast<std::size_t>(end - begin));
    for (std::int64_t p = 0; p < filled_; ++p)
      for (std::int64_t c = begin; c < end; ++c)
        total[static_cast<std::size_t>(c - begin)] += static_cast<double>(x[p * wide + c]);
    for (std::int64_t c = begin; c < end; ++c) {
      const std::int64_t at =
          group_stride_ == 1 && gram_.groups > 1 ? c % gram_.groups * gram_.n + c / gram_.groups : c;
      gram_.totals[static_cast<std::size_t>(at)] += total[static_cast<std::size_t>(c - begin)];
    }
  });
  if (interleaved(gram_.n, gram_.groups))
    add_interleaved();
  else
    for (std::int64_t g = 0; g < gram_.groups; ++g) add_dense(g);
  filled_ = 0;
}

// X^T X by tiles of the upper triangle.
void GramAccumulator::add_dense(std::int64_t group) {
  const std::int64_t n = gram_.n, k = filled_, wide = width();
  const float* x = pending_.as<float>() + group * n;
  Tensor packed = Tensor::allocate(DType::kF32, {packed_b_floats(k, n)});
  Tensor transposed = Tensor::allocate(DType::kF32, {n, k});
  pack_b(x, wide, 1, k, n, packed.mut<float>());
  float* xt = transposed.mut<float>();
  pool_.parallel_for(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t c = begin; c < end; ++c) xt[c * k + p] = x[p * wide + c];
  });

  struct TileAt {
    std::int64_t row, column;
  };
  std::vector<TileAt> tiles;
  for (std::int64_t row = 0; row < n; row += kRowsOfTile)
    for (std::int64_t column = row / kColumnsOfTile * kColumnsOfTile; column < n; column += kColumnsOfTile)
      tiles.push_back({row, column});
  double* sums = gram_.sums.data() + group * Gram::triangle(n);
  pool_.parallel_for(static_cast<std::int64_t>(tiles.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    Tensor tile = Tensor::allocate(DType::kF32, {kRowsOfTile, kColumnsOfTile});
    for (std::int64_t t = begin; t < end; ++t) {
      const TileAt at = tiles[static_cast<std::size_t>(t)];
      GemmTask task;
      task.m = std::min(kRowsOfTile, n - at.row);
      task.n = std::min(kColumnsOfTile, n - at.column);
      task.k = k;
      task.a = xt + at.row * k;
      task.lda = k;
      task.b = packed.as<float>() + at.column * k;  // panels are whole in front of it
      task.c = tile.mut<float>();
      task.ldc = kColumnsOfTile;
      task.panel_end = gemm_panels(task.n);
      PARE_SIMD_PICK(gemm_f32_task)(task);
      for (std::int64_t r = 0; r < task.m; ++r) {
        const std::int64_t i = at.row + r, first = std::max(i, at.column);
        const float* from = tile.as<float>() + r * kColumnsOfTile + (first - at.column);
        double* to = sums + gram_.index(i, first);
        for (std::int64_t c = 0; c < at.column + task.n - first; ++c) to[c] += static_cast<double>(from[c]);
      }
    }
  });
}

// Vectors across groups; each element is the same chain over positions as above.
void GramAccumulator::add_interleaved() {
  const std::int64_t n = gram_.n, groups = gram_.groups, wide = width(), k = filled_;
  const float* x = pending_.as<float>();
  pool_.parallel_for((groups + kLanes - 1) / kLanes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t lane = begin * kLanes; lane < std::min(groups, end * kLanes); lane += kLanes) {
      const std::int64_t lanes = std::min(kLanes, groups - lane);
      PARE_SIMD_PICK(gram_small)
      (x + lane, k, wide, n, groups, lanes, gram_.sums.data() + lane * Gram::triangle(n), Gram::triangle(n));
    }
  });
}

}  // namespace pare
