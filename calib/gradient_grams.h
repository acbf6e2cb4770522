// Second moments of linear layers as a language model's predictions see them: rows of inputs and of output
// gradients, for a loss of weight errors dW that stands for the divergence of the whole model,
//
//   E (g^T dW x)^2  ~  tr(HO dW HI dW^T) / tr(HO),   HI = E[|g|^2 x x^T] / E|g|^2,   HO = E[|x|^2 g g^T]
//
// with x the layer's input at a position and g the gradient of -log p(token) by its output there, the token
// drawn from the model's own prediction p: E[g g^T] is then the Fisher matrix, whose quadratic form is twice
// the KL divergence that a small change makes. HI and HO are one turn of the power iteration towards the
// closest Kronecker product. Tokens are drawn by a fixed sequence, by sample and position.
// Sources: YAQA (arXiv 2505.22988), GuidedQuant (arXiv 2505.07004).
#pragma once

#include <memory>
#include <vector>

#include "calib/gram_collect.h"

namespace pare {

struct GradientGrams {
  Gram inputs, outputs;  // HI, [in]; HO, [out], scaled to a mean diagonal of 1
};

// `layers`: MatMul nodes of the graph around subgraphs, constants in slot 1, before the one output. By layer.
// Errors as Backward's; kUnsupported for a data set with states or a graph without one float output
// [samples, positions, tokens].
std::vector<std::shared_ptr<const GradientGrams>> collect_gradient_grams(const Graph& graph,
                                                                         const std::vector<NodeId>& layers,
                                                                         Dataset& data,
                                                                         const GramOptions& options);

}  // namespace pare
