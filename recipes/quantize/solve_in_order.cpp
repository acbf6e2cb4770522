#include "recipes/quantize/solve_in_order.h"

#include <algorithm>
#include <map>

#include "calib/gram.h"
#include "engine/base/error.h"
#include "quant/rounding/linalg.h"
#include "quant/rounding/low_rank.h"
#include "quant/rounding/retarget.h"
#include "recipes/quantize/graph_stepper.h"

namespace pare {
namespace {

// Layers that read one value, all of them before any of the next level's.
struct Level {
  ValueId x = ValueId::kNone, rounded = ValueId::kNone;  // in the float and in the quantized graph
  std::vector<std::size_t> sites;
};

bool follows(const std::string& method) {
  return method == "auto" || method == "local_hessian" || method == "gptq" || method == "learned" ||
         method == "low_rank";
}

class InOrder {
 public:
  InOrder(const Graph& graph, const quant::Plan& plan, Dataset& data, const InOrderOptions& options,
          Progress& progress, ThreadPool& pool)
      : graph_(graph),
        plan_(plan),
        options_(options),
        progress_(progress),
        pool_(pool),
        rounded_(activations_only(graph, plan)),
        float_steps_(graph, data, options.samples, pool),
        steps_(rounded_, data, options.samples, pool),
        plans_(plan.weights) {}

  std::vector<quant::WeightPlan> run() {
    const std::vector<Level> levels = find_levels();
    ProgressStep step(progress_, "layers in order", static_cast<std::int64_t>(levels.size()));
    // What is not solved here is quantized from the start.
    std::vector<bool> solved(plans_.size(), false);
    for (const Level& level : levels)
      for (const std::size_t i : level.sites) solved[i] = true;
    for (std::size_t i = 0; i < plans_.size(); ++i)
      if (!solved[i]) use(i);
    for (const Level& level : levels) {
      solve(level);
      step.advance(1);
    }
    return std::move(plans_);
  }

  // What low-rank products and the weights beside them became.
  const std::map<ValueId, Tensor>& constants() const { return constants_; }

 private:
  static Graph activations_only(const Graph& graph, const quant::Plan& plan) {
    quant::Plan part;
    part.placement = plan.placement;
    part.placement.weights.clear();
    part.placement.fused.clear();
    part.placement.biases.clear();
    part.activations = plan.activations;
    return quant::apply(graph, part);
  }

  void use(std::size_t i) {
    const quant::WeightSite& site = plan_.placement.weights[i];
    if (site.path.empty()) steps_.set_constant(site.value, quant::dequantized(site, plans_[i]));
  }

  std::vector<Level> find_levels() const {
    std::map<ValueId, Level> by_value;
    for (std::size_t i = 0; i < plan_.placement.weights.size(); ++i) {
      const quant::WeightSite& site = plan_.placement.weights[i];
      if (!site.path.empty() || site.uses.size() != 1 || site.uses[0].slot != 1 || !follows(site.method))
        continue;
      const Node& node = graph_.node(site.uses[0].node);
      const bool plain = node.is("MatMul") || (node.is("Gemm") && node.attr("transA", std::int64_t{0}) == 0);
      if (!plain || graph_.value(site.value).constant.dims().size() != 2) continue;
      Level& level = by_value[node.in[0]];
      level.x = node.in[0];
      level.rounded = rounded_.node(site.uses[0].node).in[0];
      level.sites.push_back(i);
    }
    std::map<NodeId, std::size_t> places;
    const std::vector<NodeId> order = rounded_.nodes();
    for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = i + 1;
    const auto place = [&](const Level& level) {
      const NodeId producer = rounded_.producer(level.rounded);
      return producer == NodeId::kNone ? 0 : places.at(producer);
    };
    std::vector<Level> levels;
    for (auto& entry : by_value) levels.push_back(std::move(entry.second));
    std::sort(levels.begin(), levels.end(),
              [&](const Level& a, const Level& b) { return place(a) < place(b); });
    return levels;
  }

