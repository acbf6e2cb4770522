#include "recipes/quantize/scale_layers.h"

#include <algorithm>
#include <cmath>

#include "calib/channel_sample.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_search.h"
#include "quant/rounding/linalg.h"
#include "quant/transform/activation_rounding.h"

namespace pare {
namespace {

// Less than this is within what a prediction leaves out; a Mul must be worth an operator.
constexpr double kLeastGainDb = 0.1, kLeastGainOfMulDb = 0.5;
// What nobody asked for by name must be worth it on every run of the model: a Mul between two layers stands
// between the codes of one and those of the other.
constexpr double kLeastGainOfAutoMulDb = 3;

const quant::WeightSite* site_of(const quant::Placement& placement, const SubgraphPath& path, NodeId node) {
  for (const quant::WeightSite& site : placement.weights)
    for (const Use& use : site.uses)
      if (site.path == path && use.node == node && use.slot == 1) return &site;
  return nullptr;
}

const quant::ActivationSite* read_by(const quant::Placement& placement, const SubgraphPath& path,
                                     NodeId node) {
  for (const quant::ActivationSite& site : placement.activations)
    for (const Use& use : site.uses)
      if (site.path == path && use.node == node && use.slot == 0) return &site;
  return nullptr;
}

quant::ScaleFamilies families_of(const std::string& method) {
  quant::ScaleFamilies families;
  families.smooth = method == "smoothquant" || method == "auto";
  families.awq = method == "awq" || method == "auto";
  families.equalize = method == "equalize" || method == "auto";
  return families;
}

// p_c: the largest weight of the one linear node that makes channel c.
std::vector<double> made_by(const Graph& graph, const quant::ScaleGroup& group) {
  std::vector<double> amax(static_cast<std::size_t>(group.channels), 0.0);
  int makers = 0;
  for (const quant::FoldEdit& edit : group.fold.edits) {
    if (!edit.weight) continue;
    ++makers;
    const Node& node = graph.node(edit.node);
    const Tensor& w = graph.value(node.in[static_cast<std::size_t>(edit.slot)]).constant;
    std::size_t axis = 0;  // of the output channels: where the map varies
    for (std::size_t i = 0; i < edit.map.dims.size(); ++i)
      if (edit.map.dims[i] > 1) axis = i;
    const auto outs = static_cast<std::int64_t>(edit.map.channel.size());
    if (outs < 2 || w.dims().size() <= axis || w.dims()[axis] != outs) continue;
    std::int64_t inner = 1;
    for (std::size_t i = axis + 1; i < w.dims().size(); ++i) inner *= w.dims()[i];
    for (std::int64_t k = 0; k < w.size(); ++k) {
      const std::int32_t channel = edit.map.channel[static_cast<std::size_t>(k / inner % outs)];
      if (channel < 0) continue;
      double& a = amax[static_cast<std::size_t>(channel)];
      a = std::max(a, std::fabs(static_cast<double>(w.as<float>()[k])));
    }
  }
  return makers == 1 ? amax : std::vector<double>{};
}

// Where the group's only layer is depthwise: for each channel the largest weight of the layers behind it,
// what a triple is equalized with. Empty elsewhere.
std::vector<double> behind_depthwise(const Graph& graph, const quant::ScaleGroup& group) {
  if (group.consumers.size() != 1) return {};
  const Node& node = graph.node(group.consumers.front());
  quant::WeightView view;
  if (!node.is("Conv") || !quant::view_weight(graph, node, view) || view.ins != 1 || view.outs != view.groups)
    return {};
  ValueId x = node.out[0];
  for (NodeId next = graph.only_user(x); next != NodeId::kNone; next = graph.only_user(x)) {
    const Node& reader = graph.node(next);
    quant::WeightView behind;
    if (quant::view_weight(graph, reader, behind)) {
      if (!reader.is("Conv") || behind.groups != 1 || behind.ins != group.channels) return {};
      std::vector<double> amax(static_cast<std::size_t>(group.channels), 0.0);
      const float* w = graph.value(reader.in[1]).constant.as<float>();
      for (std::int64_t o = 0; o < behind.outs; ++o)
        for (std::int64_t i = 0; i < behind.ins; ++i)
          for (std::int64_t t = 0; t < behind.taps; ++t) {
            double& a = amax[static_cast<std::size_t>(i)];
            a = std::max(a, std::fabs(static_cast<double>(w[behind.at(o, i, t)])));
          }
      return amax;
    }
    if (!reader.is("Relu") && !reader.is("Clip") && !reader.is("Min")) return {};
    x = reader.out[0];
  }
  return {};
}

// E |dW x|^2 from the matrices of the layer, or from the channels' mean squares where there are none.
std::function<double(const quant::WeightRows&)> noise_of(const GramPair* pair,
                                                         const std::vector<double>& mean_square,
                                                         ThreadPool& pool) {
  if (pair == nullptr)
    return [mean_square](const quant::WeightRows& error) {
      const std::int64_t cols = error.shape.cols, ins = error.shape.segment;
      const std::int64_t groups = static_cast<std::int64_t>(mean_square.size()) / ins;
      double sum = 0;
      for (std::int64_t row = 0; row < error.shape.rows; ++row) {
        const double* m = mean_square.data() + row / (error.shape.rows / groups) * ins;
        for (std::int64_t col = 0; col < cols; ++col) {
          const double e = static_cast<double>(error.values[static_cast<std::size_t>(row * cols + col)]);
          sum += e * e * m[col % ins];
        }
      }
      return sum;
    };
  std::vector<std::vector<float>> dense;
  for (std::int64_t g = 0; g < pair->fit.groups; ++g) dense.push_back(pair->fit.dense(g));
  return [dense = std::move(dense), n = pair->fit.n, &pool](const quant::WeightRows& error) {
    const auto groups = static_cast<std::int64_t>(dense.size());
    const std::int64_t rows = error.shape.rows / groups;
    double sum = 0;
    for (std::int64_t g = 0; g < groups; ++g)
      for (const double loss : quant::quadratic_loss(error.values.data() + g * rows * n, rows, n,
                                                     dense[static_cast<std::size_t>(g)].data(), pool))
        sum += loss;
    return sum;
  };
}

class Step {
 public:
  explicit Step(const ScaleInput& in) : in_(in) {
    result_.graph = *in.graph;
    result_.placement = *in.placement;
    result_.grams = *in.grams;
  }

