#include "quant/rounding/layer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "engine/base/error.h"
#include "quant/grid/grid_search.h"
#include "quant/grid/ladder_table.h"
#include "quant/rounding/coupled_rows.h"
#include "quant/rounding/linalg.h"

namespace pare::quant {
namespace {

constexpr const char* kMethods[] = {"rtn", "search", "local_hessian", "gptq", "learned", "auto"};
constexpr std::int64_t kLargestLocal = 128;  // columns of a group, of grid_search.h

constexpr double kDescent = 0.85;  // its share of learned rounding's time, GPTQ's is the rest

bool usable(const Gram* gram) { return gram != nullptr && !gram->empty(); }
bool finite(const Gram& gram) {
  return std::all_of(gram.sums.begin(), gram.sums.end(), [](double v) { return std::isfinite(v); });
}

class Solver {
 public:
  Solver(const LayerProblem& problem, const LayerOptions& options, ThreadPool& pool)
      : in_(problem), options_(options), pool_(pool), shape_(problem.weight->shape), table_(problem.format) {
    check();
  }

  LayerSolution run() {
    if (options_.method == "auto") return choose();
    return measured(attempt(options_.method));
  }

 private:
  struct Attempt {
    Grid grid;
    std::vector<float> levels;        // empty: codes stand
    std::vector<std::uint8_t> codes;  // of grid.h's encode
    std::string method, fallback;
  };

  void check() {
    for (const float v : in_.weight->values)
      if (!std::isfinite(v))
        throw make_error(ErrorCode::kBadFile, "a weight is NaN or infinite")
            .at(layer())
            .hint("look at the training run, or leave the layer out (ignore, --exclude)");
    for (const Gram* gram : {in_.gram, in_.held_out}) {
      if (!usable(gram)) continue;
      if (gram->n != shape_.cols || gram->groups < 1 || shape_.rows % gram->groups != 0)
        throw make_error(ErrorCode::kUsage,
                         "second moments of {} columns ({} groups) for a weight of {} x {}", gram->n,
                         gram->groups, shape_.rows, shape_.cols)
            .at(layer())
            .hint("they are of another model, or of another layer: collect them again");
    }
    gram_ = usable(in_.gram) ? in_.gram : nullptr;
    if (gram_ == nullptr)
      why_not_ = in_.gram == nullptr ? "there are no second moments of its input" : "no data reached it";
    else if (!finite(*gram_)) {
      why_not_ = "the second moments of its input hold NaN or infinity";
      gram_ = nullptr;
    }
    held_out_ = usable(in_.held_out) ? in_.held_out : nullptr;
    if (held_out_ != nullptr && !finite(*held_out_)) held_out_ = nullptr;
  }
  std::string layer() const { return "layer '" + in_.name + "'"; }

  std::int64_t matrices() const { return gram_ == nullptr ? 1 : gram_->groups; }
  std::int64_t rows_each() const { return shape_.rows / matrices(); }
  const std::vector<float>& dense(std::int64_t group) {
    if (dense_group_ != group) {
      dense_ = gram_->dense(group);
      dense_group_ = group;
    }
    return dense_;
  }

  Grid searched_grid() {
    if (in_.grid != nullptr) return *in_.grid;
    GridSearch search;
    search.global = in_.global;
    std::vector<float> importance;
    for (std::int64_t g = 0; g < matrices() && gram_ != nullptr; ++g)
      for (const double v : gram_->mean_square(g)) importance.push_back(static_cast<float>(v));
    if (!importance.empty()) {
      search.importance = importance.data();
      search.importance_rows = rows_each();
    }
    return choose_grid(in_.format, shape_, in_.weight->values.data(), search, pool_);
  }

  Attempt nearest(const std::string& method) {
    Attempt a;
    a.method = method;
    if (method == "rtn" && in_.grid == nullptr) {
      GridSearch plain;
      plain.search = false;
      plain.global = in_.global;
      a.grid = choose_grid(in_.format, shape_, in_.weight->values.data(), plain, pool_);
    } else {
      a.grid = searched_grid();
    }
    a.codes.resize(in_.weight->values.size());
    encode(in_.format, shape_, a.grid, in_.weight->values.data(), a.codes.data(), pool_);
    return a;
  }

  // The grid by the output error of each group alone; "" or why there is none.
  std::string local_hessian(Attempt& a) {
    const std::int64_t group = in_.format.group;
    if (gram_ == nullptr) return "needs second moments: " + why_not_;
    if (group == 0 || group > kLargestLocal || in_.format.rows > 1)
      return fmt::format("is for groups of at most {} columns of a row", kLargestLocal);
    std::vector<float> all;
    for (std::int64_t g = 0; g < matrices(); ++g) {
      const std::vector<float>& one = dense(g);
      all.insert(all.end(), one.begin(), one.end());
    }
    GridSearch search;
    search.global = in_.global;
    search.gram = all.data();
    search.importance_rows = rows_each();
    a.grid = choose_grid(in_.format, shape_, in_.weight->values.data(), search, pool_);
    a.method = "local_hessian";
    a.codes.resize(in_.weight->values.size());
    encode(in_.format, shape_, a.grid, in_.weight->values.data(), a.codes.data(), pool_);
    return "";
  }

