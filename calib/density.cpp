#include "calib/density.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare {

Side::Side(const std::uint64_t* bins, double extreme) : extreme_(extreme) {
  const int used = extreme > 0 ? std::min(static_cast<int>(extreme), kBins - 1) + 1 : 0;
  bins_.resize(static_cast<std::size_t>(used));
  prefix_.resize(static_cast<std::size_t>(used) + 1);
  Moments m;
  for (int b = 0; b < used; ++b) {
    const double count = static_cast<double>(bins[b]), from = b, to = b + 1 == used ? extreme : b + 1;
    bins_[static_cast<std::size_t>(b)] = count;
    m.count += count;
    m.sum += count * 0.5 * (from + to);
    m.square += count * (from * from + from * to + to * to) / 3;
    prefix_[static_cast<std::size_t>(b) + 1] = m;
  }
}

Side::Moments Side::below(double x) const {
  if (x >= extreme_) return prefix_.back();
  if (!(x > 0)) return {};
  const auto b = static_cast<std::size_t>(x);
  const double from = static_cast<double>(b), to = b + 1 == bins_.size() ? extreme_ : from + 1;
  // The part [from, x] of the bin, as evenly filled as the whole. x < extreme, so the bin is not empty of
  // length.
  const double count = bins_[b] * (x - from) / (to - from);
  const Moments& m = prefix_[b];
  return {m.count + count, m.sum + count * 0.5 * (from + x),
          m.square + count * (from * from + from * x + x * x) / 3};
}

double Side::quantile(double count) const {
  std::size_t b = 0;
  while (b < bins_.size() && prefix_[b + 1].count < count) ++b;
  if (b == bins_.size()) return extreme_;
  const double from = static_cast<double>(b), to = b + 1 == bins_.size() ? extreme_ : from + 1;
  const double part = bins_[b] > 0 ? (count - prefix_[b].count) / bins_[b] : 0;
  return from + (to - from) * std::clamp(part, 0.0, 1.0);
}

Density::Density(const TensorStats& stats)
    : width_(stats.width()),
      finite_(static_cast<double>(stats.finite())),
      positive_(stats.positive(), std::max(0.0, static_cast<double>(stats.max)) / width_),
      negative_(stats.negative(), std::max(0.0, -static_cast<double>(stats.min)) / width_) {}

namespace {

// The squared error of one side, in squared widths; `step` is the scale in widths. Between the middles of
// neighbouring codes lies the cell of a code g, which costs the integral of (x - g)^2.
double side_error(const Side& side, const std::vector<double>& codes, double step) {
  double error = 0;
  Side::Moments before;
  for (std::size_t i = 0; i < codes.size() && before.count < side.count(); ++i) {
    const double code = codes[i] * step;
    const bool last = i + 1 == codes.size();
    const Side::Moments after = side.below(last ? side.extreme() : 0.5 * (code + codes[i + 1] * step));
    const double count = after.count - before.count, sum = after.sum - before.sum;
    // Rounding can make an empty cell a little negative.
    error += std::max(0.0, (after.square - before.square) - 2 * code * sum + code * code * count);
    before = after;
  }
  return error;
}

}  // namespace

double Density::mse(const CodeGrid& grid, double scale) const {
  if (finite_ == 0) return 0;
  const double step = scale / width_;
  return (side_error(positive_, grid.positive, step) + side_error(negative_, grid.negative, step)) * width_ *
         width_ / finite_;
}

double Density::clipped(double low, double high) const {
  if (finite_ == 0) return 0;
  const double above = positive_.count() - positive_.below(high / width_).count;
  const double below = negative_.count() - negative_.below(-low / width_).count;
  return (above + below) / finite_;
}

CodeGrid symmetric_grid(const RangeTarget& target) {
  const FormatInfo& format = format_info(target.format);
  if (format.bits > 8 || !format.decode || target.format == DType::kE8M0)
    fail(ErrorCode::kUnsupported, "no ranges are chosen for {}", format.name);
  CodeGrid grid;
  if (format.is_integer()) {
    const auto highest = static_cast<std::int64_t>(format.largest);
    const std::int64_t lowest = format.is_signed ? highest + (target.narrow ? 0 : 1) : 0;
    for (std::int64_t code = 0; code <= highest; ++code) grid.positive.push_back(static_cast<double>(code));
    for (std::int64_t code = 0; code <= lowest; ++code) grid.negative.push_back(static_cast<double>(code));
    return grid;
  }
  for (int code = 0; code < 1 << format.bits; ++code) {
    // Codes below 8 bits: the first element is in the low bits.
    const auto byte = static_cast<std::uint8_t>(code);
    float value = 0;
    format.decode(&byte, &value, 1);
    if (!std::isfinite(value)) continue;
    if (value >= 0) grid.positive.push_back(value);
    if (value <= 0) grid.negative.push_back(-value);
  }
  for (std::vector<double>* side : {&grid.positive, &grid.negative}) {
    for (double& value : *side) value = std::abs(value);  // -0 is 0
    std::sort(side->begin(), side->end());
    side->erase(std::unique(side->begin(), side->end()), side->end());
  }
  return grid;
}

CodeGrid asymmetric_grid(const RangeTarget& target, std::int64_t zero_point) {
  const FormatInfo& format = format_info(target.format);
  PARE_ASSERT(format.is_integer() && format.bits <= 8);
  const std::int64_t codes = std::int64_t{1} << format.bits;
  CodeGrid grid;
  for (std::int64_t code = zero_point; code < codes; ++code)
    grid.positive.push_back(static_cast<double>(code - zero_point));
  for (std::int64_t code = zero_point; code >= 0; --code)
    grid.negative.push_back(static_cast<double>(zero_point - code));
  return grid;
}

}  // namespace pare