  ScaleResult run() {
    if (!in_.folded_only) shift();
    std::vector<CalibratedValue> values;
    for (quant::ScaleGroup& group : quant::find_scale_groups(result_.graph, wants_clips())) {
      std::string method;
      for (const NodeId node : group.consumers)
        if (const quant::WeightSite* site = site_of(*in_.placement, group.path, node); site != nullptr)
          method = site->method;
      if (!scales_channels(method) || is_left(group.path, group.value)) continue;
      if (in_.folded_only && !group.folded) continue;
      values.push_back({group.value, group.channel_axis, group.path});
      methods_.push_back(method);
      groups_.push_back(std::move(group));
    }
    if (groups_.empty()) return std::move(result_);
    ChannelSampleOptions options;
    options.pool = in_.pool;
    options.progress = in_.progress;
    const std::vector<ChannelSample> samples =
        sample_channels(result_.graph, values, *in_.calibration, options);
    std::int64_t total = 0;
    for (const quant::ScaleGroup& group : groups_) total += weights_behind(group);
    ProgressStep step(in_.progress != nullptr ? *in_.progress : no_progress(), "channel factors", total);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      check_cancelled();
      const std::int64_t size = weights_behind(groups_[i]);
      if (samples[i].channels == groups_[i].channels && samples[i].count() > 0)
        consider(groups_[i], methods_[i], samples[i]);
      step.advance(size);
    }
    return std::move(result_);
  }

 private:
  std::int64_t weights_behind(const quant::ScaleGroup& group) const {
    const Graph& graph = subgraph_at(result_.graph, group.path);
    std::int64_t size = 0;
    for (const NodeId node : group.consumers)
      if (graph.node(node).in.size() > 1) size += graph.value(graph.node(node).in[1]).constant.size();
    return size;
  }

  bool is_left(const SubgraphPath& path, ValueId value) const {
    return in_.leave.count(value_label(*in_.graph, path, value)) != 0;
  }

  bool wants_clips() const {
    return std::any_of(in_.placement->weights.begin(), in_.placement->weights.end(),
                       [](const quant::WeightSite& site) { return site.method == "equalize"; });
  }

