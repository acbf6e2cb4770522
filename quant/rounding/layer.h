// One linear layer's weight, quantized by any method that looks at this layer alone.
//
//   rtn      the nearest code on the grid of the largest magnitude
//   search   the nearest code on a searched grid, weighted by E[x^2]
//   local_hessian   the same, each group's error weighted by its own part of E[x x^T] (Model Optimizer's
//            search of that name); formats with groups of at most 128 columns
//   gptq     that grid, codes by GPTQ (gptq.h)
//   learned  from there, codes and scales by descent (learned_rounding.h)
//   auto     the one of these with the least loss on held-out samples (without such: on the same)
//
// The loss of a layer is E ||dW x||^2 = tr(dW G dW^T) / count: the output error, summed over outputs, of a
// mean position. Without second moments it is ||dW||^2, as if inputs were white.
//
// With second moments HO of output gradients (calib/gradient_grams.h) the loss that gptq and learned lower is
// tr(HO dW G dW^T): errors of outputs that move the model's predictions alike may cancel. Rows are taken in
// blocks, by descending diagonal of HO = R R^T (R upper); as for GPTQ's columns, the block's best target
// given the errors D of the blocks before it is W_b + R_bb^-T R_ab^T D_a. Inside a block rows count as
// independent.
//
// A method that cannot work says so: `method` is what was used, `fallback` why it is not what was asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "calib/gram.h"
#include "engine/base/thread_pool.h"
#include "quant/grid/grid.h"
#include "quant/grid/weight_rows.h"
#include "quant/rounding/gptq.h"
#include "quant/rounding/learned_rounding.h"

namespace pare::quant {

// E |W x|^2 of a weight, which every solution is measured by: kept between calls where several are tried.
struct LayerPower {
  double fit = -1, held_out = -1;  // on the matrices of those names; negative: not known yet
};

struct LayerProblem {
  std::string name;                    // of the layer, for errors and reports
  const WeightRows* weight = nullptr;  // required
  const Gram* gram = nullptr;          // of its input; null or empty: none
  const Gram* held_out = nullptr;      // of other samples, to choose by; may be null
  const Gram* outputs = nullptr;       // of output gradients: gptq and learned weigh outputs by it (below)
  GridFormat format;
  float global = 0;             // two-level formats: the global scale to use (shared); 0: chosen here
  const Grid* grid = nullptr;   // given (shared, or from a file): its scales stay; null: chosen here
  LayerPower* power = nullptr;  // of this weight and these matrices; null: had anew
};

struct LayerOptions {
  std::string method = "auto";
  double damp = 0.01;
  double output_damp = 0.01;  // of the moments of output gradients: larger ones make outputs more alike
  ColumnOrder order = ColumnOrder::kDiagonal;
  RoundingOptions rounding;
  std::function<void(double share)> advance;  // of the layer's work that is done, bit by bit, from any thread
};

// Error kUsage for a name that is no method of a layer.
void check_layer_method(const std::string& method);

struct LayerCandidate {
  std::string method;
  double loss = 0;  // on the samples that decide; NaN: it could not be had
};

struct LayerSolution {
  Grid grid;
  std::vector<std::uint8_t> codes;  // [rows][cols], one a byte
  double loss = 0;                  // on the fitted samples
  double relative_loss = 0;         // of E ||W x||^2; 0 for a layer of zeros
  double held_out_loss = 0;         // relative; NaN without held-out samples
  double sqnr_db = 0;               // of the output: -10 log10(relative_loss)
  std::string method, fallback;
  std::vector<LayerCandidate> candidates;  // that `auto` measured
};

// Errors: kBadFile for NaN or infinity in the weight; kUsage for second moments of another layer's shape
// (statistics of another graph), for an unknown method.
LayerSolution solve_layer(const LayerProblem& problem, const LayerOptions& options, ThreadPool& pool);

// The loss of any quantized weight, [rows][cols]; absolute, and that of the weight itself (its power).
struct LayerLoss {
  double loss = 0, power = 0;
};
// `power`: where it is known already.
LayerLoss layer_loss(const WeightRows& weight, const float* quantized, const Gram* gram, ThreadPool& pool,
                     double power = -1);
// loss / power on samples that chose nothing; NaN where their matrix is empty or not finite.
double held_out_loss(const WeightRows& weight, const float* quantized, const Gram& held_out,
                     ThreadPool& pool);

}  // namespace pare::quant
