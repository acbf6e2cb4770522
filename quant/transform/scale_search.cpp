#include "quant/transform/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"

namespace pare::quant {
namespace {

constexpr double kLimit = 1e4;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The channel of each column of row `row`.
template <class Visit>
void for_columns(const ScaleLayer& layer, std::int64_t row, Visit&& visit) {
  const RowShape& shape = layer.weight.shape;
  const std::int64_t ins = shape.segment, groups = static_cast<std::int64_t>(layer.channel.size()) / ins;
  const std::int32_t* channel = layer.channel.data() + row / (shape.rows / groups) * ins;
  for (std::int64_t segment = 0; segment < shape.cols; segment += ins)
    for (std::int64_t i = 0; i < ins; ++i) visit(segment + i, channel[i]);
}

// By channel, over all layers.
struct WeightFacts {
  std::vector<double> amax, mean, square;  // max |W_c|; mean |W_c| / largest of its row; sum W_c^2
};

WeightFacts facts_of(const ScaleProblem& problem) {
  WeightFacts facts;
  facts.amax.assign(at(problem.channels), 0.0);
  facts.mean = facts.square = facts.amax;
  std::vector<double> count(at(problem.channels), 0.0);
  for (const ScaleLayer& layer : problem.layers) {
    for (std::int64_t row = 0; row < layer.weight.shape.rows; ++row) {
      const float* w = layer.weight.values.data() + row * layer.weight.shape.cols;
      double largest = 0;
      for_columns(layer, row, [&](std::int64_t col, std::int32_t c) {
        const double v = std::fabs(static_cast<double>(w[col]));
        largest = std::max(largest, v);
        facts.amax[at(c)] = std::max(facts.amax[at(c)], v);
        facts.square[at(c)] += v * v;
      });
      for_columns(layer, row, [&](std::int64_t col, std::int32_t c) {
        facts.mean[at(c)] += std::fabs(static_cast<double>(w[col])) / (largest + 1e-6);
        count[at(c)] += 1;
      });
    }
  }
  for (std::size_t c = 0; c < count.size(); ++c)
    if (count[c] > 0) facts.mean[c] /= count[c];
  return facts;
}

double loss_of(const ScaleProblem& problem, const WeightFacts& facts, const std::vector<float>& s);

class Search {
 public:
  explicit Search(const ScaleProblem& problem) : problem_(problem), facts_(facts_of(problem)) {
    mean_.assign(at(problem.channels), 0.0);
    for (std::int64_t r = 0; r < problem.rows(); ++r)
      for (std::int64_t c = 0; c < problem.channels; ++c)
        mean_[at(c)] += std::fabs(static_cast<double>(problem.sample[at(r * problem.channels + c)])) /
                        static_cast<double>(problem.rows());
  }

  ScaleChoice run(const ScaleFamilies& families) {
    choice_.loss_before = loss({});
    choice_.loss = choice_.loss_before;
    if (families.smooth && families.strength) {
      choice_.loss = std::numeric_limits<double>::infinity();
      consider("smoothquant", *families.strength, smooth(*families.strength));
      return choice_;
    }
    if (families.equalize && !problem_.made_by.empty()) consider("equalize", 0.5, equalized());
    if (families.equalize && !problem_.made_by.empty() && !problem_.beyond.empty())
      consider("equalize triple", 2.0 / 3, equalized_triple());
    if (families.smooth) family("smoothquant", [&](double t) { return smooth(t); });
    if (families.awq && !mean_.empty() && problem_.rows() > 0) {
      family("awq", [&](double t) { return scales(mean_, t, facts_.mean, 0); });
      family("awq duo", [&](double t) { return scales(mean_, t, facts_.mean, 1 - t); });
    }
    return choice_;
  }

 private:
  double loss(const std::vector<float>& s) {
    ++choice_.tried;
    double value = std::numeric_limits<double>::quiet_NaN();
    try {
      value = loss_of(problem_, facts_, s);
    } catch (const Error&) {
      // A quantizer that refuses W s (an overflow to infinity) refuses the candidate.
    }
    if (!std::isfinite(value)) ++choice_.skipped;
    return value;
  }

  bool consider(const char* name, double t, std::vector<float> s) {
    if (s.empty()) return false;
    const double value = loss(s);
    if (!std::isfinite(value) || value >= choice_.loss) return false;
    choice_.scales = std::move(s);
    choice_.family = name;
    choice_.strength = t;
    choice_.loss = value;
    return true;
  }

  template <class Make>
  void family(const char* name, const Make& make) {
    constexpr int kSteps = 10;
    int best = 0;
    for (int i = 1; i <= kSteps; ++i)
      if (consider(name, i / 10.0, make(i / 10.0))) best = i;
    if (best == 0) return;
    for (const int half : {2 * best - 1, 2 * best + 1})
      if (half < 2 * kSteps) consider(name, half / 20.0, make(half / 20.0));
  }

  std::vector<float> smooth(double t) const { return scales(problem_.amax, t, facts_.amax, 1 - t); }

  std::vector<float> equalized() const { return scales(problem_.made_by, 0.5, facts_.amax, 0.5); }

  std::vector<float> equalized_triple() const {
    std::vector<double> product = facts_.amax;
    for (std::size_t c = 0; c < product.size(); ++c) product[c] *= problem_.beyond[c];
    return scales(problem_.made_by, 2.0 / 3, product, 1.0 / 3);
  }

