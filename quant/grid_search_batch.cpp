#include "quant/grid_search_batch.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"

namespace pare::quant {
namespace {

// The power of two that brings `largest` into [1, 2); 1 for 0.
float normalizer(float largest) {
  if (largest == 0) return 1;
  return std::ldexp(1.0f, -std::clamp(std::ilogb(largest), -126, 126));
}

float largest_of(const float* h, std::int64_t n) { return n == 0 ? 0 : *std::max_element(h, h + n); }

// Lanes joined, in their order; every lane gets the sum.
void join(double* lanes) {
  double sum = 0;
  for (int l = 0; l < kSearchLanes; ++l) sum += lanes[l];
  std::fill_n(lanes, kSearchLanes, sum);
}

}  // namespace

void SearchBatch::load(const WeightGroup* groups, int count) {
  count_ = count;
  long_ = count == 1 && groups[0].n > kLongest;
  std::copy_n(groups, count, groups_);
  for (int l = 0; l < kSearchLanes; ++l) {
    low_[l] = high_[l] = 0;
    factor_[l] = h_factor_[l] = 1;
    if (l >= count) continue;
    float low = 0, high = 0;
    if (!PARE_SIMD_PICK(search_extremes)(groups[l].w, groups[l].n, &low, &high))
      fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
    factor_[l] = normalizer(std::max(-low, high));
    low_[l] = static_cast<double>(low) * static_cast<double>(factor_[l]);
    high_[l] = static_cast<double>(high) * static_cast<double>(factor_[l]);
    // A group of columns that nobody uses is searched as if all counted alike.
    if (groups[l].h != nullptr) {
      const float largest = largest_of(groups[l].h, groups[l].n);
      h_factor_[l] = largest == 0 ? 0 : normalizer(largest);
    }
  }
  if (long_) {
    for (int l = 1; l < kSearchLanes; ++l)
      low_[l] = low_[0], high_[l] = high_[0], factor_[l] = factor_[0], h_factor_[l] = h_factor_[0];
    x_.resize(kSearchLanes * kTileRows);
    if (groups[0].h != nullptr) h_.resize(x_.size());
  } else {
    gather_lanes();
  }
}

void SearchBatch::gather_lanes() {
  std::int64_t longest = 0;
  for (int l = 0; l < count_; ++l) longest = std::max(longest, groups_[l].n);
  const auto size = static_cast<std::size_t>(longest * kSearchLanes);
  x_.assign(size, 0);
  if (groups_[0].h != nullptr) h_.assign(size, 0);
  for (int l = 0; l < count_; ++l) {
    const WeightGroup& g = groups_[l];
    for (std::int64_t i = 0; i < g.n; ++i)
      x_[static_cast<std::size_t>(i * kSearchLanes + l)] = g.w[i] * factor_[l];
    if (g.h == nullptr) continue;
    for (std::int64_t i = 0; i < g.n; ++i)
      h_[static_cast<std::size_t>(i * kSearchLanes + l)] = h_factor_[l] == 0 ? 1 : g.h[i] * h_factor_[l];
  }
}

// Elements [begin, begin + n) of the long group.
void SearchBatch::gather_tile(std::int64_t begin, std::int64_t n) {
  const WeightGroup& g = groups_[0];
  const std::int64_t padded = (n + kSearchLanes - 1) / kSearchLanes * kSearchLanes;
  for (std::int64_t i = 0; i < n; ++i) x_[static_cast<std::size_t>(i)] = g.w[begin + i] * factor_[0];
  std::fill(x_.begin() + n, x_.begin() + padded, 0.0f);
  if (g.h == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i)
    h_[static_cast<std::size_t>(i)] = h_factor_[0] == 0 ? 1 : g.h[begin + i] * h_factor_[0];
  std::fill(h_.begin() + n, h_.begin() + padded, 0.0f);
}

template <class Body>
void SearchBatch::for_tiles(const Body& body) {
  const bool weighted = groups_[0].h != nullptr;
  if (long_) {
    const std::int64_t step = kTileRows * kSearchLanes;
    for (std::int64_t i = 0; i < groups_[0].n; i += step) {
      const std::int64_t n = std::min(step, groups_[0].n - i);
      gather_tile(i, n);
      body(SearchTile{x_.data(), weighted ? h_.data() : nullptr, (n + kSearchLanes - 1) / kSearchLanes});
    }
    return;
  }
  const auto rows = static_cast<std::int64_t>(x_.size()) / kSearchLanes;
  for (std::int64_t i = 0; i < rows; i += kTileRows)
    body(SearchTile{x_.data() + i * kSearchLanes, weighted ? h_.data() + i * kSearchLanes : nullptr,
                    std::min(kTileRows, rows - i)});
}

void SearchBatch::sums(const SearchCodec& codec, const SearchLanes* lanes, int count, bool exact,
                       SearchSums* sums) {
  std::fill_n(sums, count, SearchSums{});
  const auto kernel = PARE_SIMD_PICK(search_sums);
  for_tiles([&](const SearchTile& tile) { kernel(tile, codec, lanes, count, exact, sums); });
  for (int c = 0; long_ && c < count; ++c) join(sums[c].ee), join(sums[c].ed), join(sums[c].dd);
}

void SearchBatch::errors(const SearchCodec& codec, const SearchLanes* lanes, int count, double* errors) {
  std::fill_n(errors, count * kSearchLanes, 0.0);
  const auto kernel = PARE_SIMD_PICK(search_errors);
  for_tiles([&](const SearchTile& tile) { kernel(tile, codec, lanes, count, errors); });
  for (int c = 0; long_ && c < count; ++c) join(errors + c * kSearchLanes);
}

void SearchBatch::clipped(const float* edge, double* errors) {
  std::fill_n(errors, kSearchLanes, 0.0);
  const auto kernel = PARE_SIMD_PICK(search_clipped);
  for_tiles([&](const SearchTile& tile) { kernel(tile, edge, errors); });
  if (long_) join(errors);
}

}  // namespace pare::quant
