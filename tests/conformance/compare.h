// Whether an output is what the suite wants.
#pragma once

#include <string>
#include <vector>

#include "engine/base/tensor.h"

namespace pare::conformance {

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;  // the suite's defaults
};

// "" or the first difference: type, shape, element. |got - want| <= relative * |want| + absolute; NaN is NaN.
std::string difference(const Tensor& got, const Tensor& want, const Tolerance& tolerance);
// Type and shape only.
std::string shape_difference(const Tensor& got, const Tensor& want);

// Tests whose results the suite draws at random (Bernoulli, Dropout in training with a ratio above zero).
bool is_random(const std::string& test);
// "" when the outputs are a fair draw: each element one of the values that it can take, and their number
// within 5 standard deviations of its mean (a fair draw fails once in 1.7 million; ours are the same in every
// run).
std::string random_difference(const std::string& test, const std::vector<Tensor>& in,
                              const std::vector<Tensor>& got);

}  // namespace pare::conformance