  // Says that `share` of the present attempt is done when all rows are.
  RowsDone ticks(double share) const {
    if (!options_.advance) return {};
    return [this, share](std::int64_t rows) {
      options_.advance(span_ * share * static_cast<double>(rows) / static_cast<double>(shape_.rows));
    };
  }

  Attempt attempt(const std::string& method) {
    if (method == "rtn" || method == "search") return nearest(method);
    if (method == "local_hessian" && in_.grid == nullptr) {
      Attempt a;
      const std::string why = local_hessian(a);
      if (why.empty()) return a;
      a = nearest("search");
      a.fallback = "local_hessian " + why;
      return a;
    }
    if (method == "local_hessian") return nearest("search");
    if (gram_ == nullptr) {
      Attempt a = nearest("search");
      a.fallback = method + " needs second moments: " + why_not_;
      return a;
    }
    Attempt a;
    a.method = method;
    a.grid = searched_grid();
    a.levels.resize(in_.weight->values.size());
    for (std::int64_t g = 0; g < matrices(); ++g) {
      const std::int64_t begin = g * rows_each(), end = begin + rows_each();
      std::string failure = gptq_group(a, g, begin, end);
      if (method == "learned") failure = learn_group(a, g, begin, end, failure);
      if (failure.empty()) continue;
      Attempt fallen = nearest("search");
      fallen.fallback = method + " failed: " + failure;
      return fallen;
    }
    return a;
  }

  std::string gptq_group(Attempt& a, std::int64_t g, std::int64_t begin, std::int64_t end) {
    const GptqFactor factor =
        gptq_factor(dense(g).data(), in_.format, shape_, options_.damp, options_.order, pool_);
    // A convolution group that is never reached: any code does.
    if (!factor.failure.empty() && !(matrices() > 1 && dense(g)[0] == 0)) return factor.failure;
    if (factor.failure.empty()) {
      gptq_rows(factor, in_.format, shape_, a.grid, in_.weight->values.data(), begin, end, a.levels.data(),
                pool_, ticks(a.method == "learned" ? 1 - kDescent : 1));
      return "";
    }
    round_rows(a, begin, end);
    return "";
  }

  void round_rows(Attempt& a, std::int64_t begin, std::int64_t end) {
    const std::vector<std::int32_t> group = groups_of_columns(in_.format, shape_);
    const std::int64_t groups = groups_of(in_.format, shape_);
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < shape_.cols; ++c) {
        const auto cell = static_cast<std::size_t>(r * groups + group[static_cast<std::size_t>(c)]);
        const float zero = a.grid.zero_points.empty() ? 0.0f : static_cast<float>(a.grid.zero_points[cell]);
        const auto i = static_cast<std::size_t>(r * shape_.cols + c);
        a.levels[i] = table_.get().round(in_.weight->values[i] / a.grid.scales[cell], zero);
      }
  }

  std::string learn_group(Attempt& a, std::int64_t g, std::int64_t begin, std::int64_t end,
                          const std::string& gptq_failure) {
    if (!gptq_failure.empty()) round_rows(a, begin, end);  // descent needs no factor of the whole
    const RoundingMatrix matrix(dense(g).data(), in_.format, shape_, options_.rounding.ridge, pool_);
    if (!matrix.usable()) return "the second moments of a group of columns are indefinite";
    RoundingOptions options = options_.rounding;
    // A row alone cannot move a scale that it shares.
    options.scales = options.scales && in_.grid == nullptr && in_.format.rows == 1;
    options.rows_done = ticks(kDescent);
    learn_rounding(matrix, in_.format, shape_, in_.weight->values.data(), begin, end, a.grid, a.levels.data(),
                   options, pool_);
    return "";
  }

  // The quantized weight, as a reader sees it.
  std::vector<float> decoded(Attempt& a) {
    if (a.codes.empty()) {
      a.codes.resize(a.levels.size());
      std::vector<float> zeros;
      if (!a.grid.zero_points.empty()) {
        const std::vector<std::int32_t> group = groups_of_columns(in_.format, shape_);
        const std::int64_t groups = groups_of(in_.format, shape_);
        zeros.resize(a.levels.size());
        for (std::size_t i = 0; i < zeros.size(); ++i) {
          const auto r = static_cast<std::int64_t>(i) / shape_.cols,
                     c = static_cast<std::int64_t>(i) % shape_.cols;
          zeros[i] = static_cast<float>(
              a.grid.zero_points[static_cast<std::size_t>(r * groups + group[static_cast<std::size_t>(c)])]);
        }
      }
      table_.codes(a.levels.data(), zeros.empty() ? nullptr : zeros.data(),
                   static_cast<std::int64_t>(a.levels.size()), a.codes.data());
    }
    std::vector<float> image(a.codes.size());
    decode(in_.format, shape_, a.grid, a.codes.data(), image.data(), pool_);
    return image;
  }

