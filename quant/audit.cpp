#include "quant/audit.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/quantize.h"
#include "engine/numeric/table.h"
#include "quant/activation.h"
#include "quant/apply_activation.h"

namespace pare::quant {
namespace {

class Auditor {
 public:
  Auditor(const Graph& source, const Graph& read_back) : whole_(source), whole_back_(read_back) {}

  void weight(const WeightSite& site, const WeightPlan& plan) {
    const std::string name = value_label(whole_, site.path, site.value);
    ++result_.tensors;
    if (!enter(site.path)) return complain(name, "its subgraph is not in the file");
    bool any = false;
    for (const Use& use : site.uses) {
      const Node* dq = dequantizer(use, name);
      if (dq == nullptr) continue;
      any = true;
      same(name, "codes", constant(dq->in[0]), plan.codes);
      same(name, "scales", constant(dq->in[1]), plan.scales);
      if (site.format.granularity == Granularity::kChannel &&
          dq->attr("axis", std::int64_t{1}) != static_cast<std::int64_t>(site.axis))
        complain(name, fmt::format("axis {} was written, {} was decided", dq->attr("axis", std::int64_t{1}),
                                   site.axis));
    }
    if (any) dequantized(name, site, plan);
  }

  void activation(const ActivationSite& site, const ActivationPlan& plan) {
    const std::string name = value_label(whole_, site.path, site.value);
    ++result_.tensors;
    if (!enter(site.path)) return complain(name, "its subgraph is not in the file");
    const std::int64_t axis = activation_axis(*source_, site);
    for (const Use& use : site.uses) {
      const Node* dq = dequantizer(use, name);
      if (dq == nullptr) continue;
      const NodeId q_id = back_->producer(dq->in[0]);
      const bool uint8 = site.format.dynamic && !site.format.symmetric;
      const char* const wanted = uint8 ? "DynamicQuantizeLinear" : "QuantizeLinear";
      if (q_id == NodeId::kNone || back_->node(q_id).op != wanted) {
        complain(name, fmt::format("its DequantizeLinear does not follow a {}", wanted));
        continue;
      }
      if (site.format.dynamic) {
        if (back_->is_constant(dq->in[1])) complain(name, "its scale is a constant and should not be");
        if (back_->value(dq->in[0]).dtype != site.format.dtype)
          complain(name,
                   fmt::format("its codes are {}, decided were {}", pare::name(back_->value(dq->in[0]).dtype),
                               pare::name(site.format.dtype)));
        continue;
      }
      const Tensor scales = activation_scales(plan), zeros = activation_zero_points(site.format, plan);
      const Node& q = back_->node(q_id);
      for (const Node* node : {&q, dq}) {
        if (const Tensor scale = constant(node->in[1]); scale.empty() || !equal_bytes(scale, scales))
          complain(name, fmt::format("{} has another scale than {}", node->op, plan.scale));
        if (!plan.channel_scales.empty() && node->attr("axis", std::int64_t{1}) != axis)
          complain(name, fmt::format("{} has axis {}, {} was decided", node->op,
                                     node->attr("axis", std::int64_t{1}), axis));
        const Tensor zero = node->in.size() > 2 ? constant(node->in[2]) : Tensor{};
        if (zero.empty() || !equal_bytes(zero, zeros))
          complain(name, fmt::format("{} has another zero point than {} {}", node->op,
                                     pare::name(site.format.dtype), plan.zero_point));
      }
    }
  }

  AuditResult take() { return std::move(result_); }

 private:
  void complain(const std::string& tensor, const std::string& what) {
    result_.mismatches.push_back({tensor, what});
  }

  Tensor constant(ValueId id) const {
    return id != ValueId::kNone && back_->is_constant(id) ? back_->value(id).constant : Tensor{};
  }

  // Goes into a subgraph on both sides.
  bool enter(const SubgraphPath& path) {
    source_ = &whole_;
    back_ = &whole_back_;
    for (const SubgraphStep& step : path) {
      const Node* other = counterpart(source_->node(step.node));
      const std::vector<std::string> keys =
          other == nullptr ? std::vector<std::string>{} : subgraph_attributes(*other);
      if (std::find(keys.begin(), keys.end(), step.attribute) == keys.end()) return false;
      source_ = &subgraph(source_->node(step.node), step.attribute);
      back_ = &subgraph(*other, step.attribute);
    }
    return true;
  }

