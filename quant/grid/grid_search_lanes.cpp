#include "quant/grid/grid_search_lanes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"

// No function of the C library decides anything here: their last bits differ between machines.
namespace pare::quant {
namespace {

constexpr int kLanes = kSearchLanes;
constexpr int kMostAtOnce = 48;
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The best step of a uniform quantizer of 2^bits levels for a Gaussian of variance 1 (Max 1960).
double uniform_step(double lowest, double largest) {
  static constexpr double kSteps[] = {1.596, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308};
  const int bits = std::bit_width(static_cast<unsigned>(largest - lowest));
  return kSteps[std::clamp(bits, 1, 8) - 1];
}

SearchCodec codec_of(const FormatInfo& info) {
  SearchCodec codec;
  codec.is_integer = info.is_integer();
  codec.smallest_normal = static_cast<float>(info.smallest_normal);
  codec.magic = std::ldexp(1.5f, 23 - info.mantissa_bits);
  return codec;
}

// Grids of so many parts: the error of few weights jumps about from scale to scale, and more of them find
// more of its dips.
int dense(const SearchBatch& batch) { return batch.group(0).n <= 1024 ? 4 : 1; }

double root(double x, int times) {
  for (; times > 0; --times) x = std::sqrt(x);
  return x;
}

}  // namespace

LaneSearch::Trial::Trial(SearchBatch& b, const LaneChoice& start) : batch(b), best(start) {
  for (int l = 0; l < kLanes; ++l) {
    const double scale = static_cast<double>(start.scale[l]) * b.factor()[l];
    for (int k = 0; k < SearchKept::kCount; ++k) {
      kept.score[k][l] = kInfinity;
      kept.scale[k][l] = scale;
      kept.zero[k][l] = start.zero[l];
    }
    kept.error[l] = kInfinity;
    kept.error_scale[l] = scale;
    kept.error_zero[l] = start.zero[l];
  }
}

LaneSearch::LaneSearch(const GridFormat& format, float global)
    : format_(format),
      codec_(codec_of(format_info(format.codes))),
      global_(global),
      lowest_(format.lowest_code()),
      largest_(format.largest_code()),
      widest_(format.symmetric ? std::max(-lowest_, largest_) : largest_ - lowest_),
      limit_(static_cast<float>(kLargestFloat / widest_ * (1 - 0x1p-10))),
      uniform_step_(uniform_step(lowest_, largest_)) {}

void LaneSearch::fill(const SearchBatch& batch, const float* scales, const double* zeros,
                      SearchLanes& lanes) const {
  const double* factor = batch.factor();
  for (int l = 0; l < kLanes; ++l) {
    lanes.scale[l] = scales[l] * static_cast<float>(factor[l]);
    lanes.low[l] = static_cast<float>(lowest_ - zeros[l]);
    lanes.high[l] = static_cast<float>(largest_ - zeros[l]);
  }
}

void LaneSearch::round(const double* scales, const double* back, const float* instead, float* rounded) const {
  const SearchRound type = format_.scales == DType::kBF16  ? SearchRound::kBF16
                           : format_.scales == DType::kF16 ? SearchRound::kF16
                                                           : SearchRound::kF32;
  const bool positive = format_.positive || !format_.symmetric;
  PARE_SIMD_PICK(search_round)(type, positive, limit_, scales, back, instead, rounded);
}

LaneChoice LaneSearch::amax(const float* low, const float* high) const {
  LaneChoice choice;
  double scales[kLanes], ones[kLanes];
  float largest[kLanes], instead[kLanes];
  // Beside the largest float, a scale rounded up would give infinity; 1/256 less, and bfloat16 does not.
  const double most = static_cast<double>(limit_) * (1 - 0x1p-8);
  for (int l = 0; l < kLanes; ++l) largest[l] = -low[l] > high[l] ? -low[l] : high[l];
  for (int l = 0; format_.scales != DType::kE4M3FN && l < kLanes; ++l) {
    const double range = static_cast<double>(high[l]) - static_cast<double>(low[l]);
    const double scale =
        format_.symmetric ? static_cast<double>(largest[l]) / largest_ : range / (largest_ - lowest_);
    scales[l] = scale < most ? scale : most;
    instead[l] = 1;
    ones[l] = 1;
  }
  if (format_.scales == DType::kE4M3FN) {
    PARE_SIMD_PICK(search_amax_levels)(largest, largest_, most, global_, choice.scale);
  } else if (format_.scales == DType::kE8M0) {
    const int top = static_cast<int>(std::bit_cast<std::uint32_t>(static_cast<float>(largest_)) >> 23);
    for (int l = 0; l < kLanes; ++l) {
      const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest[l]) >> 23) - top + 127;
      choice.scale[l] = largest[l] == 0 || exponent < 1 ? 1 : std::bit_cast<float>(exponent << 23);
    }
  } else {
    round(scales, ones, instead, choice.scale);
  }
  for (int l = 0; !format_.symmetric && l < kLanes; ++l) {
    const double zero = lowest_ - static_cast<double>(low[l] / choice.scale[l]);
    choice.zero[l] = std::clamp(std::nearbyint(zero), lowest_, largest_);
  }
  return choice;
}

