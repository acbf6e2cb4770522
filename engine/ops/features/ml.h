// Operators of ai.onnx.ml, plain: what classical models (scikit-learn and the like) are exported to. Numbers
// are computed in double and rounded once. X is [C] (one sample) or [N, C].
//
//   ArrayFeatureExtractor  columns of the last axis            Binarizer   1 where x > threshold
//   Scaler        (x - offset) * scale                        Normalizer  by the row's MAX, L1 or L2 norm;
//   rows of zeros stay Imputer       replaced_value (also NaN) becomes imputed_value LabelEncoder,
//   CategoryMapper   a table; NaN finds NaN      OneHotEncoder  one column a category FeatureVectorizer
//   columns side by side, as float32 LinearRegressor, LinearClassifier   x W^T + b TreeEnsembleRegressor,
//   TreeEnsembleClassifier, TreeEnsemble   sums (averages, least, largest) of leaves
//
// Classifiers with one score and two labels: see binary_scores() in ml_ref.cpp. post_transform: NONE,
// SOFTMAX, LOGISTIC, SOFTMAX_ZERO (zeros stay), PROBIT. Source: ONNX ai.onnx.ml 5; what it leaves open is as
// ONNX Runtime 1.32 does it (tests/golden/make_microsoft.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/ops/kernel.h"

namespace pare {

namespace ml {

constexpr std::string_view kDomain = "ai.onnx.ml";

struct Rows {  // X in double
  std::int64_t rows = 0, columns = 0;
  std::vector<double> x;
  explicit Rows(const TensorView& view);
  const double* row(std::int64_t r) const { return x.data() + r * columns; }
};
std::string rows_reason(const OpCall& call);  // "" for numbers of rank 1 or 2

// In place. `transform` is the attribute's word.
void post_transform(std::vector<double>& scores, const std::string& transform);

// One score of two classes: both scores, and whether the second class is chosen. `positive`: the score is a
// probability (threshold 0.5, the other is 1 - s); else 0 divides and the other is -s.
bool binary_scores(std::vector<double>& scores, bool positive, const std::string& transform);

// Writes label `index` of classlabels_int64s (classlabels_ints) or classlabels_strings to element r of output
// 0.
void write_label(const OpCall& call, std::int64_t r, std::size_t index);

}  // namespace ml

class Registry;
void add_ml_references(Registry& registry);
void add_tree_references(Registry& registry);

}  // namespace pare