  // Do both graphs have the same rows of a value, one for one? Not where the data decides which there are:
  // the tokens that an expert gets.
  bool is_paired(ValueId x) const {
    const Shape& shape = graph_.value(x).shape;
    for (int i = 0; i + 1 < shape.rank(); ++i) {
      const Dim& dim = shape.dims[static_cast<std::size_t>(i)];
      const bool of_input = std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [&](ValueId input) {
        const std::vector<Dim>& dims = graph_.value(input).shape.dims;
        return std::any_of(dims.begin(), dims.end(), [&](const Dim& d) { return d.same(dim); });
      });
      if (!dim.known() && !of_input) return false;
    }
    return shape.rank() > 0;
  }

  // The stream that a layer's output is added to; kNone: there is none, or it is not known yet.
  ValueId stream_of(NodeId layer) const {
    if (!options_.residual) return ValueId::kNone;
    ValueId y = graph_.node(layer).out[0];
    NodeId add = graph_.only_user(y);
    if (product_of(layer).there() && add != NodeId::kNone) {  // the sum with the product first
      y = graph_.node(add).out[0];
      add = graph_.only_user(y);
    }
    if (add == NodeId::kNone || !graph_.node(add).is("Add")) return ValueId::kNone;
    const std::vector<ValueId>& in = graph_.node(add).in;
    const ValueId other = in[0] == y ? in[1] : in[0];
    const bool same = rounded_.node(add).in[in[0] == y ? 1 : 0] == other && !graph_.is_constant(other) &&
                      other != y && to_string(graph_.value(other).shape) == to_string(graph_.value(y).shape);
    return same && float_steps_.holds(other) && steps_.holds(other) ? other : ValueId::kNone;
  }

  // Rows of a value of one batch: its last axis.
  static const float* rows(const GraphStepper& steps, std::size_t batch, ValueId id, std::int64_t columns,
                           std::int64_t& count) {
    const Tensor& tensor = steps.at(batch, id);
    if (tensor.dtype() != DType::kF32)
      fail(ErrorCode::kUnsupported, "'{}' is {}, not float32", steps.graph().value(id).name,
           name(tensor.dtype()));
    count = columns == 0 ? 0 : tensor.size() / columns;
    return tensor.as<float>();
  }

  // B (A x') beside a layer, x' its input before rounding.
  struct Product {
    ValueId a = ValueId::kNone, b = ValueId::kNone;
    bool there() const { return a != ValueId::kNone; }
  };
  Product product_of(NodeId layer) const {
    const std::string& out = graph_.value(graph_.node(layer).out[0]).name;
    const std::string end = "_without_low_rank";
    if (out.size() <= end.size() || out.compare(out.size() - end.size(), end.size(), end) != 0) return {};
    const std::string base = out.substr(0, out.size() - end.size());
    return {graph_.find_value(base + "_low_rank_A"), graph_.find_value(base + "_low_rank_B")};
  }

  // Second moments of xh, of it and x - xh, and the error of a stream where there is one. With `before`
  // rounding: of xh and xb - xh, xb the layer's input before it is rounded, and all of these with xb.
  struct Moments {
    Gram xh;
    std::vector<double> to_difference;  // E[(x - xh) xh^T], [n][n]
    std::vector<double> to_stream;      // E[(h - hh) xh^T], [m][n]; empty without a stream
    std::vector<double> rounding;       // E[(xb - xh) xh^T]
    std::vector<double> before;         // E[xb xb^T]
    std::vector<double> before_difference, before_stream, before_xh;  // E[(x - xh) xb^T], ..., E[xh xb^T]
  };

  // Columns of a Gram matrix of several values, and its halves: samples to fit, samples to judge.
  struct Sums {
    bool paired = false, before = false, stream = false;
    std::int64_t n = 0, m = 0;
    Gram fit, held_out;
    std::int64_t first_stream() const { return (before ? 3 : 2) * n; }
    std::int64_t width() const { return !paired ? n : first_stream() + (stream ? m : 0); }
  };

