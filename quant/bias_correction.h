// Takes the mean error of quantization out of the biases.
//
// A quantized linear node computes Wq xq in place of W x. On average over data, places and samples
//   d[o] = sum over c, t of f[t] (Wq[o,c,t] (E[x_c] + e_c) - W[o,c,t] E[x_c]),   e_c = E[xq_c - x_c]
// which the bias can give back: b[o] -= d[o]. f[t] is the share of output places at which tap t lies inside
// the map (1 without padding). Exact in expectation for the float network's own inputs; one pass for all
// layers. Source: arXiv 1906.04721 section 4.2, with measured means in place of assumed ones.
#pragma once

#include <vector>

#include "quant/plan.h"

namespace pare::quant {

// Of the input that feeds the node: by channel of the activation, or (`columns`) of what each column of a
// weight's row is multiplied with (weight_rows.h), which knows the padding and is for inputs that stay float.
struct InputMeans {
  std::vector<double> mean = {};     // E[x_c]
  std::vector<double> error = {};    // E[xq_c - x_c]
  std::vector<double> columns = {};  // [conv groups, taps * ins]; empty: by channel
};

constexpr std::size_t kFloatInput = static_cast<std::size_t>(-1);

struct BiasTarget {
  NodeId node = NodeId::kNone;  // Conv, Gemm, or MatMul followed by the Add of a constant row
  std::size_t weight = 0;       // index in plan.weights
  std::size_t activation = 0;   // index in plan.activations, or kFloatInput
  int channel_axis = 1;         // of the activation
  std::int64_t channels = 0;
  SubgraphPath path = {};
};

// The nodes whose bias can take a correction: a constant quantized weight, and a place for the row.
std::vector<BiasTarget> find_bias_targets(const Graph& graph, const Placement& placement);

// d by output channel; empty where the means are.
std::vector<double> mean_output_error(const Graph& graph, const Plan& plan, const BiasTarget& target,
                                      const InputMeans& means);
// Would taking `d` out, measured on some samples, make the error on others (whose mean is `check`) smaller?
bool correction_holds(const std::vector<double>& d, const std::vector<double>& check);
// b -= d: the node gets a constant of its own; a Conv or Gemm without a bias gains one.
void subtract_from_bias(Graph& graph, const BiasTarget& target, const std::vector<double>& d);

// All targets: means[i] belongs to targets[i]; an entry with empty vectors is left alone.
void correct_biases(Graph& graph, const Plan& plan, const std::vector<BiasTarget>& targets,
                    const std::vector<InputMeans>& means);

}  // namespace pare::quant
