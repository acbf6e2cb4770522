// Internal to quant: what each format tries for a batch of groups, and which it takes.
#pragma once

#include "quant/grid.h"
#include "quant/grid_search_batch.h"

namespace pare::quant {

// The best so far of every lane. Scales are as read back (not those of the batch's normalized weights).
struct LaneChoice {
  float scale[kSearchLanes] = {};
  int zero[kSearchLanes] = {};
  double error[kSearchLanes] = {};  // of the normalized weights: comparable within a lane only
};

class LaneSearch {
 public:
  LaneSearch(const GridFormat& format, float global);

  // The choice of amax_grid (with this global scale), and its error.
  LaneChoice amax(SearchBatch& batch) const;
  // Of least error; never worse than amax(). A lane of zeros keeps what amax() gives.
  LaneChoice search(SearchBatch& batch) const;

 private:
  void search_integers(SearchBatch& batch, LaneChoice& best) const;
  void search_floats(SearchBatch& batch, LaneChoice& best) const;
  void search_levels(SearchBatch& batch, LaneChoice& best) const;
  void search_exponents(SearchBatch& batch, LaneChoice& best) const;
  struct Finalists;
  void finish(SearchBatch& batch, Finalists& finalists, LaneChoice& best) const;
  void neighbours(SearchBatch& batch, LaneChoice& best) const;
  // Rounds the scales (of normalized weights) and takes what is better. Leaves the least-squares scales of
  // the codes in `scales`.
  void offer(SearchBatch& batch, double* scales, const int* zeros, LaneChoice& best) const;
  // Lanes of one candidate, from scales as read back.
  void fill(const SearchBatch& batch, const float* scales, const int* zeros, SearchLanes& lanes) const;
  template <class Next>
  void descend(SearchBatch& batch, LaneChoice& best, const Next& scale_of) const;

  GridFormat format_;
  SearchCodec codec_;
  float global_;
  double lowest_, largest_;
};

}  // namespace pare::quant
