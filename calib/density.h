// The density that a histogram stands for, and what quantizing it costs.
#pragma once

#include <array>
#include <vector>

#include "calib/ranges.h"
#include "calib/tensor_stats.h"

namespace pare {

// One side of zero. All lengths in units of the bin width.
class Side {
 public:
  Side(const std::uint64_t* bins, double extreme);

  struct Moments {
    double count = 0, sum = 0, square = 0;
  };
  // Of the values in [0, x].
  Moments below(double x) const;
  double count() const { return prefix_.back().count; }
  double square() const { return prefix_.back().square; }
  double sum() const { return prefix_.back().sum; }
  double extreme() const { return extreme_; }                  // 0: there are no values
  int used() const { return static_cast<int>(bins_.size()); }  // bins up to the one of the extreme
  double bin(int b) const { return bins_[static_cast<std::size_t>(b)]; }
  // The x below which `count` values lie.
  double quantile(double count) const;

 private:
  std::vector<double> bins_;
  std::vector<Moments> prefix_;  // at the lower edge of each bin; one more at the end
  double extreme_;
};

// Magnitudes of the codes of a format in units of the scale, ascending from 0, for each side. Integers of
// more than 8 bits are not listed: `highest` and `lowest` say how many whole steps there are on each side.
struct CodeGrid {
  std::vector<double> positive, negative;
  std::int64_t highest = -1, lowest = -1;  // >= 0: codes 0 .. highest and 0 .. lowest in place of the lists
};

class Density {
 public:
  explicit Density(const TensorStats& stats);

  const Side& positive() const { return positive_; }
  const Side& negative() const { return negative_; }
  double width() const { return width_; }
  double finite() const { return finite_; }

  // Expected squared error over all finite values when x becomes the nearest code * scale.
  double mse(const CodeGrid& grid, double scale) const;
  // Share of values outside of [low, high].
  double clipped(double low, double high) const;

 private:
  double width_, finite_;
  Side positive_, negative_;
};

// Codes of a symmetric target. Error kUnsupported for formats that ranges.h does not name.
CodeGrid symmetric_grid(const RangeTarget& target);
// Codes of an integer target with this zero point (a code number from 0 up: that of int8 plus 128).
CodeGrid asymmetric_grid(const RangeTarget& target, std::int64_t zero_point);

}  // namespace pare
