#include "quant/grid/grid_search_batch.h"

#include <algorithm>
#include <bit>

#include "engine/base/error.h"

namespace pare::quant {
namespace {

// The power of two that brings `largest` into [1, 2), as far as both are normal numbers; 1 for 0.
float normalizer(float largest) {
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest) >> 23;
  const std::uint32_t inverse = exponent == 254 ? 1 : 254 - exponent;
  return largest == 0 ? 1.0f : std::bit_cast<float>(inverse << 23);
}

// Lanes joined, in their order; every lane gets the sum.
void join(double* lanes) {
  double sum = 0;
  for (int l = 0; l < kSearchLanes; ++l) sum += lanes[l];
  std::fill_n(lanes, kSearchLanes, sum);
}

}  // namespace

void SearchBatch::load(const WeightGroup* groups, int count, const LaneGram& gram) {
  count_ = count;
  gram_ = gram;
  long_ = count == 1 && groups[0].n > kLongest;
  std::copy_n(groups, count, groups_);
  std::fill_n(h_back_, kSearchLanes, 1.0);
  if (long_) {
    if (!PARE_SIMD_PICK(search_extremes)(groups[0].w, groups[0].n, lowest_, highest_))
      throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
          .hint("look at the training run, or leave the layer out (ignore, --exclude)");
    std::fill_n(lowest_, kSearchLanes, lowest_[0]);
    std::fill_n(highest_, kSearchLanes, highest_[0]);
    x_.resize(kSearchLanes * kTileRows);
    if (groups[0].h != nullptr) {
      h_.resize(x_.size());
      const float largest = *std::max_element(groups[0].h, groups[0].h + groups[0].n);
      h_factor_ = largest == 0 ? 0 : normalizer(largest);
      std::fill_n(h_back_, kSearchLanes, largest == 0 ? 0 : 1 / static_cast<double>(h_factor_));
    }
  } else {
    gather_lanes();
  }
  if (gram.blocks != nullptr) {
    std::copy_n(gram.units, kSearchLanes, h_back_);
    work_.resize(static_cast<std::size_t>(2 * rows_ * kSearchLanes));
  }
  for (int l = 0; l < kSearchLanes; ++l) {
    factor_[l] = static_cast<double>(normalizer(std::max(-lowest_[l], highest_[l])));
    back_[l] = 1 / factor_[l];
    low_[l] = static_cast<double>(lowest_[l]) * factor_[l];
    high_[l] = static_cast<double>(highest_[l]) * factor_[l];
  }
}

void SearchBatch::gather_lanes() {
  std::int64_t n[kSearchLanes] = {};
  const float* w[kSearchLanes] = {};
  const float* h[kSearchLanes] = {};
  rows_ = gram_.width;
  for (int l = 0; l < count_; ++l) {
    w[l] = groups_[l].w, h[l] = groups_[l].h, n[l] = groups_[l].n;
    rows_ = std::max(rows_, n[l]);
  }
  const auto size = static_cast<std::size_t>(rows_ * kSearchLanes);
  if (x_.size() < size) x_.resize(size);
  const auto gather = PARE_SIMD_PICK(search_gather);
  const auto extremes = PARE_SIMD_PICK(search_lane_extremes);
  const auto scale = PARE_SIMD_PICK(search_scale_lanes);
  float factors[kSearchLanes], unused[kSearchLanes], largest[kSearchLanes];
  gather(w, n, rows_, x_.data());
  if (!extremes(x_.data(), rows_, lowest_, highest_))
    throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
        .hint("look at the training run, or leave the layer out (ignore, --exclude)");
  for (int l = 0; l < kSearchLanes; ++l) factors[l] = normalizer(std::max(-lowest_[l], highest_[l]));
  scale(x_.data(), rows_, factors);
  if (h[0] == nullptr) return;
  if (h_.size() < size) h_.resize(size);
  gather(h, n, rows_, h_.data());
  extremes(h_.data(), rows_, unused, largest);
  for (int l = 0; l < kSearchLanes; ++l) {
    factors[l] = normalizer(largest[l]);
    h_back_[l] = largest[l] == 0 ? 0 : 1 / static_cast<double>(factors[l]);
  }
  scale(h_.data(), rows_, factors);
  for (int l = 0; l < count_; ++l)
    for (std::int64_t i = 0; largest[l] == 0 && i < n[l]; ++i)
      h_[static_cast<std::size_t>(i * kSearchLanes + l)] = 1;
}

