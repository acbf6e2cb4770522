#include "engine/ops/features/ml.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/ops/support.h"

namespace pare::ml {

Rows::Rows(const TensorView& view) {
  columns = view.dims.empty() ? 1 : view.dims.back();
  rows = view.dims.size() < 2 ? 1 : view.dims[0];
  x.resize(static_cast<std::size_t>(view.size()));
  convert(view, {DType::kF64, view.dims, x.data()});
}

std::string rows_reason(const OpCall& call) {
  const std::size_t rank = call.input(0).dims.size();
  if (rank != 1 && rank != 2) return "the input is neither [C] nor [N, C]";
  return type_reason(call, 0, {DType::kF32, DType::kF64, DType::kI64, DType::kI32});
}

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The inverse of the normal distribution's integral (Acklam's approximation would do; this is Newton's method
// on erfc from a rough start).
double probit(double p) {
  if (!(p > 0 && p < 1)) return p <= 0 ? -INFINITY : p >= 1 ? INFINITY : p;
  double x = 0;
  for (int i = 0; i < 60; ++i) {
    const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
    const double slope = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
    const double step = std::clamp(error / std::max(slope, 1e-300), -1.0, 1.0);
    x -= step;
    if (std::fabs(step) < 1e-15) break;
  }
  return x;
}

}  // namespace

void post_transform(std::vector<double>& scores, const std::string& transform) {
  if (transform == "LOGISTIC") {
    for (double& s : scores) s = logistic(s);
  } else if (transform == "PROBIT") {
    for (double& s : scores) s = probit(s);
  } else if (transform == "SOFTMAX" || transform == "SOFTMAX_ZERO") {
    const bool zeros_stay = transform == "SOFTMAX_ZERO";
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& s : scores) sum += s = zeros_stay && std::fabs(s) <= 1e-7 ? 0 : std::exp(s - most);
    for (double& s : scores) s /= sum;
  }
}

bool binary_scores(std::vector<double>& scores, bool positive, const std::string& transform) {
  const double s = scores[0];
  if (transform == "LOGISTIC")
    scores = {logistic(-s), logistic(s)};
  else
    scores = {positive ? 1 - s : -s, s};
  if (transform == "SOFTMAX" || transform == "SOFTMAX_ZERO") post_transform(scores, transform);
  if (transform == "PROBIT") scores = {probit(scores[0]), probit(s)};
  return s > (positive ? 0.5 : 0);
}

void write_label(const OpCall& call, std::int64_t r, std::size_t index) {
  const TensorView& y = call.out[0];
  const Attributes& attrs = call.node->attrs;
  if (y.dtype == DType::kString) {
    const auto found = attrs.find("classlabels_strings");
    const auto* words =
        found == attrs.end() ? nullptr : std::get_if<std::vector<std::string>>(&found->second);
    if (words == nullptr || index >= words->size())
      fail(ErrorCode::kBadFile, "{} has no label {}", call.node->op, index);
    y.mut<std::string>()[r] = (*words)[index];
    return;
  }
  std::vector<std::int64_t> labels = call.node->attr_ints("classlabels_int64s");
  if (labels.empty()) labels = call.node->attr_ints("classlabels_ints");
  if (!labels.empty() && index >= labels.size())
    fail(ErrorCode::kBadFile, "{} has no label {}", call.node->op, index);
  y.mut<std::int64_t>()[r] = labels.empty() ? static_cast<std::int64_t>(index) : labels[index];
}

}  // namespace pare::ml
