#include "quant/smooth.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "quant/linear_weight.h"

namespace pare::quant {
namespace {

bool is_constant_f32(const Graph& graph, ValueId id) {
  return graph.is_constant(id) && graph.value(id).dtype == DType::kF32;
}

ValueId input(const Node& node, std::size_t i) { return i < node.in.size() ? node.in[i] : ValueId::kNone; }

// f(a x) = a f(x) for a > 0, channel by channel.
bool is_homogeneous(const Node& node) {
  return node.is("Relu") || node.is("LeakyRelu") || node.is("MaxPool") || node.is("AveragePool") ||
         node.is("Identity");
}

// The bias that follows: Conv's and Gemm's own, or the constant of an Add behind a MatMul.
bool scalable_producer(const Graph& graph, NodeId id, std::int64_t& channels, int& axis) {
  const Node& node = graph.node(id);
  if (node.is("LayerNormalization")) {
    if (!is_constant_f32(graph, input(node, 1)) || node.out.size() > 1) return false;
    if (input(node, 2) != ValueId::kNone && !is_constant_f32(graph, node.in[2])) return false;
    if (graph.value(node.in[1]).constant.dims().size() != 1) return false;
    const std::int64_t rank = graph.value(node.in[0]).shape.rank();
    const std::int64_t normalized = node.attr("axis", std::int64_t{-1});
    if (rank < 0 || (normalized != -1 && normalized != rank - 1)) return false;
    channels = graph.value(node.in[1]).constant.size();
    axis = static_cast<int>(rank) - 1;
    return true;
  }
  if (node.is("Conv")) {
    WeightView view;
    if (!view_weight(graph, node, view)) return false;
    if (input(node, 2) != ValueId::kNone && !is_constant_f32(graph, node.in[2])) return false;
    channels = view.outs;
    axis = 1;
    return true;
  }
  return false;
}

// s multiplies (or divides) a constant that `node` reads; the node gets a copy of its own.
template <typename Edit>
void edit_constant(Graph& graph, NodeId id, int slot, const Edit& edit) {
  const ValueId old = graph.node(id).in[static_cast<std::size_t>(slot)];
  Tensor tensor = graph.value(old).constant.clone();
  edit(tensor.mut<float>());
  if (graph.users(old).size() == 1 && !graph.is_output(old)) {
    graph.value(old).constant = std::move(tensor);
  } else {
    graph.set_input(id, slot, graph.add_constant(graph.value(old).name + "_smoothed", std::move(tensor)));
  }
}

// Per input channel, over all consumers: the largest weight magnitude.
std::vector<double> weight_amax(const Graph& graph, const SmoothGroup& group) {
  std::vector<double> amax(static_cast<std::size_t>(group.channels), 0.0);
  for (const NodeId id : group.consumers) {
    WeightView view;
    view_weight(graph, graph.node(id), view);
    const float* w = graph.value(graph.node(id).in[1]).constant.as<float>();
    for (std::int64_t o = 0; o < view.outs; ++o)
      for (std::int64_t i = 0; i < view.ins; ++i)
        for (std::int64_t t = 0; t < view.taps; ++t) {
          double& a = amax[static_cast<std::size_t>(view.channel(o, i))];
          a = std::max(a, std::fabs(static_cast<double>(w[view.at(o, i, t)])));
        }
  }
  return amax;
}

double predicted_noise(const Graph& graph, const SmoothGroup& group, const ChannelStats& stats,
                       const std::vector<double>& s, double levels) {
  double x_max = 0;
  for (std::size_t c = 0; c < s.size(); ++c) x_max = std::max(x_max, stats.amax[c] / s[c]);
  const double x_step = x_max / levels;
  double noise = 0;
  for (const NodeId id : group.consumers) {
    WeightView view;
    view_weight(graph, graph.node(id), view);
    const float* w = graph.value(graph.node(id).in[1]).constant.as<float>();
    for (std::int64_t o = 0; o < view.outs; ++o) {
      double w_max = 0, squares = 0, power = 0;
      for (std::int64_t i = 0; i < view.ins; ++i) {
        const auto c = static_cast<std::size_t>(view.channel(o, i));
        for (std::int64_t t = 0; t < view.taps; ++t) {
          const double v = std::fabs(static_cast<double>(w[view.at(o, i, t)])) * s[c];
          w_max = std::max(w_max, v);
          squares += v * v;
        }
        power += static_cast<double>(view.taps) * stats.mean_square[c] / (s[c] * s[c]);
      }
      const double w_step = w_max / levels;
      noise += (x_step * x_step * squares + w_step * w_step * power) / 12;
    }
  }
  return noise;
}

}  // namespace

std::vector<SmoothGroup> find_smooth_groups(const Graph& graph) {
  std::vector<SmoothGroup> groups;
  for (const NodeId id : graph.nodes()) {
    SmoothGroup group;
    group.producer = id;
    if (!scalable_producer(graph, id, group.channels, group.channel_axis)) continue;
    ValueId x = graph.node(id).out[0];
    for (;;) {
      const NodeId next = graph.only_user(x);
      if (next == NodeId::kNone || !is_homogeneous(graph.node(next)) || graph.node(next).out.size() != 1)
        break;
      group.between.push_back(next);
      x = graph.node(next).out[0];
    }
    group.value = x;
    if (graph.is_output(x) || graph.users(x).empty()) continue;
    bool all_linear = true;
    std::set<ValueId> weights;
    for (const Use& use : graph.users(x)) {
      const Node& consumer = graph.node(use.node);
      WeightView view;
      // MatMul and Gemm sum over the last axis, Conv over axis 1.
      const bool right_axis = consumer.is("Conv") ? group.channel_axis == 1
                                                  : group.channel_axis == graph.value(x).shape.rank() - 1;
      all_linear = all_linear && use.slot == 0 && right_axis && view_weight(graph, consumer, view) &&
                   view.ins * view.groups == group.channels && weights.insert(consumer.in[1]).second;
      if (all_linear) group.consumers.push_back(use.node);
    }
    if (all_linear) groups.push_back(std::move(group));
  }
  return groups;
}

SmoothChoice choose_smoothing(const Graph& graph, const SmoothGroup& group, const ChannelStats& stats,
                              double levels) {
  constexpr double kStrengths[] = {0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
  const auto channels = static_cast<std::size_t>(group.channels);
  PARE_ASSERT(stats.amax.size() == channels && stats.mean_square.size() == channels);
  const std::vector<double> w = weight_amax(graph, group);
  double x_mean = 0, w_mean = 0;
  for (std::size_t c = 0; c < channels; ++c) {
    x_mean += stats.amax[c] / static_cast<double>(channels);
    w_mean += w[c] / static_cast<double>(channels);
  }
  SmoothChoice choice;
  if (x_mean <= 0 || w_mean <= 0) return choice;
  const double before = predicted_noise(graph, group, stats, std::vector<double>(channels, 1.0), levels);
  double least = before;
  for (const double t : kStrengths) {
    std::vector<double> s(channels, 1.0);
    for (std::size_t c = 0; c < channels; ++c) {
      // A channel that never fires, or that nobody reads, has nothing to equalize.
      if (stats.amax[c] <= 0 || w[c] <= 0) continue;
      s[c] = std::pow(stats.amax[c] / x_mean, t) / std::pow(w[c] / w_mean, 1 - t);
      s[c] = std::clamp(s[c], 1e-3, 1e3);
    }
    const double noise = predicted_noise(graph, group, stats, s, levels);
    if (noise >= least) continue;
    least = noise;
    choice.strength = t;
    choice.scales.assign(channels, 1.0f);
    for (std::size_t c = 0; c < channels; ++c) choice.scales[c] = static_cast<float>(s[c]);
  }
  if (least > 0) choice.predicted_gain_db = 10 * std::log10(before / least);
  return choice;
}

void apply_smoothing(Graph& graph, const SmoothGroup& group, const std::vector<float>& s) {
  const auto channels = static_cast<std::size_t>(group.channels);
  PARE_ASSERT(s.size() == channels);
  const auto divide = [&](float* v, std::int64_t per_channel) {
    for (std::size_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < per_channel; ++i)
        v[static_cast<std::int64_t>(c) * per_channel + i] /= s[c];
  };
  const bool is_norm = graph.node(group.producer).is("LayerNormalization");
  for (int slot = 1; slot < 3; ++slot) {
    const ValueId id = input(graph.node(group.producer), static_cast<std::size_t>(slot));
    if (id == ValueId::kNone) continue;
    const std::int64_t each = is_norm ? 1 : graph.value(id).constant.size() / group.channels;
    edit_constant(graph, group.producer, slot, [&](float* v) { divide(v, each); });
  }
  for (const NodeId id : group.consumers) {
    WeightView view;
    view_weight(graph, graph.node(id), view);
    edit_constant(graph, id, 1, [&](float* w) {
      for (std::int64_t o = 0; o < view.outs; ++o)
        for (std::int64_t i = 0; i < view.ins; ++i)
          for (std::int64_t t = 0; t < view.taps; ++t)
            w[view.at(o, i, t)] *= s[static_cast<std::size_t>(view.channel(o, i))];
    });
  }
}

}  // namespace pare::quant