LaneChoice LaneSearch::search(SearchBatch& batch) const {
  const LaneChoice start = amax(batch.lowest(), batch.highest());
  Trial trial(batch, start);
  SearchLanes lanes;
  fill(batch, start.scale, start.zero, lanes);
  batch.errors(codec_, &lanes, 1, trial.best.error);
  if (format_.scales == DType::kE4M3FN)
    search_levels(trial);
  else if (format_.scales == DType::kE8M0)
    search_exponents(trial);
  else if (!codec_.is_integer)
    search_floats(trial);
  else if (format_.symmetric)
    search_symmetric(trial);
  else
    search_asymmetric(trial);
  for (int l = 0; l < kLanes; ++l) {
    if (batch.low()[l] != 0 || batch.high()[l] != 0) continue;
    trial.best.scale[l] = start.scale[l];
    trial.best.zero[l] = start.zero[l];
  }
  return trial.best;
}

void LaneSearch::try_lanes(Trial& trial, SearchLanes* lanes, int count, const double* zeros) const {
  PARE_ASSERT(count <= kMostAtOnce);
  SearchSums sums[kMostAtOnce];
  for (int k = 0; k < count; ++k)
    for (int l = 0; l < kLanes; ++l) {
      lanes[k].low[l] = static_cast<float>(lowest_ - zeros[l]);
      lanes[k].high[l] = static_cast<float>(largest_ - zeros[l]);
    }
  const SearchPass pass = careful() ? SearchPass::kQuotient : SearchPass::kProjection;
  trial.batch.sums(codec_, lanes, count, pass, sums);
  PARE_SIMD_PICK(search_keep)(lanes, sums, count, pass, zeros, &trial.kept);
}

void LaneSearch::try_powers(Trial& trial, const double* first, const double* ratio, int count,
                            const double* zeros) const {
  SearchLanes lanes[kMostAtOnce];
  double scales[kLanes];
  std::copy_n(first, kLanes, scales);
  for (int k = 0; k < count; ++k)
    for (int l = 0; l < kLanes; ++l) {
      lanes[k].scale[l] = static_cast<float>(scales[l]);
      scales[l] *= ratio[l];
    }
  try_lanes(trial, lanes, count, zeros);
}

void LaneSearch::try_even(Trial& trial, const double* first, const double* step, int count,
                          const double* zeros) const {
  SearchLanes lanes[kMostAtOnce];
  for (int k = 0; k < count; ++k)
    for (int l = 0; l < kLanes; ++l) lanes[k].scale[l] = static_cast<float>(first[l] + k * step[l]);
  try_lanes(trial, lanes, count, zeros);
}

void LaneSearch::try_around(Trial& trial, const double* ratio) const {
  double first[kLanes], fine[kLanes], zeros[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    fine[l] = root(ratio[l], 2);
    first[l] = trial.kept.scale[0][l] / (fine[l] * fine[l]);
    zeros[l] = trial.kept.zero[0][l];
  }
  try_powers(trial, first, fine, 5, zeros);
}

