// Boxes out of the outputs of a detector, and whether two models find the same ones.
//
// One box is four numbers (a row of `boxes` may have more behind them: key points) and one score; `form` says
// what the four are. With `strides` they are relative, in pixels, to a grid: row i of an output with n rows
// lies in cell i / (n / cells), cells row by row, and the centre ((column + 1/2) stride, (row + 1/2) stride)
// of the cell is added to its centre or corners. That is BlazeFace's and other SSD heads' form with anchors
// of fixed size.
//
// A box counts from score `threshold` on (NaN never does). Of those, best score first and at most kMostBoxes,
// one is dropped when it overlaps a kept one with an IoU above `nms`. Widths and heights below 0 are empty
// boxes.
//
// Two boxes are the same when their IoU is at least `iou`; pairs are made by falling IoU, each box once.
// Agreement is 2 pairs / (boxes of the one + boxes of the other) over all samples: a box too much counts like
// one too few. It is 1 when neither model finds any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/spec.h"
#include "engine/base/tensor.h"

namespace pare {

struct Box {
  float x0 = 0, y0 = 0, x1 = 0, y1 = 0, score = 0;
};

double intersection_over_union(const Box& a, const Box& b);  // 0 when both are empty, or with a NaN

class BoxAgreement {
 public:
  static constexpr std::size_t kMostBoxes = 1000;  // of a sample, before overlaps are dropped

  // `outputs`: names, in the order in which tensors come. Error kUsage when one of spec is not among them.
  BoxAgreement(const BoxSpec& spec, const std::vector<std::string>& outputs);

  // Outputs of the same samples by the two models, float32 [n, ...]. Error kUsage when shapes cannot be
  // boxes.
  void add(const std::vector<Tensor>& reference, const std::vector<Tensor>& candidate);

  // The boxes of sample `index`, best first.
  std::vector<Box> decode(const std::vector<Tensor>& outputs, std::int64_t index) const;

  std::int64_t pairs() const { return pairs_; }
  std::int64_t boxes() const { return boxes_; }  // of both models
  double share() const {
    return boxes_ == 0 ? 1 : 2 * static_cast<double>(pairs_) / static_cast<double>(boxes_);
  }

 private:
  BoxSpec spec_;
  std::vector<std::size_t> scores_, places_;  // indices of outputs, in pairs
  std::int64_t pairs_ = 0, boxes_ = 0;
};

}  // namespace pare
