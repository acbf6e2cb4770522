// The formats whose scales are so few that every one which can be best is tried: E4M3 codes times a global
// scale, and powers of two.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/numeric/e4m3.h"
#include "quant/grid/grid_search_lanes.h"

namespace pare::quant {
namespace {

constexpr int kLanes = kSearchLanes;

}  // namespace

float LaneSearch::level(int code) const { return decode_e4m3(static_cast<std::uint8_t>(code)) * global_; }

LaneChoice LaneSearch::four_over_six(SearchBatch& batch) const {
  Trial trial(batch, amax(batch.lowest(), batch.highest()));
  std::fill_n(trial.best.error, kLanes, std::numeric_limits<double>::infinity());
  float scales[kLanes];
  for (const double code : {6.0, 4.0}) {
    for (int l = 0; l < kLanes; ++l) {
      const double largest = std::max(-batch.low()[l], batch.high()[l]) * batch.back()[l];
      scales[l] = largest == 0 ? global_ : round_scale(format_, largest / code, global_);
    }
    take(trial, scales);
  }
  return trial.best;
}

void LaneSearch::take(Trial& trial, const float* candidates) const {
  const double zeros[kLanes] = {};
  float scales[kLanes];
  for (int l = 0; l < kLanes; ++l) scales[l] = candidates[l] <= limit_ ? candidates[l] : trial.best.scale[l];
  SearchLanes lanes;
  double errors[kLanes];
  fill(trial.batch, scales, zeros, lanes);
  trial.batch.errors(codec_, &lanes, 1, errors);
  for (int l = 0; l < kLanes; ++l) {
    const bool better = errors[l] < trial.best.error[l];
    trial.best.error[l] = better ? errors[l] : trial.best.error[l];
    trial.best.scale[l] = better ? scales[l] : trial.best.scale[l];
  }
}

// Steps down the scales that could still be better: what they clip is already an error, and no smaller scale
// clips less. scale_of(lane, step) is 0 at the end.
template <class Next>
void LaneSearch::descend(Trial& trial, const Next& scale_of) const {
  for (int step = 0;; ++step) {
    float scales[kLanes], edge[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      scales[l] = scale_of(l, step);
      edge[l] = static_cast<float>(static_cast<double>(scales[l]) * trial.batch.factor()[l] * widest_);
    }
    double clipped[kLanes];
    trial.batch.clipped(edge, clipped);
    bool any = false;
    for (int l = 0; l < kLanes; ++l) {
      const bool open = scales[l] != 0 && clipped[l] < trial.best.error[l];
      any |= open;
      if (!open) scales[l] = trial.best.scale[l];
    }
    if (!any) return;
    take(trial, scales);
  }
}

// Which E4M3 codes can be best (docs/accuracy.md has the proof):
//   above   a scale of twice another has no step that the other lacks, where the other clips nothing. Codes
//           that are 8 apart are an octave apart, so 8 codes from that of amax on are enough; below code 8,
//           where the scales are subnormal, all up to 15
//   below   descend()
void LaneSearch::search_levels(Trial& trial) const {
  const bool gram = trial.batch.has_gram();
  const int below = gram ? 4 : 3;
  int base[kLanes];
  bool subnormal = false;
  for (int l = 0; l < kLanes; ++l) {
    base[l] = encode_e4m3(trial.best.scale[l] / global_);
    subnormal |= base[l] < 8;
  }
  // With many codes, a scale rounded down by 1/16 may clip what twice it holds: one code more.
  const int above = gram ? 9 : careful() ? 8 : 7;
  float scales[kLanes];
  for (int k = -below; k <= above; ++k) {
    if (k == 0) continue;  // amax
    for (int l = 0; l < kLanes; ++l) scales[l] = level(std::clamp(base[l] + k, 1, 126));
    take(trial, scales);
  }
  for (int k = 8; subnormal && k < 16; ++k) {
    for (int l = 0; l < kLanes; ++l) scales[l] = base[l] < 8 ? level(k) : trial.best.scale[l];
    take(trial, scales);
  }
  if (gram) return;
  descend(trial, [&](int l, int step) {
    const int code = base[l] - below - 1 - step;
    return code >= 1 ? level(code) : 0.0f;
  });
}

// The same with powers of two: amax's own rounds down, so only the next above is of use.
void LaneSearch::search_exponents(Trial& trial) const {
  const LaneChoice start = trial.best;
  float scales[kLanes];
  for (int l = 0; l < kLanes; ++l)
    scales[l] = start.scale[l] < 0x1p127f ? start.scale[l] * 2 : start.scale[l];
  take(trial, scales);
  if (trial.batch.has_gram()) {
    for (const float factor : {0.5f, 0.25f}) {
      for (int l = 0; l < kLanes; ++l) scales[l] = std::max(start.scale[l] * factor, 0x1p-126f);
      take(trial, scales);
    }
    return;
  }
  descend(trial, [&](int l, int step) {
    const auto bits =
        static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(start.scale[l]) >> 23) - 1 - step;
    return bits >= 1 ? std::bit_cast<float>(bits << 23) : 0.0f;
  });
}

}  // namespace pare::quant
