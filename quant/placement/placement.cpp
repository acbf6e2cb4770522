#include "quant/placement/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/placement/activation.h"
#include "quant/placement/rules.h"
#include "quant/placement/share.h"
#include "quant/placement/target_rules.h"
#include "quant/placement/value_moving.h"

namespace pare::quant {
namespace {

// Which axis of the weight counts output channels.
int weight_axis(const Node& node, int rank) {
  if (node.is("Conv")) return 0;
  if (node.is("ConvTranspose")) return 1;
  if (node.is("Gemm")) return node.attr("transB", std::int64_t{0}) != 0 ? 0 : 1;
  return rank - 1;  // MatMul
}

// Which axis the product sums over: input channels. Blocks of weights lie along it.
int reduce_axis(const Node& node, int rank) {
  PARE_ASSERT(rank >= 2);
  if (node.is("Conv")) return 1;
  if (node.is("ConvTranspose")) return 0;
  if (node.is("Gemm")) return node.attr("transB", std::int64_t{0}) != 0 ? 1 : 0;
  return rank - 2;  // MatMul
}

std::string label(const Node& node, const Graph& graph) {
  return node.name.empty() ? graph.value(node.out[0]).name : node.name;
}

class Placer {
 public:
  Placer(const Graph& graph, const Spec& spec, int groups)
      : graph_(graph), spec_(spec), rules_(spec), groups_(groups) {}

  Placement run() {
    measure_depth();
    for (const NodeId id : graph_.nodes()) {
      const Node& node = graph_.node(id);
      if (is_linear(node)) visit_linear(id, node);
    }
    for (const NodeId id : graph_.nodes()) {
      const Node& node = graph_.node(id);
      if (node.is("Add")) visit_add(id, node);
      if (node.is("Attention")) visit_attention(id, node);
      if (spec_.target == Target::kOnnxRuntime && node.is("GlobalAveragePool")) visit_pool(id, node);
    }
    check_groups(grouped_);
    share_codes_with_readers();
    if (spec_.target == Target::kOnnxRuntime) carry_codes_on(graph_, placement_.activations);
    if (spec_.target != Target::kPare) groups_ = group_moved_values(graph_, placement_.activations, groups_);
    group_fused_layers(graph_, spec_.share, placement_);
    for (const auto& [sizes, layers] : smaller_)
      placement_.notes.push_back(
          fmt::format("groups of {} in place of {}, which does not divide {} inputs: layer '{}'{}",
                      sizes.second, spec_.weights.block, sizes.first, layers.front(),
                      layers.size() == 1 ? "" : fmt::format(" and {} more", layers.size() - 1)));
    return std::move(placement_);
  }
  int groups() const { return groups_; }  // how many, those of graphs placed before included

 private:
  void skip(const Node& node, const std::string& why) {
    placement_.skipped.push_back({label(node, graph_), why});
  }

  bool is_float(ValueId id) const { return graph_.value(id).dtype == DType::kF32; }

  // FP8 kernels multiply in steps of 16 channels or more, so small operators gain nothing; and they are where
  // FP8 hurts most: with one input channel the 3 mantissa bits are not averaged over anything.
  std::string too_small_for_fp8(const Node& node, const Resolved& resolved) const {
    const Format& format = resolved.activations.active() ? resolved.activations : resolved.weights;
    if (!format.active() || format_info(format.dtype).is_integer() || !graph_.is_constant(node.in[1]))
      return "";
    const Dims& w = graph_.value(node.in[1]).constant.dims();
    if (w.size() < 2) return "";
    const bool conv = node.is("Conv") || node.is("ConvTranspose");
    std::int64_t a = w[0], b = w[1];  // Gemm, MatMul: K and N in either order; Conv: M and C/group
    if (conv) {
      a /= node.attr("group", std::int64_t{1});  // Conv [M, C/group, ..], ConvTranspose [C, M/group, ..]
    }
    if (std::min(a, b) >= (conv ? 17 : 16)) return "";
    return conv ? fmt::format("{} by {} channels a group: FP8 convolutions need more than 16", b, a)
                : fmt::format("{} by {}: FP8 products need at least 16 a side", a, b);
  }