  Sums collect(const Level& level, std::int64_t n, ValueId stream, std::int64_t m, bool before) {
    Sums sums;
    sums.paired = is_paired(level.x);
    sums.before = before = before && sums.paired;
    sums.stream = sums.paired && stream != ValueId::kNone;
    sums.n = n;
    sums.m = m;
    const std::int64_t width = sums.width(), first_stream = sums.first_stream();
    const std::string& name = graph_.value(level.x).name;
    GramAccumulator fit(name, width, 1, pool_), held_out(name, width, 1, pool_);
    PARE_ASSERT(fit.column_stride() == 1);
    const auto samples_of = [&](std::size_t b) { return steps_.at(b, graph_.inputs[0]).dims().at(0); };
    std::int64_t samples = 0, first = 0;
    for (std::size_t b = 0; b < steps_.batches(); ++b) samples += samples_of(b);
    const std::int64_t judged = sums.paired ? samples / 4 : 0;  // the last ones
    for (std::size_t b = 0; b < steps_.batches(); ++b) {
      std::int64_t count = 0, of_stream = 0;
      const float* x = sums.paired ? rows(float_steps_, b, level.x, n, count) : nullptr;
      const float* xh = rows(steps_, b, options_.rounded || before ? level.rounded : level.x, n, count);
      const float* xb = before ? rows(steps_, b, level.x, n, count) : nullptr;
      const float *h = nullptr, *hh = nullptr;
      if (sums.stream) {
        h = rows(float_steps_, b, stream, m, of_stream);
        hh = rows(steps_, b, stream, m, of_stream);
        PARE_ASSERT(of_stream == count);
      }
      const std::int64_t to_fit = std::clamp<std::int64_t>(samples - judged - first, 0, samples_of(b));
      const std::int64_t border = judged == 0 ? count : count / samples_of(b) * to_fit;
      first += samples_of(b);
      for (std::int64_t at = 0; at < count;) {
        GramAccumulator& sum = at < border ? fit : held_out;
        std::int64_t k = (at < border ? border : count) - at;
        float* out = sum.rows(k);
        pool_.parallel_for(k, 16, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            float* row = out + i * width;
            std::copy_n(xh + (at + i) * n, n, row);
            for (std::int64_t c = 0; x != nullptr && c < n; ++c) row[n + c] = x[(at + i) * n + c] - row[c];
            for (std::int64_t c = 0; xb != nullptr && c < n; ++c)
              row[2 * n + c] = xb[(at + i) * n + c] - row[c];
            for (std::int64_t c = 0; h != nullptr && c < m; ++c)
              row[first_stream + c] = h[(at + i) * m + c] - hh[(at + i) * m + c];
          }
        });
        sum.commit(k);
        at += k;
      }
    }
    sums.fit = fit.finish();
    sums.held_out = held_out.finish();
    return sums;
  }

  static Moments moments_of(const Sums& sums, const Gram& all) {
    const std::int64_t n = sums.n, m = sums.m, first_stream = sums.first_stream();
    const bool paired = sums.paired, before = sums.before;
    Moments result;
    result.xh.name = all.name;
    result.xh.n = n;
    result.xh.count = all.count;
    result.xh.nonfinite = all.nonfinite;
    result.xh.sums.resize(static_cast<std::size_t>(Gram::triangle(n)));
    result.xh.totals.assign(all.totals.begin(), all.totals.begin() + n);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = i; j < n; ++j)
        result.xh.sums[static_cast<std::size_t>(result.xh.index(i, j))] = all.at(0, i, j);
    if (!paired) return result;
    const double count = std::max(1.0, static_cast<double>(all.count));
    const auto block = [&](std::int64_t first, std::int64_t rows) {
      std::vector<double> part(static_cast<std::size_t>(rows * n));
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          part[static_cast<std::size_t>(i * n + j)] = all.at(0, j, first + i) / count;
      return part;
    };
    result.to_difference = block(n, n);
    if (sums.stream) result.to_stream = block(first_stream, m);
    if (!before) return result;
    result.rounding = block(2 * n, n);
    // xb = xh + r: sums of what is there.
    const auto with_before = [&](std::int64_t first, std::int64_t rows) {
      std::vector<double> part(static_cast<std::size_t>(rows * n));
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          part[static_cast<std::size_t>(i * n + j)] =
              (all.at(0, first + i, j) + all.at(0, first + i, 2 * n + j)) / count;
      return part;
    };
    result.before_xh = with_before(0, n);
    result.before_difference = with_before(n, n);
    if (sums.stream) result.before_stream = with_before(first_stream, m);
    result.before = with_before(2 * n, n);
    for (std::size_t i = 0; i < result.before.size(); ++i) result.before[i] += result.before_xh[i];
    return result;
  }

  // rows X [n][n] added to `sum`, times `factor`.
  void add_product(const float* left, const std::vector<double>& right, std::int64_t m, std::int64_t n,
                   double factor, std::vector<double>& sum) {
    pool_.parallel_for(m, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        double* out = sum.data() + r * n;
        for (std::int64_t k = 0; k < n; ++k) {
          const double w = factor * static_cast<double>(left[r * n + k]);
          const double* d = right.data() + k * n;
          for (std::int64_t j = 0; j < n; ++j) out[j] += w * d[j];
        }
      }
    });
  }

  // Codes and product in turns: codes for what the product leaves, the product for what the codes leave, both
  // by the layer's error with its input as it will be. Returns the rows that the codes are to stand for.
  quant::WeightRows fit_product(const quant::WeightSite& site, const quant::WeightRows& whole,
                                const Moments& moments, const std::vector<float>& gram,
                                const LayerGrams& grams, quant::LowRank& part) {
    constexpr int kRounds = 3;
    const std::int64_t m = whole.shape.rows, n = whole.shape.cols;
    const quant::GridFormat format = quant::grid_format(site.format);
    const auto target_of = [&]() {
      quant::WeightRows target = quant::without(whole, part);
      quant::WeightRows ba = whole;  // BA = whole - target
      for (std::size_t i = 0; i < ba.values.size(); ++i) ba.values[i] -= target.values[i];
      std::vector<double> cross(static_cast<std::size_t>(m * n), 0.0);
      if (!moments.to_stream.empty()) cross = moments.to_stream;
      add_product(whole.values.data(), moments.to_difference, m, n, 1, cross);
      add_product(ba.values.data(), moments.rounding, m, n, -1, cross);
      quant::retarget(target, gram, cross, ridge_);
      return target;
    };
    for (int round = 0; round < kRounds; ++round) {
      const quant::WeightRows target = target_of();
      quant::WeightSite quick = site;
      quick.method = "gptq";
      const SolvedRows solved = solve_rows(graph_.value(site.value).name, quick, target,
                                           grams.find(site).get(), 0, options_.solve, pool_);
      quant::WeightRows rounded = target;
      quant::decode(format, target.shape, solved.grid, solved.codes.data(), rounded.values.data(), pool_);
      // What is left, by regression on xb: W - Q, and what differs between x, xh and xb.
      quant::WeightRows left = whole;
      for (std::size_t i = 0; i < left.values.size(); ++i) left.values[i] -= rounded.values[i];
      // W x + r - Q xh = (W - Q) xb + W (x - xh) - (W - Q)(xb - xh) + r
      std::vector<double> cross(static_cast<std::size_t>(m * n), 0.0);
      if (!moments.before_stream.empty()) cross = moments.before_stream;
      add_product(whole.values.data(), moments.before_difference, m, n, 1, cross);
      std::vector<double> rounding = moments.before;
      for (std::size_t i = 0; i < rounding.size(); ++i) rounding[i] -= moments.before_xh[i];
      add_product(left.values.data(), rounding, m, n, -1, cross);
      const std::vector<float> before(moments.before.begin(), moments.before.end());
      if (!quant::retarget(left, before, cross, ridge_)) break;
      part = quant::low_rank_of(left, moments.before.data(), part.rank, pool_);
    }
    return target_of();
  }

  // The product beside a layer, if it has one: fitted, and what the codes are to stand for.
  bool refit(const quant::WeightSite& site, const Moments& moments, const std::vector<float>& gram,
             const LayerGrams& grams, quant::WeightRows& rows) {
    const Product product = product_of(site.uses[0].node);
    if (!product.there() || moments.before.empty()) return false;
    const Tensor &a = graph_.value(product.a).constant, &b = graph_.value(product.b).constant;
    quant::LowRank part;
    part.rank = a.dims()[1];
    const auto turn = [](const Tensor& t) {  // [r, c] to [c, r]
      std::vector<float> out(static_cast<std::size_t>(t.size()));
      for (std::int64_t i = 0; i < t.dims()[0]; ++i)
        for (std::int64_t j = 0; j < t.dims()[1]; ++j)
          out[static_cast<std::size_t>(j * t.dims()[0] + i)] = t.as<float>()[i * t.dims()[1] + j];
      return out;
    };
    part.a = turn(a);
    part.b = turn(b);
    quant::WeightRows whole = rows;  // W = residual + BA
    const quant::WeightRows less = quant::without(rows, part);
    for (std::size_t i = 0; i < whole.values.size(); ++i) whole.values[i] += rows.values[i] - less.values[i];
    rows = fit_product(site, whole, moments, gram, grams, part);
    const auto back = [&](const std::vector<float>& values, const Tensor& like) {
      Tensor t = Tensor::allocate(DType::kF32, like.dims());
      const std::int64_t r = like.dims()[0], c = like.dims()[1];
      for (std::int64_t i = 0; i < r; ++i)
        for (std::int64_t j = 0; j < c; ++j)
          t.mut<float>()[i * c + j] = values[static_cast<std::size_t>(j * r + i)];
      return t;
    };
    constants_[product.a] = back(part.a, a);
    constants_[product.b] = back(part.b, b);
    const Tensor& weight = graph_.value(site.value).constant;
    constants_[site.value] = quant::scatter_rows(
        quant::without(whole, part), quant::site_view(row_site(site), weight.dims()), weight.dims());
    steps_.set_constant(product.a, constants_[product.a]);
    steps_.set_constant(product.b, constants_[product.b]);
    return true;
  }

  static Gram added(Gram a, const Gram& b) {
    a.count += b.count;
    a.nonfinite += b.nonfinite;
    for (std::size_t i = 0; i < a.sums.size(); ++i) a.sums[i] += b.sums[i];
    for (std::size_t i = 0; i < a.totals.size(); ++i) a.totals[i] += b.totals[i];
    return a;
  }

  // The pull of the regression towards the weights that does best on samples it was not fitted to; 0: none of
  // them does better than the weights themselves.
  double choose_ridge(const Sums& sums, const std::vector<quant::WeightRows>& weights) {
    if (!sums.paired || sums.fit.empty()) return 0;
    if (sums.held_out.empty()) return options_.ridge;
    const Moments fit = moments_of(sums, sums.fit), other = moments_of(sums, sums.held_out);
    const std::vector<float> gram = fit.xh.dense(0), judge = other.xh.dense(0);
    double best = 0, least = 0;
    for (const double factor : {1.0, 10.0, 100.0, 1000.0}) {
      double loss = 0;  // less that of the weights: -2 <D, E[t xh^T]> + D Gh D^T, D = V - W
      for (const quant::WeightRows& w : weights) {
        quant::WeightRows v = w;
        if (!quant::retarget(v, gram, cross(w, fit, sums.stream), options_.ridge * factor)) return 0;
        const std::vector<double> target = cross(w, other, sums.stream);
        for (std::size_t i = 0; i < v.values.size(); ++i) {
          v.values[i] -= w.values[i];
          loss -= 2 * static_cast<double>(v.values[i]) * target[i];
        }
        for (const double one :
             quant::quadratic_loss(v.values.data(), v.shape.rows, v.shape.cols, judge.data(), pool_))
          loss += one;
      }
      if (loss < least) {
        least = loss;
        best = options_.ridge * factor;
      }
    }
    return best;
  }

  // E[t xh^T] of a layer, t = W (x - xh) + (h - hh).
  std::vector<double> cross(const quant::WeightRows& weight, const Moments& moments, bool with_stream) {
    const std::int64_t m = weight.shape.rows, n = weight.shape.cols;
    std::vector<double> result(static_cast<std::size_t>(m * n), 0.0);
    if (with_stream) result = moments.to_stream;
    add_product(weight.values.data(), moments.to_difference, m, n, 1, result);
    return result;
  }

  void solve(const Level& level) {
    const quant::WeightSite& first = plan_.placement.weights[level.sites[0]];
    const auto site_rows = [&](std::size_t i) {
      const quant::WeightSite& site = plan_.placement.weights[i];
      return quant::site_rows(graph_.value(site.value).constant, row_site(site));
    };
    // The stream must be held when the level's input is there: it is, since the sum behind still needs it.
    float_steps_.advance_to(level.x);
    const bool product = std::any_of(level.sites.begin(), level.sites.end(), [&](std::size_t i) {
      return product_of(plan_.placement.weights[i].uses[0].node).there();
    });
    if (product || !options_.rounded)
      steps_.advance_to(level.rounded, {level.x});
    else
      steps_.advance_to(level.rounded);
    const ValueId stream = level.sites.size() == 1 ? stream_of(first.uses[0].node) : ValueId::kNone;
    const quant::WeightRows first_rows = site_rows(level.sites[0]);
    const Sums sums = collect(level, first_rows.shape.cols, stream, first_rows.shape.rows, product);
    std::vector<quant::WeightRows> weights;
    for (const std::size_t i : level.sites) weights.push_back(site_rows(i));
    ridge_ = choose_ridge(sums, weights);
    const Moments moments = moments_of(sums, added(sums.fit, sums.held_out));
    if (moments.xh.empty()) {
      for (const std::size_t i : level.sites) {
        plans_[i].record.fallback = "no data reached it in the quantized model";
        use(i);
      }
      return;
    }
    const std::vector<float> gram = moments.xh.dense(0);
    Graph target = graph_;
    LayerGrams grams;
    quant::Placement unit;
    for (const std::size_t i : level.sites) {
      const quant::WeightSite& site = plan_.placement.weights[i];
      quant::WeightRows rows = site_rows(i);
      const Tensor& weight = graph_.value(site.value).constant;
      GramPair pair = {moments.xh, {}};
      if (options_.grams != nullptr)
        if (const auto known = options_.grams->find(site); known != nullptr) pair.outputs = known->outputs;
      grams.set(site.path, site.uses[0].node, std::move(pair));
      if (!moments.to_difference.empty() && ridge_ > 0 &&
          (refit(site, moments, gram, grams, rows) ||
           quant::retarget(rows, gram, cross(rows, moments, !moments.to_stream.empty()), ridge_)))
        target.value(site.value).constant =
            quant::scatter_rows(rows, quant::site_view(row_site(site), weight.dims()), weight.dims());
      unit.weights.push_back(site);
      if (site.method == "auto" || site.method == "low_rank") unit.weights.back().method = "learned";
    }
    // Groups that share a global scale, by their places in the unit.
    for (const quant::FusedLayers& fused : plan_.placement.fused) {
      quant::FusedLayers part;
      part.kind = fused.kind;
      for (const std::size_t i : fused.weights) {
        const auto it = std::find(level.sites.begin(), level.sites.end(), i);
        if (it != level.sites.end())
          part.weights.push_back(static_cast<std::size_t>(it - level.sites.begin()));
      }
      if (part.weights.size() != fused.weights.size()) continue;
      for (const std::size_t k : part.weights) unit.weights[k].fused = static_cast<int>(unit.fused.size());
      unit.fused.push_back(std::move(part));
    }
    for (std::size_t k = 0; k < unit.weights.size(); ++k)
      if (std::none_of(unit.fused.begin(), unit.fused.end(), [&](const quant::FusedLayers& f) {
            return std::find(f.weights.begin(), f.weights.end(), k) != f.weights.end();
          }))
        unit.weights[k].fused = -1;
    SolveOptions solve = options_.solve;
    solve.searched = false;
    std::vector<quant::WeightPlan> plans =
        solve_weights(target, unit, grams, solve, nullptr, no_progress(), pool_);
    for (std::size_t k = 0; k < plans.size(); ++k) {
      plans_[level.sites[k]] = std::move(plans[k]);
      use(level.sites[k]);
    }
  }

  const Graph& graph_;
  const quant::Plan& plan_;
  const InOrderOptions& options_;
  Progress& progress_;
  ThreadPool& pool_;
  Graph rounded_;  // the float graph with rounded activations; ids are those of graph_
  GraphStepper float_steps_, steps_;
  std::vector<quant::WeightPlan> plans_;
  std::map<ValueId, Tensor> constants_;
  double ridge_ = 0;  // of the level at hand
};

}  // namespace

std::vector<quant::WeightPlan> solve_in_order(Graph& graph, const quant::Plan& plan, Dataset& data,
                                              const InOrderOptions& options, Progress& progress,
                                              ThreadPool& pool) {
  InOrder solver(graph, plan, data, options, progress, pool);
  std::vector<quant::WeightPlan> plans = solver.run();
  for (auto& [id, tensor] : solver.constants()) graph.value(id).constant = tensor;
  return plans;
}

}  // namespace pare