// Elements [begin, begin + n) of the long group.
void SearchBatch::gather_tile(std::int64_t begin, std::int64_t n) {
  const WeightGroup& g = groups_[0];
  const std::int64_t padded = (n + kSearchLanes - 1) / kSearchLanes * kSearchLanes;
  const auto copy = PARE_SIMD_PICK(search_scale);
  copy(g.w + begin, static_cast<float>(factor_[0]), n, x_.data());
  std::fill(x_.begin() + n, x_.begin() + padded, 0.0f);
  if (g.h == nullptr) return;
  if (h_factor_ == 0)
    std::fill_n(h_.begin(), n, 1.0f);
  else
    copy(g.h + begin, h_factor_, n, h_.data());
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
  for (std::int64_t i = 0; i < rows_; i += kTileRows)
    body(SearchTile{x_.data() + i * kSearchLanes, weighted ? h_.data() + i * kSearchLanes : nullptr,
                    std::min(kTileRows, rows_ - i)});
}

void SearchBatch::sums(const SearchCodec& codec, const SearchLanes* lanes, int count, SearchPass pass,
                       SearchSums* sums) {
  if (gram_.blocks != nullptr && pass == SearchPass::kExact) {
    const SearchTile group{x_.data(), nullptr, rows_};
    for (int c = 0; c < count; ++c)
      PARE_SIMD_PICK(search_quadratic)(group, codec, lanes[c], gram_.blocks, work_.data(), sums + c);
    return;
  }
  const auto kernel = PARE_SIMD_PICK(search_sums);
  bool fresh = true;
  for_tiles([&](const SearchTile& tile) {
    kernel(tile, codec, lanes, count, pass, fresh, sums);
    fresh = false;
  });
  for (int c = 0; long_ && c < count; ++c) {
    if (pass != SearchPass::kProjection) join(sums[c].ee);
    join(sums[c].ed);
    join(sums[c].dd);
  }
}

void SearchBatch::errors(const SearchCodec& codec, const SearchLanes* lanes, int count, double* errors) {
  for (int c = 0; gram_.blocks != nullptr && c < count; ++c) {
    SearchSums one;
    sums(codec, lanes + c, 1, SearchPass::kExact, &one);
    std::copy_n(one.ee, kSearchLanes, errors + c * kSearchLanes);
  }
  if (gram_.blocks != nullptr) return;
  std::fill_n(errors, count * kSearchLanes, 0.0);
  const auto kernel = PARE_SIMD_PICK(search_errors);
  for_tiles([&](const SearchTile& tile) { kernel(tile, codec, lanes, count, errors); });
  for (int c = 0; long_ && c < count; ++c) join(errors + c * kSearchLanes);
}

void SearchBatch::moments(double* power, double* sum, double* weight) {
  for (double* lanes : {power, sum, weight}) std::fill_n(lanes, kSearchLanes, 0.0);
  const auto kernel = PARE_SIMD_PICK(search_moments);
  for_tiles([&](const SearchTile& tile) { kernel(tile, power, sum, weight); });
  for (double* lanes : {power, sum, weight})
    if (long_) join(lanes);
  if (groups_[0].h != nullptr) return;
  for (int l = 0; l < count_; ++l) weight[l] = static_cast<double>(groups_[l].n);  // without padding
  if (long_) std::fill_n(weight, kSearchLanes, weight[0]);
}

void SearchBatch::clipped(const float* edge, double* errors) {
  std::fill_n(errors, kSearchLanes, 0.0);
  const auto kernel = PARE_SIMD_PICK(search_clipped);
  for_tiles([&](const SearchTile& tile) { kernel(tile, edge, errors); });
  if (long_) join(errors);
}

}  // namespace pare::quant