  bool reads_softmax(const Node& node) const {
    return std::any_of(node.in.begin(), node.in.end(), [&](ValueId in) {
      const NodeId producer = in == ValueId::kNone ? NodeId::kNone : graph_.producer(in);
      return producer != NodeId::kNone && graph_.node(producer).is("Softmax");
    });
  }

  void add_activation(ValueId value, NodeId node, int slot, const Format& format, const std::string& rule) {
    if (has_codes(graph_, value)) {
      placement_.skipped.push_back({graph_.value(value).name, "its Q/DQ in the model are kept"});
      return;
    }
    ActivationSite& site = site_of(value, format, rule);
    site.uses.push_back({node, slot});
  }

  ActivationSite& site_of(ValueId value, const Format& format, const std::string& rule) {
    const auto key = std::make_tuple(value, format.dtype, format.symmetric);
    const auto it = sites_.find(key);
    if (it != sites_.end()) return placement_.activations[it->second];
    ActivationSite site;
    site.value = value;
    site.format = format;
    site.rule = rule;
    const NodeId producer = graph_.producer(value);
    site.unit_range = producer != NodeId::kNone && graph_.node(producer).is("Softmax");
    sites_[key] = placement_.activations.size();
    placement_.activations.push_back(site);
    return placement_.activations.back();
  }

  // A constant input of a linear node that is to become codes.
  struct Wanted {
    WeightSource source;
    int axis = 0, reduce_axis = 0;  // of the constant
    Format format;
  };

  // Nothing for what stays float by itself: scalars and vectors, empty constants.
  std::optional<Wanted> wanted_weight(NodeId id, const Node& node, int slot, const Format& format) {
    std::optional<WeightSource> source = weight_source(graph_, id, slot);
    if (!source || !format.active()) return std::nullopt;
    const Value& value = graph_.value(source->value);
    const int rank = static_cast<int>(source->axes.size());
    if (rank < 2 || value.constant.size() == 0 || value.dtype != DType::kF32) return std::nullopt;
    Wanted wanted;
    wanted.format = format;
    int axis = weight_axis(node, rank), reduce = reduce_axis(node, rank);
    if (slot == 0) {
      // A constant on the left of a product has no output channel that a kernel could scale: one scale.
      if (wanted.format.granularity == Granularity::kChannel)
        wanted.format.granularity = Granularity::kTensor;
      reduce = node.is("Gemm") && node.attr("transA", std::int64_t{0}) != 0 ? 0 : rank - 1;
      axis = reduce == rank - 1 ? rank - 2 : rank - 1;
    }
    wanted.axis = source->axes[static_cast<std::size_t>(axis)];
    wanted.reduce_axis = source->axes[static_cast<std::size_t>(reduce)];
    fit(wanted, node, value.constant.dims());
    wanted.source = std::move(*source);
    return wanted;
  }

  // Blocks as this weight's inputs allow them, and scales as the target takes them.
  void fit(Wanted& wanted, const Node& node, const Dims& dims) {
    const std::int64_t ins = dims[static_cast<std::size_t>(wanted.reduce_axis)];
    const std::int64_t outs = dims[static_cast<std::size_t>(wanted.axis)];
    wanted.format.positive = !takes_negative_scales(spec_.target);
    const int asked = wanted.format.block;
    const std::int64_t taps = element_count(dims) / (ins * outs);
    grouped_.push_back({label(node, graph_), ins, taps, wanted.format});
    if (groups_misfit(grouped_.back())) return;  // check_groups() says so when all layers are known
    wanted.format = fit_block(wanted.format, ins, taps, spec_.target, label(node, graph_));
    if (asked > 0 && asked < ins && wanted.format.block != asked)
      smaller_[{ins, wanted.format.block}].push_back(label(node, graph_));
  }

