// Internal to quant: what each format tries for a batch of groups, and which it takes.
//
// A grid of scales, as wide as the weights of each group ask for, is ranked by the error that the
// least-squares scale of each candidate's codes would have; the scale of the best, rounded as it will be
// written, gives new codes, they a new least-squares scale, and so on. Only errors of rounded scales decide.
#pragma once

#include "quant/grid/grid.h"
#include "quant/grid/grid_search_batch.h"

namespace pare::quant {

// The best so far of every lane. Scales are as read back (not those of the batch's normalized weights).
struct LaneChoice {
  float scale[kSearchLanes] = {};
  double zero[kSearchLanes] = {};
  double error[kSearchLanes] = {};  // of the normalized weights: comparable within a lane only
};

class LaneSearch {
 public:
  LaneSearch(const GridFormat& format, float global);

  // The rule of amax_grid, with this global scale, for groups of these extremes, extended to hold 0. Errors
  // are not computed.
  LaneChoice amax(const float* low, const float* high) const;
  // E4M3 scales only: the better of the largest magnitude over 6 and over 4.
  LaneChoice four_over_six(SearchBatch& batch) const;
  // Of least error; never worse than amax(). A lane of zeros keeps what amax() gives.
  LaneChoice search(SearchBatch& batch) const;

 private:
  // A search in progress.
  struct Trial {
    SearchBatch& batch;
    LaneChoice best;
    SearchKept kept;

    Trial(SearchBatch& batch, const LaneChoice& start);
  };

  void search_symmetric(Trial& trial) const;
  void search_asymmetric(Trial& trial) const;
  void search_floats(Trial& trial) const;
  void search_levels(Trial& trial) const;
  void search_exponents(Trial& trial) const;

  void fill(const SearchBatch& batch, const float* scales, const double* zeros, SearchLanes& lanes) const;
  // Scales times back[], rounded as they are written; `instead` where that is not possible.
  void round(const double* scales, const double* back, const float* instead, float* rounded) const;
  // The least scale of the grid.
  void finest(Trial& trial, double* scales) const;
  // The scale of a range that just clips nothing. `negative`: lanes whose sign is turned.
  void full(const SearchBatch& batch, const bool* negative, const double* zeros, double* scales) const;
  // The candidates first * ratio^k; the best are kept.
  void try_powers(Trial& trial, const double* first, const double* ratio, int count,
                  const double* zeros) const;
  void try_even(Trial& trial, const double* first, const double* step, int count, const double* zeros) const;
  void try_lanes(Trial& trial, SearchLanes* lanes, int count, const double* zeros) const;
  // Five candidates around the best, `ratio` apart at most.
  void try_around(Trial& trial, const double* ratio) const;
  // Takes the scales (of normalized weights), rounded, where they are better; leaves in `scales` the
  // least-squares scales of their codes.
  void offer(Trial& trial, double* scales, const double* zeros) const;
  void take(Trial& trial, const float* candidates) const;
  float level(int code) const;  // the scale of an E4M3 code
  // Many codes: the error is a ragged function of the scale, and more than one candidate is followed up.
  bool careful() const { return largest_ - lowest_ > 100; }
  void finish(Trial& trial) const;
  template <class Next>
  void descend(Trial& trial, const Next& scale_of) const;

  GridFormat format_;
  SearchCodec codec_;
  float global_;
  double lowest_, largest_, widest_;  // widest: the largest magnitude of code - zero
  float limit_;                       // the largest scale whose products are all finite
  double uniform_step_;
};

}  // namespace pare::quant