  LayerSolution measured(Attempt a) {
    const std::vector<float> image = decoded(a);
    LayerSolution s;
    LayerPower& power = in_.power != nullptr ? *in_.power : power_;
    const LayerLoss fit = layer_loss(*in_.weight, image.data(), gram_, pool_, power.fit);
    power.fit = fit.power;
    s.loss = fit.loss;
    s.relative_loss = fit.power > 0 ? fit.loss / fit.power : 0;
    s.sqnr_db = -10 * std::log10(s.relative_loss);
    s.held_out_loss = std::numeric_limits<double>::quiet_NaN();
    if (held_out_ != nullptr) {
      const LayerLoss other = layer_loss(*in_.weight, image.data(), held_out_, pool_, power.held_out);
      power.held_out = other.power;
      s.held_out_loss = other.power > 0 ? other.loss / other.power : 0;
    }
    s.grid = std::move(a.grid);
    s.codes = std::move(a.codes);
    s.method = a.method;
    s.fallback = a.fallback;
    return s;
  }

  LayerSolution choose() {
    std::optional<LayerSolution> best;
    std::vector<LayerCandidate> candidates;
    double least = 0;
    for (const char* method : {"rtn", "search", "gptq", "learned"}) {
      if (gram_ == nullptr && candidates.size() == 2) break;
      span_ = std::string(method) == "learned" ? kDescent : 1 - kDescent;
      LayerSolution s = measured(attempt(method));
      if (!s.fallback.empty()) {
        candidates.push_back({method, std::numeric_limits<double>::quiet_NaN()});
        continue;
      }
      const double loss = std::isnan(s.held_out_loss) ? s.relative_loss : s.held_out_loss;
      candidates.push_back({method, loss});
      if (std::isnan(loss) || (best.has_value() && !(loss < least))) continue;
      least = loss;
      best = std::move(s);
    }
    if (!best.has_value())
      throw make_error(ErrorCode::kUsage, "no method has a finite loss")
          .at(layer())
          .hint(
              "look at the layer's weights and samples for NaN and infinity, or leave it out (ignore, "
              "--exclude)");
    best->candidates = std::move(candidates);
    if (gram_ == nullptr) best->fallback = "gptq and learned rounding need second moments: " + why_not_;
    return *best;
  }

  const LayerProblem& in_;
  const LayerOptions& options_;
  ThreadPool& pool_;
  RowShape shape_;
  LadderTable table_;
  const Gram *gram_ = nullptr, *held_out_ = nullptr;
  std::string why_not_;
  double span_ = 1;  // what the present attempt is of the layer's work
  std::vector<float> dense_;
  std::int64_t dense_group_ = -1;
  LayerPower power_;
};

}  // namespace

void check_layer_method(const std::string& method) {
  if (std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods)) return;
  Error error = make_error(ErrorCode::kUsage, "'{}' is no method of a layer", method)
                    .hint("`pare quantize --help` lists the methods");
  const std::string near = nearest_word(method, kMethods, std::size(kMethods));
  if (!near.empty()) error.hint("did you mean '" + near + "'?");
  throw error;
}

LayerSolution solve_layer(const LayerProblem& problem, const LayerOptions& options, ThreadPool& pool) {
  PARE_ASSERT(problem.weight != nullptr);
  check_layer_method(options.method);
  if (std::optional<LayerSolution> coupled = solve_coupled(problem, options, pool)) return *coupled;
  return Solver(problem, options, pool).run();
}

LayerLoss layer_loss(const WeightRows& weight, const float* quantized, const Gram* gram, ThreadPool& pool,
                     double power) {
  const std::int64_t n = weight.shape.cols;
  std::vector<float> error(weight.values.size());
  for (std::size_t i = 0; i < error.size(); ++i) error[i] = weight.values[i] - quantized[i];
  LayerLoss result;
  const bool known = power >= 0;
  if (known) result.power = power;
  if (gram == nullptr || gram->empty()) {
    for (std::size_t i = 0; i < error.size(); ++i) {
      result.loss += static_cast<double>(error[i]) * static_cast<double>(error[i]);
      if (!known)
        result.power += static_cast<double>(weight.values[i]) * static_cast<double>(weight.values[i]);
    }
    return result;
  }
  const std::int64_t rows = weight.shape.rows / gram->groups;
  for (std::int64_t g = 0; g < gram->groups; ++g) {
    const std::vector<float> dense = gram->dense(g);
    for (const double v : quadratic_loss(error.data() + g * rows * n, rows, n, dense.data(), pool))
      result.loss += v;
    if (known) continue;
    for (const double v : quadratic_loss(weight.values.data() + g * rows * n, rows, n, dense.data(), pool))
      result.power += v;
  }
  return result;
}

double held_out_loss(const WeightRows& weight, const float* quantized, const Gram& held_out,
                     ThreadPool& pool) {
  if (held_out.empty() || !finite(held_out)) return std::numeric_limits<double>::quiet_NaN();
  PARE_ASSERT(held_out.n == weight.shape.cols && weight.shape.rows % held_out.groups == 0);
  const LayerLoss loss = layer_loss(weight, quantized, &held_out, pool);
  return loss.power > 0 ? loss.loss / loss.power : 0;
}

}  // namespace pare::quant