  // Why codes that another node has chosen for the same constant cannot serve; "" when they can.
  std::string why_codes_differ(const Wanted& wanted, bool weight_only) const {
    for (const WeightSite& site : placement_.weights) {
      if (site.value != wanted.source.value) continue;
      const std::string& tensor = graph_.value(site.value).name;
      const std::string other = label(graph_.node(site.uses.front().node), graph_);
      if (!(site.format == wanted.format))
        return fmt::format(
            "its weight '{}' has codes already, in {} for '{}'; one constant has one set of codes", tensor,
            to_string(site.format), other);
      if (site.axis != wanted.axis && !weight_only && site.format.granularity != Granularity::kTensor)
        return fmt::format(
            "its weight '{}' has codes already, with the output channels of '{}' along axis {}; here "
            "they lie along axis {}",
            tensor, other, site.axis, wanted.axis);
    }
    return "";
  }

  void add_weight(const Wanted& wanted, const std::string& method) {
    for (WeightSite& site : placement_.weights) {
      if (site.value != wanted.source.value) continue;
      const Use& use = wanted.source.use;
      const bool known = std::any_of(site.uses.begin(), site.uses.end(),
                                     [&](const Use& u) { return u.node == use.node && u.slot == use.slot; });
      if (!known) site.uses.push_back(use);
      return;
    }
    WeightSite site;
    site.value = wanted.source.value;
    site.uses = {wanted.source.use};
    site.axis = wanted.axis;
    site.reduce_axis = wanted.reduce_axis;
    site.format = wanted.format;
    site.method = method;
    placement_.weights.push_back(std::move(site));
  }

  // Everybody who reads a constant that has codes reads the codes, or it would be in the file twice.
  void share_codes_with_readers() {
    for (WeightSite& site : placement_.weights) {
      for (const Use& use : graph_.users(site.value)) {
        const Node& node = graph_.node(use.node);
        const bool known = std::any_of(site.uses.begin(), site.uses.end(), [&](const Use& u) {
          return u.node == use.node && u.slot == use.slot;
        });
        if (known || node.is("QuantizeLinear")) continue;
        const Resolved resolved = rules_.resolve(graph_, node);
        const bool refused =
            is_linear(node) || node.is("Transpose") || has_subgraph(node) || resolved.by_rule;
        if (refused)
          placement_.notes.push_back(
              fmt::format("weight '{}' is stored twice, as codes and in float: '{}' reads it "
                          "in float",
                          graph_.value(site.value).name, label(node, graph_)));
        else
          site.uses.push_back(use);
      }
    }
  }

  // Blocks of weights lie along the axis that the product sums over; TensorRT has them on the last two only.
  std::string why_blocks_do_not_fit(const Wanted& wanted) const {
    if (wanted.format.granularity != Granularity::kBlock || spec_.target != Target::kTensorRT) return "";
    const int rank = static_cast<int>(wanted.source.axes.size());
    if (wanted.reduce_axis >= rank - 2) return "";
    return fmt::format(
        "its blocks would lie along axis {} of {}; TensorRT has blocks along the last two axes only",
        wanted.reduce_axis, rank);
  }

  // Blocks of activations need a known size along the axis that the product sums over.
  std::string why_no_blocks(NodeId id, const Node& node, const Format& format) const {
    if (format.granularity != Granularity::kBlock || !format.active()) return "";
    for (int slot = 0; slot < 2; ++slot) {
      if (weight_source(graph_, id, slot)) continue;
      ActivationSite site;
      site.value = node.in[static_cast<std::size_t>(slot)];
      site.uses = {{id, slot}};
      const Shape& shape = graph_.value(site.value).shape;
      const int axis = shape.ranked && shape.rank() > 0 ? activation_axis(graph_, site) : -1;
      if (axis < 0 || !shape.dims[static_cast<std::size_t>(axis)].known())
        return fmt::format("the size of '{}' along the axis of its blocks is not known before a run",
                           graph_.value(site.value).name);
    }
    return "";
  }