  // Constants out of quantized activations, where equalization may.
  void shift() {
    std::vector<quant::ShiftGroup> groups;
    std::vector<CalibratedValue> values;
    for (quant::ShiftGroup& group : quant::find_shift_groups(*in_.graph)) {
      const quant::WeightSite* site = site_of(*in_.placement, group.path, group.consumers.front());
      const quant::ActivationSite* x = read_by(*in_.placement, group.path, group.consumers.front());
      if (site == nullptr || x == nullptr || !families_of(site->method).equalize ||
          x->format.granularity == quant::Granularity::kChannel || is_left(group.path, group.value))
        continue;
      values.push_back({group.value, group.channel_axis, group.path});
      groups.push_back(std::move(group));
    }
    if (groups.empty()) return;
    ChannelSampleOptions options;
    options.pool = in_.pool;
    options.progress = in_.progress;
    const std::vector<ChannelSample> samples = sample_channels(*in_.graph, values, *in_.calibration, options);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const quant::ShiftGroup& group = groups[i];
      const quant::ActivationSite* x = read_by(*in_.placement, group.path, group.consumers.front());
      const quant::ShiftChoice choice = quant::choose_shift(result_.graph, group, samples[i].rows,
                                                            quant::activation_rounding(x->format, *in_.pool));
      if (choice.z.empty() || choice.gain_db < kLeastGainOfMulDb) continue;
      quant::apply_shift(result_.graph, group, choice.z);
      result_.grams.shift(result_.graph, group, choice.z);
      result_.changed.push_back({group.path, group.value});
      result_.scaled.push_back(
          {value_label(*in_.graph, group.path, group.value), "shift", 0, choice.gain_db, true});
      result_.moves.push_back([group, z = choice.z](Graph& graph) { quant::apply_shift(graph, group, z); });
    }
  }

  void consider(quant::ScaleGroup& group, const std::string& method, const ChannelSample& sample) {
    const std::string tensor = value_label(*in_.graph, group.path, group.value);
    const quant::ScaleProblem problem = problem_of(group, sample);
    quant::ScaleFamilies families = families_of(method);
    if (method == "smoothquant") families.strength = in_.strength;
    // Smoothing is for activations with codes; what AWQ gains is the weights' error, which eight bits hardly
    // have.
    if (method == "auto") {
      families.smooth = problem.round_activation != nullptr;
      families.awq = !families.smooth || is_coarse(group);
    }
    const quant::ScaleChoice choice = quant::search_scales(problem, families);
    if (choice.skipped > 0)
      result_.notes.push_back(
          fmt::format("'{}': {} of {} channel factors had no finite loss and were skipped", tensor,
                      choice.skipped, choice.tried));
    if (choice.scales.empty()) return;
    const double mul = method == "auto" ? kLeastGainOfAutoMulDb : kLeastGainOfMulDb;
    const double wanted = group.folded ? kLeastGainDb : mul;
    if (!families.strength && !(choice.gain_db() >= wanted)) return;
    const quant::ScaleGroup given = group;
    if (!quant::apply_scales(result_.graph, group, choice.scales)) return;
    if (!group.folded) {
      follow_mul(group, given.value);
      result_.changed.push_back({group.path, group.value});
    }
    for (const ValueId id : group.fold.changed) result_.changed.push_back({group.path, id});
    for (const quant::FoldEdit& edit : group.fold.edits) result_.replace = result_.replace || edit.limits;
    result_.grams.scale(result_.graph, group, choice.scales);
    result_.scaled.push_back({tensor, choice.family, choice.strength, choice.gain_db(), group.folded});
    result_.moves.push_back([given, s = choice.scales](Graph& graph) {
      quant::ScaleGroup alone = given;
      quant::apply_scales(graph, alone, s);
    });
  }

  bool is_coarse(const quant::ScaleGroup& group) const {
    return std::any_of(group.consumers.begin(), group.consumers.end(), [&](NodeId node) {
      const quant::WeightSite* site = site_of(*in_.placement, group.path, node);
      return site != nullptr && format_info(site->format.dtype).bits < 8;
    });
  }

  // The consumers of a new Mul read its output quantized, and the source no more.
  void follow_mul(const quant::ScaleGroup& group, ValueId source) {
    std::vector<quant::ActivationSite>& sites = result_.placement.activations;
    const auto reads = [&](const Use& use) {
      return use.slot == 0 &&
             std::find(group.consumers.begin(), group.consumers.end(), use.node) != group.consumers.end();
    };
    for (std::size_t i = 0; i < sites.size(); ++i) {
      if (sites[i].path != group.path || sites[i].value != source) continue;
      quant::ActivationSite moved = sites[i];
      moved.value = group.value;
      moved.graph_output = false;
      moved.group = -1;
      moved.uses.erase(
          std::remove_if(moved.uses.begin(), moved.uses.end(), [&](const Use& u) { return !reads(u); }),
          moved.uses.end());
      if (moved.uses.empty()) continue;
      std::vector<Use>& rest = sites[i].uses;
      rest.erase(std::remove_if(rest.begin(), rest.end(), reads), rest.end());
      if (rest.empty() && !sites[i].graph_output) {
        sites[i] = std::move(moved);
      } else {
        sites.push_back(std::move(moved));
      }
      return;
    }
  }