void LaneSearch::offer(Trial& trial, double* scales, const double* zeros) const {
  // What cannot be written is tried as the best so far, which changes nothing.
  LaneChoice& best = trial.best;
  float rounded[kLanes];
  round(scales, trial.batch.back(), best.scale, rounded);
  SearchLanes lanes;
  fill(trial.batch, rounded, zeros, lanes);
  SearchSums sums;
  trial.batch.sums(codec_, &lanes, 1, SearchPass::kExact, &sums);
  for (int l = 0; l < kLanes; ++l) {
    const double shift = sums.dd[l] > 0 ? sums.ed[l] / sums.dd[l] : 0;
    scales[l] = static_cast<double>(lanes.scale[l]) + shift;
    const bool better = sums.ee[l] < best.error[l];
    best.error[l] = better ? sums.ee[l] : best.error[l];
    best.scale[l] = better ? rounded[l] : best.scale[l];
    best.zero[l] = better ? zeros[l] : best.zero[l];
  }
}

void LaneSearch::finish(Trial& trial) const {
  SearchKept& kept = trial.kept;
  for (int round = 0; round < 2; ++round) offer(trial, kept.scale[0], kept.zero[0]);
  if (careful()) {
    for (int round = 0; round < 3; ++round) offer(trial, kept.scale[1], kept.zero[1]);
    for (int round = 0; round < 3; ++round) offer(trial, kept.error_scale, kept.error_zero);
    double scales[kLanes], zeros[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      scales[l] = static_cast<double>(trial.best.scale[l]) * trial.batch.factor()[l];
      zeros[l] = trial.best.zero[l];
    }
    for (int round = 0; round < 3; ++round) offer(trial, scales, zeros);
  }
  if (format_.scales != DType::kBF16 && format_.scales != DType::kF16) return;
  // Scales of few bits: the nearest to the least-squares scale need not be the best of its neighbours.
  const double step = format_.scales == DType::kBF16 ? 1.4 * 0x1p-8 : 1.4 * 0x1p-11;
  const LaneChoice center = trial.best;
  for (const double side : {1 - step, 1 + step}) {
    double scales[kLanes];
    for (int l = 0; l < kLanes; ++l)
      scales[l] = static_cast<double>(center.scale[l]) * trial.batch.factor()[l] * side;
    offer(trial, scales, center.zero);
  }
}

void LaneSearch::finest(Trial& trial, double* scales) const {
  double power[kLanes], sum[kLanes], weight[kLanes];
  trial.batch.moments(power, sum, weight);
  for (int l = 0; l < kLanes; ++l) {
    const double count = weight[l] > 0 ? weight[l] : 1, mean = format_.symmetric ? 0 : sum[l] / count;
    const double variance = power[l] / count - mean * mean;
    scales[l] = 0.8 * uniform_step_ * std::sqrt(variance > 0 ? variance : 0);
  }
}

void LaneSearch::full(const SearchBatch& batch, const bool* negative, const double* zeros,
                      double* scales) const {
  for (int l = 0; l < kLanes; ++l) {
    const double a = -batch.low()[l], b = batch.high()[l];
    const double low = negative[l] ? b : a, high = negative[l] ? a : b;
    const double below = zeros[l] - lowest_, above = largest_ - zeros[l];
    const double x = below > 0 ? low / below : 0, y = above > 0 ? high / above : 0;
    const double scale = x > y ? x : y > 0 ? y : 1;
    scales[l] = negative[l] ? -scale : scale;
  }
}

namespace {

// How far apart 1 + 2^halvings powers from `first` down to `last` lie. At least a seventh of `first` lies
// between them: the spread of the weights says what is worth trying, not what is best.
double spacing(double first, double last, int halvings) {
  return root(std::clamp(last / std::fabs(first), 0.02, 0.85), halvings);
}

}  // namespace