  void visit_linear(NodeId id, const Node& node) {
    const Resolved resolved = rules_.resolve(graph_, node);
    if (!resolved.quantize) return skip(node, resolved.why_not);
    if (!is_float(node.in[0]) || !is_float(node.in[1]))
      return skip(node, fmt::format("its inputs are {} and {}; only float32 is quantized",
                                    pare::name(graph_.value(node.in[0]).dtype),
                                    pare::name(graph_.value(node.in[1]).dtype)));
    const bool conv = node.is("Conv") || node.is("ConvTranspose");
    if (conv && !weight_source(graph_, id, 1) && !has_codes(graph_, node.in[1]))
      return skip(node,
                  is_captured(graph_, node.in[1])
                      ? "its weight comes from the graph around; surgery (simplify) makes it the branch's own"
                      : "its weight is computed at run time");
    for (int slot = 0; slot < 2; ++slot)
      if (is_turned_constant(graph_, node.in[static_cast<std::size_t>(slot)]) &&
          !weight_source(graph_, id, slot))
        return skip(node, "its weight goes through a Transpose that other operators read in float");
    const bool weight_only = !resolved.activations.active();
    if (spec_.target == Target::kPare && !weight_only && reads_softmax(node) &&
        resolved.activations.symmetric && format_info(resolved.activations.dtype).is_integer())
      return skip(node,
                  "its Softmax input lies in (0,1), where half of a symmetric integer grid is unused and "
                  "small weights round to nothing");
    if (const std::string why = too_small_for_fp8(node, resolved); !why.empty()) return skip(node, why);
    std::vector<Wanted> wanted;
    for (int slot = 0; slot < 2; ++slot)
      if (std::optional<Wanted> one = wanted_weight(id, node, slot, resolved.weights)) {
        for (const std::string& why : {why_codes_differ(*one, weight_only), why_blocks_do_not_fit(*one)})
          if (!why.empty()) return skip(node, why);
        wanted.push_back(std::move(*one));
      }
    if (weight_only && wanted.empty()) return skip(node, "no constant weight, and activations stay float");
    if (const std::string why = why_no_blocks(id, node, resolved.activations); !why.empty())
      return skip(node, why);
    if (const std::string why = why_no_tokens(graph_, node, resolved.activations); !why.empty())
      return skip(node, why);
    for (const Wanted& one : wanted) add_weight(one, resolved.method);
    for (int slot = 0; slot < 2; ++slot) {
      if (weight_only || weight_source(graph_, id, slot)) continue;
      add_activation(node.in[static_cast<std::size_t>(slot)], id, slot, resolved.activations,
                     fmt::format("input of {}", node.op));
    }
    quantized_.insert(id);
    // With scales made at run time a fused output has no meaning, and a bias no scale to be an integer of.
    if (spec_.target == Target::kOnnxRuntime && !weight_only && !resolved.activations.dynamic)
      visit_onnxruntime_linear(id, node, resolved);
  }

  // ONNX Runtime fuses DQ -> Conv -> Q only with a quantized output and an int32 bias.
  void visit_onnxruntime_linear(NodeId id, const Node& node, const Resolved& resolved) {
    if (node.in.size() > 2 && node.in[2] != ValueId::kNone && graph_.is_constant(node.in[2]) &&
        graph_.is_constant(node.in[1]) && resolved.weights.dtype == DType::kI8)
      placement_.biases.push_back({id, 2});
    // With a zero point at the lowest code a Relu or Clip is what saturation does anyway, and it is fused;
    // symmetric codes need both.
    const NodeId next = graph_.only_user(node.out[0]);
    const bool absorbed = next != NodeId::kNone && !resolved.activations.symmetric &&
                          (graph_.node(next).is("Relu") || graph_.node(next).is("Clip"));
    add_output(absorbed ? graph_.node(next).out[0] : node.out[0], resolved.activations, node.op);
  }