  quant::ScaleProblem problem_of(const quant::ScaleGroup& group, const ChannelSample& sample) const {
    // Earlier groups may have changed the weights: the graph as it is now.
    const Graph& graph = subgraph_at(result_.graph, group.path);
    quant::ScaleProblem problem;
    problem.channels = group.channels;
    problem.amax = sample.amax;
    problem.sample = sample.rows;
    problem.made_by = group.folded ? made_by(graph, group) : std::vector<double>{};
    problem.beyond = behind_depthwise(graph, group);
    const auto known =
        std::lower_bound(in_.stats->begin(), in_.stats->end(), sample.name,
                         [](const TensorStats& s, const std::string& n) { return s.name < n; });
    const bool changed = std::find(result_.changed.begin(), result_.changed.end(),
                                   ValuePlace{group.path, group.value}) != result_.changed.end();
    if (!changed && known != in_.stats->end() && known->name == sample.name &&
        known->channel_amax.size() == problem.amax.size())
      for (std::size_t c = 0; c < problem.amax.size(); ++c)
        problem.amax[c] = std::max(problem.amax[c], static_cast<double>(known->channel_amax[c]));
    std::vector<double> mean_square(problem.amax.size(), 0.0);
    for (std::size_t i = 0; i < sample.rows.size(); ++i) {
      const double v = static_cast<double>(sample.rows[i]);
      mean_square[i % mean_square.size()] += v * v / static_cast<double>(sample.count());
    }
    for (const NodeId node : group.consumers) {
      const quant::WeightSite* site = site_of(*in_.placement, group.path, node);
      if (site == nullptr) continue;  // stays float: no factor harms it
      // Channels with scales of their own have nothing to share out.
      if (const quant::ActivationSite* x = read_by(*in_.placement, group.path, node);
          x != nullptr && x->format.granularity != quant::Granularity::kChannel)
        problem.round_activation = quant::activation_rounding(x->format, *in_.pool);
      quant::WeightView view;
      const bool linear = quant::view_weight(graph, graph.node(node), view);
      PARE_ASSERT(linear);
      quant::ScaleLayer layer;
      layer.weight = quant::gather_rows(graph.value(graph.node(node).in[1]).constant, view);
      for (std::int64_t c = 0; c < group.channels; ++c) layer.channel.push_back(static_cast<std::int32_t>(c));
      layer.round = rounding(*site, mean_square, view);
      const std::shared_ptr<const GramPair> pair = in_.grams->find(group.path, node);
      layer.noise = noise_of(pair.get(), mean_square, *in_.pool);
      if (pair != nullptr && view.groups == 1 && is_by_row(*site))
        layer.tried = quant::rows_to_try(layer.weight.shape.rows, layer.weight.shape.cols);
      problem.layers.push_back(std::move(layer));
    }
    return problem;
  }

  // Whether each row has scales of its own.
  static bool is_by_row(const quant::WeightSite& site) {
    return site.format.granularity != quant::Granularity::kTensor &&
           quant::grid_format(site.format).rows == 1;
  }

  // As the weight will be coded: a grid searched by the importance of the columns, or the largest magnitude.
  std::function<void(quant::WeightRows&, const std::vector<float>&)> rounding(
      const quant::WeightSite& site, const std::vector<double>& mean_square,
      const quant::WeightView& view) const {
    const quant::GridFormat format = quant::grid_format(site.format);
    const bool whole = site.format.granularity == quant::Granularity::kTensor;
    return [format, whole, mean_square, view, pool = in_.pool](quant::WeightRows& rows,
                                                               const std::vector<float>& s) {
      std::vector<float> importance;
      for (std::int64_t g = 0; g < view.groups; ++g)
        for (std::int64_t col = 0; col < rows.shape.cols; ++col) {
          const auto c = static_cast<std::size_t>(g * view.ins + col % view.ins);
          const double scale = s.empty() ? 1.0 : static_cast<double>(s[c]);
          importance.push_back(static_cast<float>(mean_square[c] / (scale * scale)));
        }
      quant::RowShape shape = rows.shape;
      quant::GridSearch search;
      if (whole) {
        shape = quant::RowShape::whole(1, shape.count());
      } else {
        search.importance = importance.data();
        search.importance_rows = shape.rows / view.groups;
      }
      const quant::Grid grid = quant::choose_grid(format, shape, rows.values.data(), search, *pool);
      std::vector<std::uint8_t> codes(rows.values.size());
      quant::encode(format, shape, grid, rows.values.data(), codes.data(), *pool);
      quant::decode(format, shape, grid, codes.data(), rows.values.data(), *pool);
    };
  }

  const ScaleInput& in_;
  ScaleResult result_;
  std::vector<quant::ScaleGroup> groups_;
  std::vector<std::string> methods_;
};

}  // namespace

bool scales_channels(const std::string& method) {
  return method == "auto" || method == "smoothquant" || method == "awq" || method == "equalize";
}

ScaleResult scale_layers(const ScaleInput& input) { return Step(input).run(); }

}  // namespace pare
