// Which factors a channel to move from an activation into the weights that read it (scale_group.h).
//
//   loss(s) = sum over layers, outputs of   E |dW x|^2              dW = Q(W s) / s - W
//                                         + sum_c e_c sum W_c^2     e_c = E (s_c Q(x_c / s_c) - x_c)^2
//
// The first term is the caller's (tr(dW G dW^T) where a Gram matrix is known, else its diagonal), with the
// caller's quantizer Q. The second is measured on a sample of x and is there only when x is quantized; errors
// of different channels count as uncorrelated.
//
// Candidates: s = 1 always; with a_c = max |x_c|, m_c = mean |x_c|, w_c from the weights
//   smoothquant  a^t / w^(1-t), w_c = max |W_c|; t = 0.1 ... 1 (arXiv 2211.10438)
//   awq          m^t, and m^t / w^(1-t), w_c = mean of |W_c| / (its row's largest) (arXiv 2306.00978)
//   equalize     sqrt(p_c / w_c), p_c = max |weights that make x_c| (arXiv 1906.04721), and
//                p_c^(2/3) / (w_c v_c)^(1/3), v_c = max |weights behind a depthwise layer|: with the pair
//                behind it all three get the cube root of the product
// each divided by sqrt(largest * least); the best t is refined by half a step to both sides. A channel that
// never fires or that nobody reads keeps 1. s stays in [1e-4, 1e4] relative to 1. A candidate whose loss is
// NaN or infinite is skipped and counted.
//
// A layer whose matrix products would be long is tried on some of its rows, evenly spread (the middle of
// equal stretches), whose noise counts for all: rows are much alike, and candidates differ on every one of
// them in the same way. Which candidates there are is decided by all rows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "quant/grid/weight_rows.h"

namespace pare::quant {

struct ScaleLayer {
  WeightRows weight;
  std::vector<std::int32_t> channel;  // [conv groups, ins]: of input i of group g
  // Q, in place. Called with W s, and s (empty: 1). May throw Error: the candidate is skipped.
  std::function<void(WeightRows& rows, const std::vector<float>& s)> round;
  // E |dW x|^2 summed over outputs.
  std::function<double(const WeightRows& error)> noise;
  std::int64_t tried = 0;  // rows that `round` and `noise` are given; 0: all
};

// Rows to try of a layer of [rows, cols] whose noise is that of a matrix [cols, cols]: so many that
// rows * cols^2 is at most 2^32, but 256 at least.
std::int64_t rows_to_try(std::int64_t rows, std::int64_t cols);

struct ScaleProblem {
  std::int64_t channels = 0;
  std::vector<ScaleLayer> layers;
  std::vector<double> amax;     // by channel, over all of calibration
  std::vector<float> sample;    // [rows, channels] of x
  std::vector<double> beyond;   // v_c; empty: the layer is not depthwise, or what follows is not known
  std::vector<double> made_by;  // p_c; empty: x is not made by one linear node
  // Fake quantization of x / s, [rows, channels] in place, whose largest magnitude over all of calibration is
  // `largest`; null: x stays float.
  std::function<void(float* x, std::int64_t rows, std::int64_t channels, double largest)> round_activation;

  std::int64_t rows() const {
    return channels == 0 ? 0 : static_cast<std::int64_t>(sample.size()) / channels;
  }
};

struct ScaleFamilies {
  bool smooth = false, awq = false, equalize = false;
  std::optional<double> strength;  // of smooth: only this t, and not s = 1
};

struct ScaleChoice {
  std::vector<float> scales;  // empty: s = 1
  std::string family;         // "smoothquant", "awq", "awq duo", "equalize"
  double strength = 0;        // t
  double loss_before = 0, loss = 0;
  int tried = 0, skipped = 0;  // candidates; those without a finite loss
  double gain_db() const;
};

ScaleChoice search_scales(const ScaleProblem& problem, const ScaleFamilies& families);

// loss(s); `s` empty is 1. NaN when something is not finite.
double scale_loss(const ScaleProblem& problem, const std::vector<float>& s);

}  // namespace pare::quant
