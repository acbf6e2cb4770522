// Where the rows of a linear node's input lie: what its weight is multiplied with at one position.
//
//   MatMul, Gemm   position: an index of all axes but the one that is summed over; row: that axis
//   Conv           position: (sample, output pixel); row: (tap, input channel) of one group, 0 in the padding
//
// Any number of spatial axes, strides, dilations, pads (auto_pad too), groups; plain or channels-last memory.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/window.h"

namespace pare {

struct GramGeometry {
  bool conv = false;
  bool first_axis = false;  // Gemm with transA: the sum runs over the first axis
  std::int64_t ins = 0;     // of one group
  std::int64_t taps = 1, groups = 1;
  Window window;  // conv

  std::int64_t n() const { return taps * ins; }  // columns of a matrix
  bool operator==(const GramGeometry& other) const;
};

// False where the node is not one of these with a constant rank-2 (Conv: rank 3 and more) weight as its
// second input. Error kBadFile where attributes and weight do not fit.
bool gram_geometry(const Graph& graph, const Node& node, GramGeometry& geometry);

// A tensor's positions, to be written as rows.
class GramRows {
 public:
  // `dims` as they lie in memory; `layout` of the value. Error kUsage when they do not fit.
  GramRows(const GramGeometry& geometry, const Dims& dims, Layout layout);

  std::int64_t positions() const { return positions_; }
  // Positions [begin, end): column k of group g of a position at out[g * group_stride + k * column_stride];
  // positions are n() * groups floats apart.
  void gather(const float* x, std::int64_t begin, std::int64_t end, std::int64_t group_stride,
              std::int64_t column_stride, float* out) const;

 private:
  void gather_one(const float* x, std::int64_t position, std::int64_t group_stride,
                  std::int64_t column_stride, float* out) const;
  void gather_window(const float* x, std::int64_t position, std::int64_t group_stride,
                     std::int64_t column_stride, float* out) const;

  const GramGeometry& geometry_;
  Dims outer_;                               // what positions count over
  std::vector<std::int64_t> outer_stride_;   // in the input; conv: of samples only
  std::int64_t column_stride_ = 1;           // of the input's channels
  std::vector<std::int64_t> size_, stride_;  // conv: spatial axes of the input
  Window window_;                            // with explicit pads
  std::int64_t positions_ = 1;
};

}  // namespace pare
