#include "calib/ranges.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "calib/density.h"
#include "calib/entropy.h"
#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare {

namespace {

constexpr int kSteps = 256;           // the finest candidates: an octave in so many
constexpr int kCoarse = kSteps / 16;  // the first round's
constexpr int kOctaves = 12;          // down to the width of one bin
constexpr int kRounds = 8;            // of moving one end, then the other

// 2^(-k/256), by square roots and products only, which IEEE fixes to the last bit.
double shrink(int k) {
  static const std::vector<double> table = [] {
    double root = 0.5;
    for (int n = kSteps; n > 1; n /= 2) root = std::sqrt(root);
    std::vector<double> powers(kSteps, 1.0);
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * root;
    return powers;
  }();
  const int octave = k >= 0 ? k / kSteps : -((-k + kSteps - 1) / kSteps);
  return std::ldexp(table[static_cast<std::size_t>(k - octave * kSteps)], -octave);
}

// Everything that the methods share: the density and how a range becomes a scale and codes.
class Chooser {
 public:
  Chooser(const TensorStats& stats, const RangeTarget& target)
      : stats_(stats), target_(target), format_(format_info(target.format)), density_(check(stats)) {
    symmetric_ = target.symmetric || !format_.is_integer();
    if (target.two_level && format_.dtype != DType::kE2M1)
      throw make_error(ErrorCode::kUsage, "two-level scales are for {}, not {}", pare::name(DType::kE2M1),
                       format_.name)
          .hint("take format nvfp4 for activations with two levels of scales");
    if (symmetric_)
      grid_ = symmetric_grid(target);
    else if (format_.bits > 16)
      throw make_error(ErrorCode::kUnsupported, "no ranges are chosen for {}", format_.name)
          .hint("`pare stats show --help` lists the formats that have ranges");
  }

  bool symmetric() const { return symmetric_; }
  const Density& density() const { return density_; }
  float amax() const { return stats_.amax(); }
  const TensorStats& stats() const { return stats_; }
  bool is_float() const { return !format_.is_integer(); }
  bool two_level() const { return target_.two_level; }
  // Steps of the codes on one side of zero, however the zero point divides them.
  int levels() const { return !is_float() ? 1 << (format_.bits - 1) : format_.bits == 8 ? 128 : 8; }
  const CodeGrid& grid() const { return grid_; }

  double error(double low, double high) const {
    if (symmetric_) {
      const double amax = std::max(-low, high);
      if (target_.two_level) return block_error(amax);
      return amax > 0 ? density_.mse(grid_, amax / symmetric_largest(format_.dtype)) : mean_square();
    }
    if (!(high > low)) return mean_square();
    const double scale = (high - low) / static_cast<double>((1 << format_.bits) - 1);
    const auto zero_point = static_cast<std::int64_t>(std::nearbyint(-low / scale));
    return density_.mse(asymmetric_grid(target_, zero_point), scale);
  }

  RangeChoice choice(const char* method, double low, double high, std::int64_t candidates = 1) const {
    RangeChoice c;
    c.method = method;
    c.low = static_cast<float>(symmetric_ ? -std::max(-low, high) : std::min(low, 0.0));
    c.high = static_cast<float>(symmetric_ ? std::max(-low, high) : std::max(high, 0.0));
    c.low += 0.0f;  // -0 is 0
    c.mse = error(c.low, c.high);
    c.clipped = density_.clipped(c.low, c.high);
    c.candidates = candidates;
    return c;
  }

 private:
  static const TensorStats& check(const TensorStats& stats) {
    if (!stats.seen())
      throw make_error(ErrorCode::kUsage, "the tensor '{}' was never seen during calibration", stats.name)
          .hint(
              "it may stand in a branch that no sample took; exclude it, or calibrate with data that reaches "
              "it");
    if (stats.finite() == 0)
      throw make_error(ErrorCode::kUsage, "the tensor '{}' had no finite value: {} NaN, {} infinities",
                       stats.name, stats.nan, stats.positive_inf + stats.negative_inf)
          .hint("the model or the preprocessing is at fault; look at the first layer that gives NaN");
    return stats;
  }

  // Two levels: block scales follow the data, so rounding costs the same for any range that clips nothing,
  // and what a histogram shows of the range is the clipping.
  double block_error(double amax) const {
    if (!(amax > 0)) return mean_square();
    const double limit = amax / density_.width();
    double error = 0;
    for (const Side* side : {&density_.positive(), &density_.negative()}) {
      const Side::Moments in = side->below(limit);
      error += std::max(0.0, (side->square() - in.square) - 2 * limit * (side->sum() - in.sum) +
                                 limit * limit * (side->count() - in.count));
    }
    return error * density_.width() * density_.width() / density_.finite();
  }

  double mean_square() const {
    return (density_.positive().square() + density_.negative().square()) * density_.width() *
           density_.width() / density_.finite();
  }

