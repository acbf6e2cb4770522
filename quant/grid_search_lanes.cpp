#include "quant/grid_search_lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/numeric/e4m3.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

constexpr int kLanes = kSearchLanes;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

SearchCodec codec_of(const FormatInfo& info) {
  SearchCodec codec;
  codec.is_integer = info.is_integer();
  codec.smallest_normal = static_cast<float>(info.smallest_normal);
  codec.magic = std::ldexp(1.5f, 23 - info.mantissa_bits);
  return codec;
}

}  // namespace

// The best few of the grid in each lane, by the error that the least-squares scale of their codes would have.
struct LaneSearch::Finalists {
  static constexpr int kKept = 2;
  double score[kKept][kLanes];
  double scale[kKept][kLanes];  // least squares, of normalized weights, not rounded
  int zero[kKept][kLanes];

  Finalists() {
    for (auto& row : score) std::fill_n(row, kLanes, kInfinity);
    for (auto& row : scale) std::fill_n(row, kLanes, 0.0);
    for (auto& row : zero) std::fill_n(row, kLanes, 0);
  }

  void add(const SearchLanes& lanes, const SearchSums& sums, const int* zeros) {
    for (int l = 0; l < kLanes; ++l) {
      if (!(sums.dd[l] > 0)) continue;
      const double shift = sums.ed[l] / sums.dd[l];
      double s = static_cast<double>(lanes.scale[l]) + shift, e = sums.ee[l] - sums.ed[l] * shift;
      int z = zeros == nullptr ? 0 : zeros[l];
      for (int k = 0; k < kKept; ++k) {
        if (!(e < score[k][l])) continue;
        std::swap(e, score[k][l]);
        std::swap(s, scale[k][l]);
        std::swap(z, zero[k][l]);
      }
    }
  }
};

LaneSearch::LaneSearch(const GridFormat& format, float global)
    : format_(format),
      codec_(codec_of(format_info(format.codes))),
      global_(global),
      lowest_(format.lowest_code()),
      largest_(format.largest_code()) {}

void LaneSearch::fill(const SearchBatch& batch, const float* scales, const int* zeros,
                      SearchLanes& lanes) const {
  for (int l = 0; l < kLanes; ++l) {
    lanes.scale[l] = scales[l] * static_cast<float>(batch.factor(l));
    lanes.low[l] = static_cast<float>(lowest_ - zeros[l]);
    lanes.high[l] = static_cast<float>(largest_ - zeros[l]);
  }
}

LaneChoice LaneSearch::amax(SearchBatch& batch) const {
  LaneChoice choice;
  for (int l = 0; l < kLanes; ++l) {
    const double factor = batch.factor(l), low = batch.low(l) / factor, high = batch.high(l) / factor;
    amax_choice(format_, static_cast<float>(low), static_cast<float>(high), global_, &choice.scale[l],
                &choice.zero[l]);
  }
  SearchLanes lanes;
  fill(batch, choice.scale, choice.zero, lanes);
  batch.errors(codec_, &lanes, 1, choice.error);
  return choice;
}

LaneChoice LaneSearch::search(SearchBatch& batch) const {
  LaneChoice best = amax(batch);
  const LaneChoice start = best;
  if (format_.scales == DType::kE4M3FN)
    search_levels(batch, best);
  else if (format_.scales == DType::kE8M0)
    search_exponents(batch, best);
  else if (codec_.is_integer)
    search_integers(batch, best);
  else
    search_floats(batch, best);
  for (int l = 0; l < kLanes; ++l)
    if (batch.amax(l) == 0) best.scale[l] = start.scale[l], best.zero[l] = start.zero[l];
  return best;
}

