// Internal to quant: groups of weights side by side, as the loops of grid_search_simd.h want them.
//
// A batch is up to 16 groups, a lane each, or one long group dealt out over the lanes, whose sums are then
// joined in a fixed order and given to every lane. Weights are multiplied by a power of two that brings the
// largest of a lane into [1, 2) or near it, so that squares neither overflow nor vanish; scales here are of
// such weights. Importances likewise.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/grid/grid_search_simd.h"

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

  // 1 to 16 groups no longer than kLongest, or one of any length. All have an importance or none has; one of
  // zeros alone counts as ones. NaN or infinity: Error kBadFile.
  // With a gram, [width][width][16], errors are e^T G e, and units[16] are what its lanes were divided by.
  struct LaneGram {
    const float* blocks = nullptr;
    std::int64_t width = 0;
    const double* units = nullptr;
  };
  void load(const WeightGroup* groups, int count, const LaneGram& gram);

  int count() const { return count_; }
  bool has_gram() const { return gram_.blocks != nullptr; }
  const WeightGroup& group(int lane) const { return groups_[lane]; }
  // Of every lane: extremes of its weights extended to hold 0; the same multiplied by factor(); 1 / factor().
  const float* lowest() const { return lowest_; }
  const float* highest() const { return highest_; }
  const double* low() const { return low_; }
  const double* high() const { return high_; }
  const double* factor() const { return factor_; }
  const double* back() const { return back_; }
  // What turns a lane's errors into those of the weights as they are.
  double unit(int lane) const { return back_[lane] * back_[lane] * h_back_[lane]; }

  // With a gram: of exact passes, and of errors; others rank by the importance.
  void sums(const SearchCodec& codec, const SearchLanes* lanes, int count, SearchPass pass, SearchSums* sums);
  void errors(const SearchCodec& codec, const SearchLanes* lanes, int count, double* errors);
  void clipped(const float* edge, double* errors);
  // Sum of h x x, of h x, of h.
  void moments(double* power, double* sum, double* weight);

 private:
  template <class Body>
  void for_tiles(const Body& body);
  void gather_lanes();
  void gather_tile(std::int64_t begin, std::int64_t n);

  WeightGroup groups_[kSearchLanes];
  int count_ = 0;
  bool long_ = false;  // all lanes are one group
  float lowest_[kSearchLanes] = {}, highest_[kSearchLanes] = {};
  double low_[kSearchLanes] = {}, high_[kSearchLanes] = {};
  double factor_[kSearchLanes] = {}, back_[kSearchLanes] = {};
  double h_back_[kSearchLanes] = {};
  float h_factor_ = 1;  // of a long group; 0: importances are 1
  std::int64_t rows_ = 0;
  LaneGram gram_;
  std::vector<float> x_, h_, work_;
};

}  // namespace pare::quant