  const TensorStats& stats_;
  RangeTarget target_;
  const FormatInfo& format_;
  Density density_;
  CodeGrid grid_;
  bool symmetric_ = true;
};

double lowest(const Chooser& c) { return std::min(0.0, static_cast<double>(c.stats().min)); }
double highest(const Chooser& c) { return std::max(0.0, static_cast<double>(c.stats().max)); }

// Magnitudes below which `count` of them lie; zeros are the first. In values.
double magnitude_quantile(const Chooser& c, double count) {
  const Side &a = c.density().positive(), &b = c.density().negative();
  double before = static_cast<double>(c.stats().zeros);
  if (count <= before) return 0;
  const int used = std::max(a.used(), b.used());
  for (int bin = 0; bin < used; ++bin) {
    const double to = std::min(bin + 1.0, std::max(a.extreme(), b.extreme()));
    const double after = static_cast<double>(c.stats().zeros) + a.below(to).count + b.below(to).count;
    if (after >= count) return (bin + (to - bin) * (count - before) / (after - before)) * c.density().width();
    before = after;
  }
  return c.amax();
}

RangeChoice minmax(const Chooser& c) { return c.choice("minmax", lowest(c), highest(c)); }

RangeChoice percentile(const Chooser& c, double percent) {
  if (!(percent > 0) || percent > 100)
    throw make_error(ErrorCode::kUsage, "percentile({}) is not in (0, 100]", percent)
        .hint("write percentile(99.99)");
  const std::string name = fmt::format("percentile({})", percent);
  const double finite = c.density().finite(), cut = finite * (100 - percent) / 100;
  double low = lowest(c), high = highest(c);
  if (c.symmetric()) {
    const double amax = magnitude_quantile(c, finite - cut);
    if (amax > 0) low = -(high = amax);
  } else {
    // What is above `high` is half of the cut, if that many values are positive at all; likewise below.
    const Side &above = c.density().positive(), &below = c.density().negative();
    const double keep_above = above.count() - cut / 2, keep_below = below.count() - cut / 2;
    const double cut_high = keep_above > 0 ? above.quantile(keep_above) * c.density().width() : 0;
    const double cut_low = keep_below > 0 ? -below.quantile(keep_below) * c.density().width() : 0;
    if (cut_high - cut_low > 0) low = std::max(low, cut_low), high = std::min(high, cut_high);
  }
  return c.choice(name.c_str(), low, high);
}

RangeChoice entropy(const Chooser& c) {
  const int levels = c.levels();
  if (c.two_level() || levels > kMaxLevels) {  // nothing to choose: more codes than bins, or scales by block
    RangeChoice all = minmax(c);
    all.method = "entropy";
    return all;
  }
  const Side &a = c.density().positive(), &b = c.density().negative();
  const int used = std::max(a.used(), b.used());
  std::vector<double> counts(static_cast<std::size_t>(used));
  for (int bin = 0; bin < used; ++bin)
    counts[static_cast<std::size_t>(bin)] =
        (bin < a.used() ? a.bin(bin) : 0) + (bin < b.used() ? b.bin(bin) : 0);
  const EntropyResult found = search_entropy(counts, levels);
  const double limit = std::min(static_cast<double>(c.amax()), found.bins * c.density().width());
  if (c.symmetric()) return c.choice("entropy", -limit, limit, found.candidates);
  return c.choice("entropy", std::max(lowest(c), -limit), std::min(highest(c), limit), found.candidates);
}

// The best of low_at(k), high_at(k) over k = first, first + step, ... last; ties go to the first, the widest.
struct Best {
  double error, low, high;
  int k = 0;
  std::int64_t candidates = 0;
};

template <typename At>
void scan(const Chooser& c, Best& best, int first, int last, int step, const At& at) {
  for (int k = first; k <= last; k += step) {
    double low, high;
    at(k, low, high);
    const double error = c.error(low, high);
    ++best.candidates;
    if (error < best.error) {
      best.error = error;
      best.low = low;
      best.high = high;
      best.k = k;
    }
  }
}

RangeChoice least_error(const Chooser& c) {
  const double low = lowest(c), high = highest(c), amax = c.amax();
  if (amax == 0) return c.choice("mse", 0, 0);
  if (c.two_level()) return c.choice("mse", -amax, amax);
  // A float grid repeats with every octave: up to twice the extreme there is every position of it without any
  // clipping. Integers lose by a wider range.
  const int first = c.is_float() ? -kSteps + 1 : 0;
  constexpr int kLast = kOctaves * kSteps;
  const auto both = [&](int k, double& l, double& h) {
    // Candidates are float32, as scales come from what is returned.
    constexpr double kLargest = std::numeric_limits<float>::max();
    l = c.symmetric() ? -static_cast<float>(std::min(kLargest, amax * shrink(k)))
                      : static_cast<float>(low * shrink(k));
    h = static_cast<float>(std::min(kLargest, (c.symmetric() ? amax : high) * shrink(k)));
  };
  Best best{c.error(low, high), c.symmetric() ? -amax : low, c.symmetric() ? amax : high, 0, 1};
  if (c.is_float()) scan(c, best, -kSteps + kCoarse, -kCoarse, kCoarse, both);
  scan(c, best, kCoarse, kLast, kCoarse, both);
  const int middle = best.k;
  scan(c, best, std::max(first, middle - kCoarse + 1), std::min(kLast, middle + kCoarse - 1), 1, both);
  if (!c.symmetric() && low < 0 && high > 0) {
    int low_k = best.k, high_k = best.k;
    for (int round = 0; round < kRounds; ++round) {
      const double before = best.error;
      for (const bool upper : {true, false}) {
        int& mine = upper ? high_k : low_k;
        const double other = upper ? best.low : best.high;
        const auto one = [&](int k, double& l, double& h) {
          l = upper ? other : static_cast<float>(low * shrink(k));
          h = upper ? static_cast<float>(high * shrink(k)) : other;
        };
        best.k = mine;
        scan(c, best, std::max(0, mine - kSteps), std::min(kLast, mine + kSteps), kCoarse, one);
        const int near = best.k;
        scan(c, best, std::max(0, near - kCoarse + 1), std::min(kLast, near + kCoarse - 1), 1, one);
        mine = best.k;
      }
      if (!(best.error < before)) break;
    }
  }
  return c.choice("mse", best.low, best.high, best.candidates);
}

RangeChoice distribution(const Chooser& c) {
  if (!c.is_float())
    throw make_error(ErrorCode::kUsage, "the method 'distribution' is for float formats")
        .hint("use mse or entropy");
  const Side &a = c.density().positive(), &b = c.density().negative();
  const double w = c.density().width(), n = c.density().finite();
  const double mean = (a.sum() - b.sum()) * w / n, square = (a.square() + b.square()) * w * w / n;
  const double deviation = std::sqrt(std::max(0.0, square - mean * mean));
  double code_square = 0;
  const CodeGrid& grid = c.grid();
  for (const double code : grid.positive) code_square += code * code;
  for (const double code : grid.negative) code_square += code * code;
  const double codes =
      std::sqrt(code_square / static_cast<double>(grid.positive.size() + grid.negative.size()));
  const double amax = deviation > 0 ? deviation / codes * grid.positive.back() : c.amax();
  return c.choice("distribution", -amax, amax);
}

}  // namespace