void LaneSearch::offer(SearchBatch& batch, double* scales, const int* zeros, LaneChoice& best) const {
  float rounded[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    rounded[l] = round_scale(format_, scales[l] / batch.factor(l), global_);
    // What cannot be written is tried as the best so far, which changes nothing.
    const bool legal =
        std::isnormal(rounded[l]) && (rounded[l] > 0 || (format_.symmetric && !format_.positive));
    if (!legal) rounded[l] = best.scale[l];
  }
  SearchLanes lanes;
  fill(batch, rounded, zeros, lanes);
  SearchSums sums;
  batch.sums(codec_, &lanes, 1, true, &sums);
  for (int l = 0; l < kLanes; ++l) {
    if (sums.dd[l] > 0) scales[l] = static_cast<double>(lanes.scale[l]) + sums.ed[l] / sums.dd[l];
    if (!(sums.ee[l] < best.error[l])) continue;
    best.error[l] = sums.ee[l];
    best.scale[l] = rounded[l];
    best.zero[l] = zeros[l];
  }
}

void LaneSearch::finish(SearchBatch& batch, Finalists& finalists, LaneChoice& best) const {
  for (int k = 0; k < Finalists::kKept; ++k)
    for (int round = 0; round < 2; ++round) offer(batch, finalists.scale[k], finalists.zero[k], best);
  if (format_.scales == DType::kBF16 || format_.scales == DType::kF16) neighbours(batch, best);
}

// Scales of few bits: the least-squares scale's nearest is not always the best of its neighbours.
void LaneSearch::neighbours(SearchBatch& batch, LaneChoice& best) const {
  const double step = format_.scales == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  const LaneChoice center = best;
  for (const double side : {-1.0, 1.0}) {
    double scales[kLanes];
    for (int l = 0; l < kLanes; ++l)
      scales[l] = static_cast<double>(center.scale[l]) * batch.factor(l) * (1 + side * 1.4 * step);
    offer(batch, scales, center.zero, best);
  }
}

void LaneSearch::search_integers(SearchBatch& batch, LaneChoice& best) const {
  // Eight bits: half of the range in even steps. Fewer: clipping matters more, steps are less.
  std::vector<double> factors;
  if (largest_ - lowest_ > 100)
    for (int i = 0; i <= 40; ++i) factors.push_back(1 - 0.0125 * i);
  else
    for (int i = -2; i < 16; ++i) factors.push_back(std::exp2(-i / 16.0));
  Finalists finalists;
  std::vector<SearchLanes> lanes(factors.size());
  std::vector<SearchSums> sums(factors.size());
  int zeros[kLanes] = {};
  const auto try_range = [&](bool negative) {
    for (int l = 0; l < kLanes; ++l) {
      const double below = zeros[l] - lowest_, above = largest_ - zeros[l];
      const double low = negative ? batch.high(l) : -batch.low(l),
                   high = negative ? -batch.low(l) : batch.high(l);
      double full = std::max(below > 0 ? low / below : 0, above > 0 ? high / above : 0);
      if (full == 0) full = 1;
      for (std::size_t k = 0; k < factors.size(); ++k) {
        lanes[k].scale[l] = static_cast<float>((negative ? -full : full) * factors[k]);
        lanes[k].low[l] = static_cast<float>(-below);
        lanes[k].high[l] = static_cast<float>(above);
      }
    }
    batch.sums(codec_, lanes.data(), static_cast<int>(factors.size()), false, sums.data());
    for (std::size_t k = 0; k < factors.size(); ++k) finalists.add(lanes[k], sums[k], zeros);
  };
  if (format_.symmetric) {
    try_range(false);
    if (!format_.positive) try_range(true);
  } else {
    for (const int offset : {-4, -2, -1, 0, 1, 2, 4}) {
      for (int l = 0; l < kLanes; ++l)
        zeros[l] = static_cast<int>(std::clamp<double>(best.zero[l] + offset, lowest_, largest_));
      try_range(false);
    }
  }
  finish(batch, finalists, best);
}

void LaneSearch::search_floats(SearchBatch& batch, LaneChoice& best) const {
  std::vector<SearchLanes> lanes(40);
  std::vector<SearchSums> sums(40);
  const int zeros[kLanes] = {};
  for (int i = 0; i < 40; ++i) {
    float scales[kLanes];
    for (int l = 0; l < kLanes; ++l)
      scales[l] = best.scale[l] * static_cast<float>(std::exp2((i - 8) / 32.0));
    fill(batch, scales, zeros, lanes[static_cast<std::size_t>(i)]);
  }
  batch.sums(codec_, lanes.data(), 40, false, sums.data());
  Finalists finalists;
  for (std::size_t k = 0; k < 40; ++k) finalists.add(lanes[k], sums[k], nullptr);
  finish(batch, finalists, best);
}