  void add_output(ValueId value, const Format& format, const std::string& op) {
    const std::vector<Use>& users = graph_.users(value);
    // The model's own Q stands behind it.
    if (!graph_.is_output(value) && !users.empty() &&
        std::all_of(users.begin(), users.end(),
                    [&](const Use& use) { return graph_.node(use.node).is("QuantizeLinear"); }))
      return;
    ActivationSite& site = site_of(value, format, fmt::format("output of {}", op));
    for (const Use& use : users) {
      if (graph_.node(use.node).is("QuantizeLinear")) continue;
      const bool known = std::any_of(site.uses.begin(), site.uses.end(),
                                     [&](const Use& u) { return u.node == use.node && u.slot == use.slot; });
      if (!known) site.uses.push_back(use);
    }
    site.graph_output = graph_.is_output(value);
  }

  void visit_add(NodeId id, const Node& node) {
    const ValueId a = node.in[0], b = node.in[1];
    if (graph_.is_constant(a) || graph_.is_constant(b) || !is_float(a) || a == b) return;
    if (spec_.target == Target::kOnnxRuntime) return visit_onnxruntime_add(id, node);
    if (spec_.target == Target::kPare) return;  // our kernels add a float residual
    // The branch that the kernel computes: a quantized Conv that only this Add reads; the deeper one of two.
    int computed = -1;
    for (int slot = 0; slot < 2; ++slot) {
      const NodeId producer = graph_.producer(node.in[static_cast<std::size_t>(slot)]);
      if (producer == NodeId::kNone || quantized_.count(producer) == 0 || !graph_.node(producer).is("Conv"))
        continue;
      if (graph_.only_user(node.in[static_cast<std::size_t>(slot)]) != id) continue;
      if (computed < 0 ||
          depth(node.in[static_cast<std::size_t>(slot)]) > depth(node.in[static_cast<std::size_t>(computed)]))
        computed = slot;
    }
    if (computed < 0) return;
    const Resolved resolved = rules_.resolve(graph_, node);
    const Resolved conv =
        rules_.resolve(graph_, graph_.node(graph_.producer(node.in[static_cast<std::size_t>(computed)])));
    if (!conv.activations.active() || conv.activations.dynamic || resolved.by_rule) return;
    const int residual = 1 - computed;
    add_activation(node.in[static_cast<std::size_t>(residual)], id, residual, conv.activations,
                   "residual input of Add");
  }

  // What a cache of low precision gives back: keys as they are turned, and values, each with a scale of its
  // own, in front of their readers.
  void visit_attention(NodeId id, const Node& node) {
    if (!spec_.kv_cache.active()) return;
    const Resolved resolved = rules_.resolve(graph_, node);
    if (resolved.by_rule) return skip(node, resolved.why_not);
    for (const int slot : {1, 2}) {
      const ValueId in = node.in[static_cast<std::size_t>(slot)];
      if (in != ValueId::kNone && is_float(in) && !graph_.is_constant(in))
        add_activation(in, id, slot, spec_.kv_cache, slot == 1 ? kKeyRule : kValueRule);
    }
  }

  void visit_onnxruntime_add(NodeId id, const Node& node) {
    const Resolved resolved = rules_.resolve(graph_, node);
    if (!resolved.quantize || !resolved.activations.active() || resolved.activations.dynamic) return;
    for (int slot = 0; slot < 2; ++slot)
      add_activation(node.in[static_cast<std::size_t>(slot)], id, slot, resolved.activations, "input of Add");
    add_output(node.out[0], resolved.activations, node.op);
  }

  void visit_pool(NodeId id, const Node& node) {
    const Resolved resolved = rules_.resolve(graph_, node);
    if (!resolved.quantize || !resolved.activations.active() || resolved.activations.dynamic ||
        !is_float(node.in[0]))
      return;
    add_activation(node.in[0], id, 0, resolved.activations, "input of GlobalAveragePool");
    add_output(node.out[0], resolved.activations, node.op);
  }

  void measure_depth() {
    depth_.assign(graph_.value_count(), 0);
    for (const NodeId id : graph_.nodes()) {
      int deepest = 0;
      for (const ValueId in : graph_.node(id).in)
        if (in != ValueId::kNone) deepest = std::max(deepest, depth(in));
      for (const ValueId out : graph_.node(id).out)
        if (out != ValueId::kNone) depth_[static_cast<std::size_t>(out)] = deepest + 1;
    }
  }
  int depth(ValueId id) const { return depth_[static_cast<std::size_t>(id)]; }