void LaneSearch::search_symmetric(Trial& trial) const {
  const double zeros[kLanes] = {};
  double last[kLanes], first[kLanes], ratio[kLanes], step[kLanes];
  bool negative[kLanes] = {};
  finest(trial, last);
  const bool eight_bits = largest_ > 100;
  for (const bool turned : {false, true}) {
    if (turned && format_.positive) continue;
    // First the sign that puts the larger end on the side with one code more.
    for (int l = 0; l < kLanes && !format_.positive; ++l)
      negative[l] = (-trial.batch.low()[l] < trial.batch.high()[l]) != turned;
    full(trial.batch, negative, zeros, first);
    if (eight_bits) {
      // Half of the range in even steps.
      for (int l = 0; l < kLanes; ++l) step[l] = -0.0125 * first[l];
      for (int part = 0; part < dense(trial.batch); ++part) {
        double begin[kLanes];
        for (int l = 0; l < kLanes; ++l)
          begin[l] = first[l] + step[l] * (static_cast<double>(part) / dense(trial.batch) - 1);
        try_even(trial, begin, step, turned ? 14 : 42, zeros);
      }
    }
    const int halvings = turned ? 2 : 3;
    bool further = !eight_bits;
    for (int l = 0; l < kLanes; ++l) {
      first[l] *= eight_bits ? 0.5 : 1.09;
      further |= last[l] < std::fabs(first[l]);
      step[l] = spacing(first[l], last[l], halvings);
      if (!turned) ratio[l] = step[l];
    }
    if (further) try_powers(trial, first, step, (1 << halvings) + 1, zeros);
  }
  if (eight_bits) std::fill_n(ratio, kLanes, 0.99);
  try_around(trial, ratio);
  finish(trial);
}

void LaneSearch::search_asymmetric(Trial& trial) const {
  // A grid of scales with the zero point of the range, then zero points further from it and nearer again,
  // with the scales around the best so far.
  const bool few = largest_ - lowest_ < 16, positive[kLanes] = {};
  const int halvings = few ? 2 : 5;
  double last[kLanes], first[kLanes], ratio[kLanes], zeros[kLanes], center[kLanes];
  std::copy_n(trial.best.zero, kLanes, zeros);
  finest(trial, last);
  full(trial.batch, positive, zeros, first);
  for (int l = 0; l < kLanes; ++l) {
    first[l] *= few ? 1.09 : 1.01;
    ratio[l] = spacing(first[l], last[l], halvings);
  }
  try_powers(trial, first, ratio, (1 << halvings) + 1, zeros);
  for (const int offset : {12, 6, 2, 1}) {
    if (few && offset > 2) continue;
    for (int l = 0; l < kLanes; ++l) {
      center[l] = trial.kept.zero[0][l];
      first[l] = trial.kept.scale[0][l] / ratio[l];
    }
    for (const int side : {-offset, offset}) {
      for (int l = 0; l < kLanes; ++l) zeros[l] = std::clamp(center[l] + side, lowest_, largest_);
      try_powers(trial, first, ratio, 3, zeros);
    }
  }
  try_around(trial, ratio);
  finish(trial);
}

// The step of a float format grows with the value, so what matters is where in a binade the values fall: one
// octave holds every position, a quarter more below is for clipping.
void LaneSearch::search_floats(Trial& trial) const {
  constexpr double kThirtySecond = 1.0218971486541166, kTwelfth = 1.0594630943592953;  // of an octave
  constexpr double kHundredTwentyEighth = 1.0054299011128027;
  constexpr double kQuarterDown = 0.84089641525371454;
  const bool coarse = format_.codes == DType::kE2M1;
  const double zeros[kLanes] = {};
  double first[kLanes], ratio[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    first[l] = trial.kept.scale[0][l] * kQuarterDown;
    ratio[l] = coarse ? kTwelfth : kThirtySecond;
  }
  for (int part = 0; part < (coarse ? 1 : dense(trial.batch)); ++part) {
    try_powers(trial, first, ratio, coarse ? 15 : 40, zeros);
    for (int l = 0; l < kLanes; ++l) first[l] *= kHundredTwentyEighth;
  }
  if (!coarse) try_around(trial, ratio);
  finish(trial);
}

}  // namespace pare::quant