  // Nodes are found again by the name of their first output, which every writer keeps.
  const Node* counterpart(const Node& node) const {
    const std::string out = source_->value(node.out[0]).name;
    ValueId value = back_->find_value(out + "_QuantizeLinear_Input");
    if (value == ValueId::kNone) value = back_->find_value(out);
    const NodeId found = value == ValueId::kNone ? NodeId::kNone : back_->producer(value);
    return found == NodeId::kNone ? nullptr : &back_->node(found);
  }

  const Node* dequantizer(const Use& use, const std::string& tensor) {
    const Node& node = source_->node(use.node);
    const Node* reader = counterpart(node);
    if (reader == nullptr || static_cast<std::size_t>(use.slot) >= reader->in.size()) {
      complain(tensor, fmt::format("its reader '{}' is not in the file", node.name));
      return nullptr;
    }
    const ValueId in = reader->in[static_cast<std::size_t>(use.slot)];
    const NodeId producer = in == ValueId::kNone ? NodeId::kNone : back_->producer(in);
    if (producer == NodeId::kNone || back_->node(producer).op != "DequantizeLinear") {
      complain(tensor, fmt::format("input {} of '{}' is not dequantized in the file", use.slot, node.name));
      return nullptr;
    }
    return &back_->node(producer);
  }

  void same(const std::string& tensor, const char* what, const Tensor& got, const Tensor& want) {
    result_.codes += want.size();
    if (!got.empty() && equal_bytes(got, want)) return;
    complain(tensor, got.empty() ? fmt::format("its {} are no constant in the file", what)
                                 : fmt::format("its {} differ: {} {} in the file, {} {} decided", what,
                                               pare::name(got.dtype()), pare::to_string(got.dims()),
                                               pare::name(want.dtype()), pare::to_string(want.dims())));
  }

  // |w - dequantized| <= half the grid step at that place, or the code is the largest.
  void dequantized(const std::string& tensor, const WeightSite& site, const WeightPlan& plan) {
    const Tensor& weight = source_->value(site.value).constant;
    const FormatInfo& info = format_info(site.format.dtype);
    const ScaleLayout layout = site.format.granularity == Granularity::kChannel
                                   ? ScaleLayout::per_channel(weight.dims(), site.axis)
                                   : ScaleLayout::per_tensor(weight.size());
    std::vector<float> back(static_cast<std::size_t>(weight.size()));
    dequantize(site.format.dtype, plan.codes.data(), layout, plan.scales.as<float>(), nullptr, back.data());
    const float* w = weight.as<float>();
    for (std::size_t i = 0; i < back.size(); ++i) {
      const auto c =
          layout.kind == ScaleLayout::Kind::kTensor
              ? std::size_t{0}
              : i / static_cast<std::size_t>(layout.inner) % static_cast<std::size_t>(layout.channels);
      const double s = static_cast<double>(plan.scales.as<float>()[c]);
      const double v = std::fabs(static_cast<double>(w[i]));
      if (v >= s * info.largest) continue;
      // One mantissa step of a float format, one code of an integer format; half of it by rounding, and the
      // division and product round in float32 on the way.
      const double step =
          info.is_integer() ? s : std::max(s * info.smallest, v * std::exp2(-info.mantissa_bits));
      if (std::fabs(static_cast<double>(back[i]) - static_cast<double>(w[i])) >
          0.5 * step * 1.001 + v * 1e-6) {
        complain(tensor, fmt::format("element {} is {} and dequantizes to {}", i, w[i], back[i]));
        return;
      }
    }
  }

  const Graph& whole_;
  const Graph& whole_back_;
  const Graph* source_ = nullptr;  // the graph that is looked at, in the plan
  const Graph* back_ = nullptr;    // and in the file
  AuditResult result_;
};

}  // namespace

AuditResult audit(const Graph& source, const Plan& plan, const Graph& read_back) {
  Auditor auditor(source, read_back);
  for (std::size_t i = 0; i < plan.weights.size(); ++i)
    auditor.weight(plan.placement.weights[i], plan.weights[i]);
  for (std::size_t i = 0; i < plan.activations.size(); ++i)
    auditor.activation(plan.placement.activations[i], plan.activations[i]);
  return auditor.take();
}

}  // namespace pare::quant
