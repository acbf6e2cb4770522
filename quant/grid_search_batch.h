// Internal to quant: groups of weights side by side, as the loops of grid_search_simd.h want them.
//
// A batch is up to 16 groups, a lane each, or one long group dealt out over the lanes, whose sums are then
// joined in a fixed order and given to every lane. Weights are multiplied by a power of two that brings the
// largest of a lane into [1, 2), so that squares neither overflow nor vanish; scales here are of such
// weights.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/grid_search_simd.h"

namespace pare::quant {

struct WeightGroup {
  const float* w = nullptr;
  const float* h = nullptr;  // importance, or nullptr
  std::int64_t n = 0;
  std::int64_t index = 0;  // among the scales of the weight
};

class SearchBatch {
 public:
  static constexpr std::int64_t kLongest = 512;  // of a group that gets one lane

  // 1 to 16 groups no longer than kLongest, or one of any length. All have an importance or none has.
  // NaN or infinity: Error kBadFile.
  void load(const WeightGroup* groups, int count);

  int count() const { return count_; }
  const WeightGroup& group(int lane) const { return groups_[lane]; }
  // Extremes of a lane's weights extended to hold 0, multiplied by factor(). All zeros: both 0, factor 1.
  double low(int lane) const { return low_[lane]; }
  double high(int lane) const { return high_[lane]; }
  double amax(int lane) const { return low_[lane] < -high_[lane] ? -low_[lane] : high_[lane]; }
  double factor(int lane) const { return factor_[lane]; }

  void sums(const SearchCodec& codec, const SearchLanes* lanes, int count, bool exact, SearchSums* sums);
  void errors(const SearchCodec& codec, const SearchLanes* lanes, int count, double* errors);
  void clipped(const float* edge, double* errors);

 private:
  template <class Body>
  void for_tiles(const Body& body);
  void gather_lanes();
  void gather_tile(std::int64_t begin, std::int64_t n);

  WeightGroup groups_[kSearchLanes];
  int count_ = 0;
  bool long_ = false;
  double low_[kSearchLanes] = {}, high_[kSearchLanes] = {};
  float factor_[kSearchLanes] = {}, h_factor_[kSearchLanes] = {};
  std::vector<float> x_, h_;
};

}  // namespace pare::quant