  const Graph& graph_;
  const Spec& spec_;
  RuleBook rules_;
  Placement placement_;
  std::map<std::tuple<ValueId, DType, bool>, std::size_t> sites_;
  std::set<NodeId> quantized_;
  std::map<std::pair<std::int64_t, int>, std::vector<std::string>>
      smaller_;                       // inputs and group that was fitted: layers
  std::vector<LayerGroups> grouped_;  // every weight that asked for a format
  std::vector<int> depth_;
  int groups_ = 0;
};

}  // namespace

namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from, const SubgraphPath& path) {
  for (T& one : from) {
    one.path = path;
    to.push_back(std::move(one));
  }
}

}  // namespace

Placement place(const Graph& graph, const Spec& spec) {
  check(spec);
  check_target(spec);
  check_model_for_target(graph, spec.target);
  Placement whole;
  int groups = 0;
  whole.unmatched = RuleBook(spec).unmatched(graph);
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& scope) {
    Placer placer(scope, spec, groups);
    Placement part = placer.run();
    groups = placer.groups();
    const int first_fused = static_cast<int>(whole.fused.size());
    const std::size_t first_weight = whole.weights.size();
    for (WeightSite& site : part.weights)
      if (site.fused >= 0) site.fused += first_fused;
    for (FusedLayers& group : part.fused) {
      for (std::size_t& weight : group.weights) weight += first_weight;
      whole.fused.push_back(std::move(group));
    }
    for (std::string& note : part.notes) whole.notes.push_back(std::move(note));
    append(whole.activations, std::move(part.activations), path);
    append(whole.weights, std::move(part.weights), path);
    append(whole.biases, std::move(part.biases), path);
    for (Skipped& row : part.skipped) {
      if (!path.empty()) row.tensor = to_string(graph, path) + "/" + row.tensor;
      whole.skipped.push_back(std::move(row));
    }
  });
  return whole;
}

void leave_float(const Graph& graph, Placement& placement, const std::vector<std::size_t>& activations,
                 const std::string& why) {
  std::set<std::pair<SubgraphPath, NodeId>> nodes;
  std::set<std::size_t> gone(activations.begin(), activations.end());
  for (const std::size_t i : activations)
    for (const Use& use : placement.activations[i].uses)
      nodes.emplace(placement.activations[i].path, use.node);
  const auto is_left = [&](const SubgraphPath& path, NodeId node) { return nodes.count({path, node}) != 0; };
  const auto without = [&](auto site) {
    std::vector<Use> uses;
    for (const Use& use : site.uses)
      if (!is_left(site.path, use.node)) uses.push_back(use);
    site.uses = std::move(uses);
    return site;
  };
  std::vector<ActivationSite> values;
  for (std::size_t i = 0; i < placement.activations.size(); ++i) {
    ActivationSite site = without(placement.activations[i]);
    if (gone.count(i) == 0 && (!site.uses.empty() || site.graph_output)) values.push_back(std::move(site));
  }
  std::vector<WeightSite> weights;
  for (FusedLayers& group : placement.fused) group.weights.clear();
  for (const WeightSite& one : placement.weights) {
    WeightSite site = without(one);
    if (site.uses.empty()) continue;
    if (site.fused >= 0)
      placement.fused[static_cast<std::size_t>(site.fused)].weights.push_back(weights.size());
    weights.push_back(std::move(site));
  }
  std::vector<BiasSite> biases;
  for (const BiasSite& site : placement.biases)
    if (!is_left(site.path, site.node)) biases.push_back(site);
  placement.activations = std::move(values);
  placement.weights = std::move(weights);
  placement.biases = std::move(biases);
  for (const auto& [path, id] : nodes) {
    const Graph& scope = subgraph_at(graph, path);
    const std::string name = label(scope.node(id), scope);
    placement.skipped.push_back({path.empty() ? name : to_string(graph, path) + "/" + name, why});
  }
}

}  // namespace pare::quant