// Steps down the scales that could still be better: what they clip is already an error, and no smaller scale
// clips less. scale_of(lane, step) is 0 at the end.
template <class Next>
void LaneSearch::descend(SearchBatch& batch, LaneChoice& best, const Next& scale_of) const {
  const int zeros[kLanes] = {};
  for (int step = 0;; ++step) {
    float scales[kLanes], edge[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      scales[l] = scale_of(l, step);
      edge[l] = scales[l] * static_cast<float>(batch.factor(l) * largest_);
    }
    double clipped[kLanes];
    batch.clipped(edge, clipped);
    bool any = false;
    for (int l = 0; l < kLanes; ++l) {
      const bool open = scales[l] != 0 && clipped[l] < best.error[l];
      any |= open;
      if (!open) scales[l] = best.scale[l];
    }
    if (!any) return;
    SearchLanes lanes;
    fill(batch, scales, zeros, lanes);
    double errors[kLanes];
    batch.errors(codec_, &lanes, 1, errors);
    for (int l = 0; l < kLanes; ++l)
      if (errors[l] < best.error[l]) best.error[l] = errors[l], best.scale[l] = scales[l];
  }
}

void LaneSearch::search_levels(SearchBatch& batch, LaneChoice& best) const {
  constexpr int kBelow = 3, kAbove = 8, kCodes = kBelow + kAbove + 1;
  const auto scale_of = [&](int code) { return decode_e4m3(static_cast<std::uint8_t>(code)) * global_; };
  const auto try_codes = [&](const int* first, int count) {
    SearchLanes lanes[kCodes];
    double errors[kCodes * kLanes];
    const int zeros[kLanes] = {};
    for (int k = 0; k < count; ++k) {
      float scales[kLanes];
      for (int l = 0; l < kLanes; ++l) scales[l] = scale_of(std::clamp(first[l] + k, 1, 126));
      fill(batch, scales, zeros, lanes[k]);
    }
    batch.errors(codec_, lanes, count, errors);
    for (int k = 0; k < count; ++k)
      for (int l = 0; l < kLanes; ++l) {
        if (!(errors[k * kLanes + l] < best.error[l])) continue;
        best.error[l] = errors[k * kLanes + l];
        best.scale[l] = scale_of(std::clamp(first[l] + k, 1, 126));
      }
  };
  int base[kLanes], first[kLanes];
  bool subnormal = false;
  for (int l = 0; l < kLanes; ++l) {
    base[l] = encode_e4m3(best.scale[l] / global_);
    first[l] = base[l] - kBelow;
    subnormal |= base[l] < 8;
  }
  try_codes(first, largest_ < 100 || !codec_.is_integer ? kCodes - 1 : kCodes);
  if (subnormal) {
    for (int l = 0; l < kLanes; ++l) first[l] = base[l] < 8 ? 8 : base[l];
    try_codes(first, 8);
  }
  descend(batch, best, [&](int l, int step) {
    const int code = base[l] - kBelow - 1 - step;
    return code >= 1 ? scale_of(code) : 0.0f;
  });
}

void LaneSearch::search_exponents(SearchBatch& batch, LaneChoice& best) const {
  const LaneChoice start = best;
  const int zeros[kLanes] = {};
  float scales[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    scales[l] = start.scale[l] * 2;
    if (!(scales[l] <= 0x1p127f)) scales[l] = start.scale[l];
  }
  SearchLanes lanes;
  fill(batch, scales, zeros, lanes);
  double errors[kLanes];
  batch.errors(codec_, &lanes, 1, errors);
  for (int l = 0; l < kLanes; ++l)
    if (errors[l] < best.error[l]) best.error[l] = errors[l], best.scale[l] = scales[l];
  descend(batch, best, [&](int l, int step) {
    const float scale = std::ldexp(start.scale[l], -1 - step);
    return std::isnormal(scale) ? scale : 0.0f;
  });
}

}  // namespace pare::quant
