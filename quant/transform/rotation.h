// Rotations folded into weights: the float function stays, outliers of single channels are spread over all.
// QuaRot's R1 and R2 (arXiv 2404.00456) without operators at run time.
//
//   residual  the stream of a decoder (embedding,
//             sums, outputs of projections) is multiplied by an orthogonal
//             R. RMS normalizations do not see it, once their gains stand in the weights behind them:
//             rms(x R) = rms(x). Table T -> T R; W into the stream -> W R; W behind a norm -> R^T diag(gain)
//             W
//   heads     the values of an attention, head by head: W_v -> W_v H, W_o -> H^T W_o
//
// R = (D H / sqrt n), H the Hadamard matrix of the largest power of two in n, beside each other by an
// orthonormal cosine transform of what is left; D random signs from a fixed seed. Applied by butterflies in
// float64; rounded to float32 once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/subgraph.h"

namespace pare::quant {

// An orthogonal matrix of size n, applied without being built.
class Rotation {
 public:
  // `seed` 0: no random signs.
  Rotation(std::int64_t n, std::uint64_t seed);
  std::int64_t size() const { return n_; }
  void apply(double* x) const;  // x R, in place

 private:
  void butterflies(double* x) const;

  std::int64_t n_, power_, rest_;
  std::vector<double> signs_;
  std::vector<double> cosines_;  // [rest][rest]
};

struct RotationResult {
  int streams = 0, attentions = 0;  // rotated
  std::vector<ValueId> changed;     // values that are not what the source model computes under that name
  std::vector<std::string> notes;   // why something was left as it was
};

// Rotates what can be, in place. A stream that something else reads, a LayerNormalization, a norm whose
// output goes elsewhere than into products with constants: left alone, with a note. Constants that others
// read too are copied first.
RotationResult rotate(Graph& graph, std::uint64_t seed);

}  // namespace pare::quant