  // x^t / w^u, centred; channels without either keep 1.
  std::vector<float> scales(const std::vector<double>& x, double t, const std::vector<double>& w,
                            double u) const {
    std::vector<double> log_s(x.size(), 0.0);
    double low = std::numeric_limits<double>::infinity(), high = -low;
    const auto dead = [&](std::size_t c) {
      return !(problem_.amax[c] > 0 && x[c] > 0 && w[c] > 0 && std::isfinite(x[c]) && std::isfinite(w[c]));
    };
    for (std::size_t c = 0; c < x.size(); ++c) {
      if (dead(c)) continue;
      log_s[c] = t * std::log(x[c]) - u * std::log(w[c]);
      low = std::min(low, log_s[c]);
      high = std::max(high, log_s[c]);
    }
    if (!(high > low)) return {};  // nothing to tell channels apart
    std::vector<float> s(x.size(), 1.0f);
    for (std::size_t c = 0; c < x.size(); ++c)
      if (!dead(c))
        s[c] = static_cast<float>(std::clamp(std::exp(log_s[c] - (low + high) / 2), 1 / kLimit, kLimit));
    return s;
  }

  const ScaleProblem& problem_;
  const WeightFacts facts_;
  std::vector<double> mean_;  // of |x_c|
  ScaleChoice choice_;
};

// The rows that are tried, and which row of the layer each is.
WeightRows tried_rows(const ScaleLayer& layer, std::vector<std::int64_t>& places) {
  const std::int64_t rows = layer.weight.shape.rows, cols = layer.weight.shape.cols;
  const std::int64_t tried = layer.tried > 0 ? std::min(layer.tried, rows) : rows;
  places.resize(at(tried));
  for (std::int64_t k = 0; k < tried; ++k) places[at(k)] = (2 * k + 1) * rows / (2 * tried);
  if (tried == rows) return layer.weight;
  WeightRows some;
  some.shape = layer.weight.shape;
  some.shape.rows = tried;
  some.values.resize(at(tried * cols));
  for (std::int64_t k = 0; k < tried; ++k)
    std::copy_n(layer.weight.values.data() + places[at(k)] * cols, cols, some.values.data() + k * cols);
  return some;
}

double weight_noise(const ScaleLayer& layer, const std::vector<float>& s) {
  std::vector<std::int64_t> places;
  WeightRows rows = tried_rows(layer, places);
  const std::int64_t cols = rows.shape.cols;
  const auto scaled = [&](std::int64_t k, bool up) {
    const std::int64_t row = places[at(k)];
    float* w = rows.values.data() + k * cols;
    const float* original = layer.weight.values.data() + row * cols;
    if (s.empty()) {
      for (std::int64_t col = 0; !up && col < cols; ++col) w[col] -= original[col];
      return;
    }
    for_columns(layer, row, [&](std::int64_t col, std::int32_t c) {
      w[col] = up ? w[col] * s[at(c)] : w[col] / s[at(c)] - original[col];
    });
  };
  for (std::int64_t k = 0; k < rows.shape.rows; ++k) scaled(k, true);
  layer.round(rows, s);
  for (std::int64_t k = 0; k < rows.shape.rows; ++k) scaled(k, false);
  const std::int64_t all = layer.weight.shape.rows, tried = rows.shape.rows;
  const double noise = layer.noise(rows);
  return all == tried ? noise : noise * static_cast<double>(all) / static_cast<double>(tried);
}

double activation_noise(const ScaleProblem& problem, const WeightFacts& facts, const std::vector<float>& s) {
  const std::int64_t rows = problem.rows(), channels = problem.channels;
  if (!problem.round_activation || rows == 0) return 0;
  std::vector<float> x = problem.sample;
  if (!s.empty())
    for (std::int64_t i = 0; i < rows * channels; ++i) x[at(i)] /= s[at(i % channels)];
  double largest = 0;
  for (std::int64_t c = 0; c < channels; ++c)
    largest = std::max(largest, problem.amax[at(c)] / (s.empty() ? 1.0 : static_cast<double>(s[at(c)])));
  problem.round_activation(x.data(), rows, channels, largest);
  std::vector<double> error(at(channels), 0.0);
  for (std::int64_t i = 0; i < rows * channels; ++i) {
    const double factor = s.empty() ? 1.0 : static_cast<double>(s[at(i % channels)]);
    const double e = factor * static_cast<double>(x[at(i)]) - static_cast<double>(problem.sample[at(i)]);
    error[at(i % channels)] += e * e;
  }
  double noise = 0;
  for (std::size_t c = 0; c < error.size(); ++c)
    noise += error[c] / static_cast<double>(rows) * facts.square[c];
  return noise;
}

double loss_of(const ScaleProblem& problem, const WeightFacts& facts, const std::vector<float>& s) {
  double sum = activation_noise(problem, facts, s);
  for (const ScaleLayer& layer : problem.layers) sum += weight_noise(layer, s);
  return sum;
}

}  // namespace

std::int64_t rows_to_try(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kWork = std::int64_t{1} << 32, kLeast = 256;
  const std::int64_t some = kWork / std::max<std::int64_t>(1, cols) / std::max<std::int64_t>(1, cols);
  return std::min(rows, std::max(kLeast, some));
}

double ScaleChoice::gain_db() const {
  if (!(loss > 0) || !(loss_before > 0)) return 0;
  return 10 * std::log10(loss_before / loss);
}

double scale_loss(const ScaleProblem& problem, const std::vector<float>& s) {
  return loss_of(problem, facts_of(problem), s);
}

ScaleChoice search_scales(const ScaleProblem& problem, const ScaleFamilies& families) {
  PARE_ASSERT(problem.amax.size() == static_cast<std::size_t>(problem.channels));
  return Search(problem).run(families);
}

}  // namespace pare::quant