double symmetric_largest(DType format) {
  const FormatInfo& info = format_info(format);
  return info.is_integer() ? std::ldexp(1.0, info.bits - 1) - 1 : info.largest;
}

RangeChoice range_minmax(const TensorStats& stats, const RangeTarget& target) {
  return minmax({stats, target});
}
RangeChoice range_percentile(const TensorStats& stats, const RangeTarget& target, double percent) {
  return percentile({stats, target}, percent);
}
RangeChoice range_entropy(const TensorStats& stats, const RangeTarget& target) {
  return entropy({stats, target});
}
RangeChoice range_mse(const TensorStats& stats, const RangeTarget& target) {
  return least_error({stats, target});
}
RangeChoice range_distribution(const TensorStats& stats, const RangeTarget& target) {
  return distribution({stats, target});
}
RangeChoice range_given(const TensorStats& stats, const RangeTarget& target, float low, float high) {
  return Chooser(stats, target).choice("given", low, high);
}

RangeChoice range_by_method(const TensorStats& stats, const RangeTarget& target, const std::string& method) {
  if (method == "minmax") return range_minmax(stats, target);
  if (method == "entropy") return range_entropy(stats, target);
  if (method == "mse") return range_mse(stats, target);
  if (method == "distribution") return range_distribution(stats, target);
  if (method == "percentile") return range_percentile(stats, target, 99.99);
  if (method.starts_with("percentile(") && method.ends_with(")")) {
    const std::string number = method.substr(11, method.size() - 12);
    double percent = 0;
    const auto result = std::from_chars(number.data(), number.data() + number.size(), percent);
    if (result.ec == std::errc() && result.ptr == number.data() + number.size())
      return range_percentile(stats, target, percent);
  }
  constexpr const char* kMethods[] = {"minmax",  "percentile", "percentile(99.99)",
                                      "entropy", "mse",        "distribution"};
  const std::string near = nearest_word(method, kMethods, std::size(kMethods));
  throw make_error(ErrorCode::kUsage, "'{}' is no calibration method", method)
      .hint(near.empty() ? "minmax, percentile(99.99), entropy, mse and distribution are"
                         : "did you mean '" + near + "'?");
}

std::vector<RangeChoice> all_methods(const TensorStats& stats, const RangeTarget& target) {
  const Chooser c(stats, target);
  std::vector<RangeChoice> all = {
      minmax(c),  percentile(c, 99.9), percentile(c, 99.99), percentile(c, 99.999),
      entropy(c), least_error(c)};
  if (c.is_float()) all.push_back(distribution(c));
  return all;
}

const RangeChoice& least_mse(const std::vector<RangeChoice>& choices) {
  PARE_ASSERT(!choices.empty());
  return *std::min_element(choices.begin(), choices.end(),
                           [](const RangeChoice& a, const RangeChoice& b) { return a.mse < b.mse; });
}

}  // namespace pare
