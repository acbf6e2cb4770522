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

// The same for the codes 0 .. highest. Steps far finer than a bin cost step^2 / 12 each, whatever lies where.
double side_error(const Side& side, std::int64_t highest, double step) {
  if (highest == 0) return side.square();
  const double end = static_cast<double>(highest) * step;
  const Side::Moments inside = side.below(end);
  double error = std::max(0.0, (side.square() - inside.square) - 2 * end * (side.sum() - inside.sum) +
                                   end * end * (side.count() - inside.count));
  if (step <= 0.25) return error + inside.count * step * step / 12;
  Side::Moments before;
  for (std::int64_t i = 0; i <= highest && before.count < inside.count; ++i) {
    const double code = static_cast<double>(i) * step;
    const Side::Moments after = side.below(std::min(end, code + 0.5 * step));
    const double count = after.count - before.count, sum = after.sum - before.sum;
    error += std::max(0.0, (after.square - before.square) - 2 * code * sum + code * code * count);
    before = after;
  }
  return error;
}

}  // namespace

double Density::mse(const CodeGrid& grid, double scale) const {
  if (finite_ == 0) return 0;
  const double step = scale / width_;
  const double error =
      grid.highest >= 0
          ? side_error(positive_, grid.highest, step) + side_error(negative_, grid.lowest, step)
          : side_error(positive_, grid.positive, step) + side_error(negative_, grid.negative, step);
  return error * width_ * width_ / finite_;
}

double Density::clipped(double low, double high) const {
  if (finite_ == 0) return 0;
  const double above = positive_.count() - positive_.below(high / width_).count;
  const double below = negative_.count() - negative_.below(-low / width_).count;
  return (above + below) / finite_;
}

namespace {

CodeGrid integer_grid(std::int64_t highest, std::int64_t lowest) {
  CodeGrid grid;
  if (std::max(highest, lowest) > 255) {
    grid.highest = highest;
    grid.lowest = lowest;
    return grid;
  }
  for (std::int64_t code = 0; code <= highest; ++code) grid.positive.push_back(static_cast<double>(code));
  for (std::int64_t code = 0; code <= lowest; ++code) grid.negative.push_back(static_cast<double>(code));
  return grid;
}

}  // namespace

CodeGrid symmetric_grid(const RangeTarget& target) {
  const FormatInfo& format = format_info(target.format);
  if (format.bits > (format.is_integer() ? 16 : 8) || !format.decode || target.format == DType::kE8M0)
    throw make_error(ErrorCode::kUnsupported, "no ranges are chosen for {}", format.name)
        .hint("`pare stats show --help` lists the formats that have ranges");
  if (format.is_integer()) {
    // An unsigned format has its zero point in the middle.
    const std::int64_t highest = (std::int64_t{1} << (format.bits - 1)) - 1;
    return integer_grid(highest, highest + (target.narrow ? 0 : 1));
  }
  CodeGrid grid;
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
  PARE_ASSERT(format.is_integer() && format.bits <= 16);
  const std::int64_t codes = std::int64_t{1} << format.bits;
  return integer_grid(codes - 1 - zero_point, zero_point);
}

}  // namespace pare
