#include "quant/audit.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/absent_tensor.h"
#include "engine/base/error.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"
#include "engine/run/evaluate.h"
#include "quant/apply_activation.h"
#include "quant/placement/activation.h"

namespace pare::quant {
namespace {

// The scale of every element: what codes of one dequantize to.
Tensor steps_of(const WeightSite& site, const WeightPlan& plan) {
  WeightPlan ones = plan;
  ones.zero_points = Tensor{};
  std::vector<float> one(static_cast<std::size_t>(plan.codes.size()), 1.0f);
  ones.codes = Tensor::allocate(site.format.dtype, plan.codes.dims());
  format_info(site.format.dtype).encode(one.data(), ones.codes.mut<std::byte>(), plan.codes.size());
  return dequantized(site, ones);
}

bool at_edge(const GridFormat& format, const WeightPlan& plan, std::int64_t i) {
  const FormatInfo& info = format_info(plan.codes.dtype());
  float code = 0;
  if (info.bits >= 8) {
    info.decode(plan.codes.as<std::uint8_t>() + i * (info.bits / 8), &code, 1);
  } else {
    const std::uint8_t one = packed_code(info.bits, plan.codes.data(), i);
    info.decode(&one, &code, 1);
  }
  return static_cast<double>(code) >= format.largest_code() ||
         static_cast<double>(code) <= format.lowest_code();
}

class Auditor {
 public:
  Auditor(const Graph& source, const Graph& read_back) : whole_(source), whole_back_(read_back) {}

  void weight(const WeightSite& site, const WeightPlan& plan) {
    const std::string name = value_label(whole_, site.path, site.value);
    ++result_.tensors;
    if (!enter(site.path)) return complain(name, "its subgraph is not in the file");
    bool any = false;
    for (const Use& use : site.uses) {
      if (in_other_form(use, site, plan, name)) continue;
      const Node* dq = dequantizer(use, name);
      if (dq == nullptr) continue;
      any = true;
      same(name, "codes", constant(dq->in[0]), plan.codes);
      scales(name, *dq, plan);
      const Tensor zeros = dq->in.size() > 2 ? constant(dq->in[2]) : Tensor{};
      if (!plan.zero_points.empty())
        same(name, "zero points", zeros, plan.zero_points);
      else if (!zeros.empty() && !all_zero(zeros))
        complain(name, "it has zero points in the file, and none were decided");
      const bool block = site.format.granularity == Granularity::kBlock;
      const std::int64_t axis = block ? site.reduce_axis : site.axis;
      if (site.format.granularity != Granularity::kTensor && dq->attr("axis", std::int64_t{1}) != axis)
        complain(name,
                 fmt::format("axis {} was written, {} was decided", dq->attr("axis", std::int64_t{1}), axis));
      if (dq->attr("block_size", std::int64_t{0}) != site.format.block)
        complain(name, fmt::format("blocks of {} were written, of {} were decided",
                                   dq->attr("block_size", std::int64_t{0}), site.format.block));
    }
    if (any) near(name, site, plan);
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
      const bool uint8 =
          site.format.dynamic && !site.format.symmetric && site.format.granularity == Granularity::kTensor;
      const char* const wanted = uint8 ? "DynamicQuantizeLinear" : "QuantizeLinear";
      if (q_id == NodeId::kNone || back_->node(q_id).op != wanted) {
        complain(name, fmt::format("its DequantizeLinear does not follow a {}", wanted));
        continue;
      }
      if (site.format.granularity == Granularity::kBlock) {
        blocks(name, *dq, site, plan);
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
        if (zero.empty() ? !all_zero(zeros) : !equal_bytes(zero, zeros))
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

  // Reads the weight through operators on constants, DequantizeLinear not the last of them; compared then.
  bool in_other_form(const Use& use, const WeightSite& site, const WeightPlan& plan,
                     const std::string& name) {
    const Node* reader = counterpart(source_->node(use.node));
    if (reader != nullptr && reader->is("Add") && !source_->node(use.node).is("Add")) {
      const NodeId product = back_->producer(reader->in[0]);  // MatMulNBits with a bias
      reader = product == NodeId::kNone ? nullptr : &back_->node(product);
    }
    if (reader == nullptr || static_cast<std::size_t>(use.slot) >= reader->in.size()) return false;
    const ValueId in = reader->in[static_cast<std::size_t>(use.slot)];
    const NodeId maker = in == ValueId::kNone ? NodeId::kNone : back_->producer(in);
    if (maker == NodeId::kNone || back_->node(maker).is("DequantizeLinear")) return false;
    const std::optional<Tensor> got = evaluated(in, kDeepest);
    if (!got) return false;
    const Tensor want = dequantized(site, plan);
    result_.codes += want.size();
    if (!equal_bytes(*got, want) && !is_transposed(*got, want))
      complain(name, "the file dequantizes to other values than decided");
    return true;
  }

  static constexpr int kDeepest = 8;

  std::optional<Tensor> evaluated(ValueId id, int depth) const {
    if (id == ValueId::kNone) return Tensor{};
    if (back_->is_constant(id)) return back_->value(id).constant;
    const NodeId producer = back_->producer(id);
    if (producer == NodeId::kNone || depth == 0) return std::nullopt;
    Graph one;  // the node alone, its inputs constants
    Node node = back_->node(producer);
    if (node.out.size() != 1) return std::nullopt;
    for (ValueId& in : node.in) {
      if (in == ValueId::kNone) continue;
      std::optional<Tensor> value = evaluated(in, depth - 1);
      if (!value) return std::nullopt;
      in = one.add_constant("in" + std::to_string(one.value_count()), std::move(*value));
    }
    Value out = back_->value(id);
    node.out = {one.add_value(std::move(out))};
    const NodeId made = one.add_node(std::move(node));
    return evaluate_constant_node(one, one.node(made))[0];
  }

  static bool is_transposed(const Tensor& a, const Tensor& b) {
    if (a.dims().size() != 2 || b.dims() != Dims{a.dims()[1], a.dims()[0]}) return false;
    for (std::int64_t i = 0; i < a.dims()[0]; ++i)
      for (std::int64_t j = 0; j < a.dims()[1]; ++j)
        if (a.as<float>()[i * a.dims()[1] + j] != b.as<float>()[j * a.dims()[0] + i]) return false;
    return true;
  }

  void same(const std::string& tensor, const char* what, const Tensor& got, const Tensor& want) {
    result_.codes += want.size();
    if (!got.empty() && equal_bytes(got, want)) return;
    complain(tensor, got.empty() ? fmt::format("its {} are no constant in the file", what)
                                 : fmt::format("its {} differ: {} {} in the file, {} {} decided", what,
                                               pare::name(got.dtype()), pare::to_string(got.dims()),
                                               pare::name(want.dtype()), pare::to_string(want.dims())));
  }

  // Scales a block are made at run time, E4M3 ones below the plan's global scale.
  void blocks(const std::string& tensor, const Node& dq, const ActivationSite& site,
              const ActivationPlan& plan) {
    const DType codes = back_->value(dq.in[0]).dtype;
    if (codes != site.format.dtype)
      complain(tensor, fmt::format("its codes are {}, decided were {}", pare::name(codes),
                                   pare::name(site.format.dtype)));
    if (dq.attr("block_size", std::int64_t{0}) != site.format.block)
      complain(tensor, fmt::format("blocks of {} were written, of {} were decided",
                                   dq.attr("block_size", std::int64_t{0}), site.format.block));
    const NodeId made = back_->producer(dq.in[1]);
    if (made == NodeId::kNone) return complain(tensor, "its block scales are not made at run time");
    if (site.format.scales == DType::kE8M0) {
      if (back_->value(dq.in[1]).dtype != DType::kE8M0)
        complain(tensor, "its block scales are not float8e8m0");
      return;
    }
    if (site.format.scales == DType::kF32) {
      if (back_->value(dq.in[1]).dtype != DType::kF32) complain(tensor, "its block scales are not float32");
      return;
    }
    const Node& level = back_->node(made);
    const Tensor global = level.in.size() > 1 ? constant(level.in[1]) : Tensor{};
    if (level.op != "DequantizeLinear" || back_->value(level.in[0]).dtype != DType::kE4M3FN)
      complain(tensor, "its block scales are not float8_e4m3fn");
    else if (global.empty() || !equal_bytes(global, Tensor::scalar(plan.scale)))
      complain(tensor, fmt::format("its global scale is not {}", plan.scale));
  }

  // A constant, or for two levels the DequantizeLinear of constants.
  void scales(const std::string& tensor, const Node& dq, const WeightPlan& plan) {
    if (plan.global.empty()) return same(tensor, "scales", constant(dq.in[1]), plan.scales);
    const NodeId id = back_->producer(dq.in[1]);
    if (id == NodeId::kNone || back_->node(id).op != "DequantizeLinear")
      return complain(tensor, "its block scales are not dequantized in the file");
    same(tensor, "scales", constant(back_->node(id).in[0]), plan.scales);
    same(tensor, "global scale", constant(back_->node(id).in[1]), plan.global);
  }

  static bool all_zero(const Tensor& tensor) {
    const auto* bytes = tensor.as<std::uint8_t>();
    return std::all_of(bytes, bytes + tensor.bytes(), [](std::uint8_t b) { return b == 0; });
  }

  static float number(const Tensor& tensor) {
    float value = 0;
    format_info(tensor.dtype()).decode(tensor.data(), &value, 1);
    return value;
  }

  void near(const std::string& tensor, const WeightSite& site, const WeightPlan& plan) {
    const Tensor& weight = source_->value(site.value).constant;
    if (is_absent(weight)) return;
    const std::string wrong = not_nearest(weight, site, plan);
    if (!wrong.empty()) complain(tensor, wrong);
  }

  const Graph& whole_;
  const Graph& whole_back_;
  const Graph* source_ = nullptr;  // the graph that is looked at, in the plan
  const Graph* back_ = nullptr;    // and in the file
  AuditResult result_;
};

}  // namespace

// |w - dequantized| <= half the grid step at that place, or the code is the largest.
std::string not_nearest(const Tensor& weight, const WeightSite& site, const WeightPlan& plan) {
  if (!plan.nearest) return "";  // the codes make up for each other's errors
  const GridFormat format = grid_format(site.format);
  const FormatInfo& info = format_info(site.format.dtype);
  const Tensor back = dequantized(site, plan);
  const Tensor steps = steps_of(site, plan);
  const float *w = weight.as<float>(), *got = back.as<float>(), *scale = steps.as<float>();
  for (std::int64_t i = 0; i < weight.size(); ++i) {
    const double s = std::fabs(static_cast<double>(scale[i]));
    const double v = std::fabs(static_cast<double>(w[i]));
    const double off = std::fabs(static_cast<double>(got[i]) - static_cast<double>(w[i]));
    // One mantissa step of a float format, one code of an integer format; half of it by rounding, and the
    // division and product round in float32 on the way. A code at the edge may be any distance away.
    const double step =
        info.is_integer() ? s : std::max(s * info.smallest, v * std::exp2(-info.mantissa_bits));
    if (off <= 0.5 * step * 1.001 + v * 1e-6 || at_edge(format, plan, i)) continue;
    return fmt::format("element {} is {} and dequantizes to {}", i, w[i], got[i]);
  }
  return "";
}

AuditResult audit_constants(const Graph& source, const Plan& plan, const Graph& read_back) {
  AuditResult result;
  const auto same = [&](const std::string& tensor, const std::string& name, const Tensor& want) {
    if (want.empty()) return;
    const ValueId id = read_back.find_value(name);
    result.codes += want.size();
    if (id == ValueId::kNone || !read_back.is_constant(id))
      result.mismatches.push_back({tensor, fmt::format("'{}' is not in the file", name)});
    else if (!equal_bytes(read_back.value(id).constant, want))
      result.mismatches.push_back({tensor, fmt::format("'{}' differs from what was decided", name)});
  };
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    const WeightSite& site = plan.placement.weights[i];
    if (!site.path.empty()) continue;
    const std::string& base = source.value(site.value).name;
    ++result.tensors;
    same(base, base + "_quantized", plan.weights[i].codes);
    same(base, base + "_scale", plan.weights[i].scales);
    same(base, base + "_zero_point", plan.weights[i].zero_points);
  }
  for (std::size_t i = 0; i < plan.activations.size(); ++i) {
    const ActivationSite& site = plan.placement.activations[i];
    if (!site.path.empty()) continue;
    const std::string& base = source.value(site.value).name;
    ++result.tensors;
    same(base, base + "_scale", activation_scales(plan.activations[i]));
  }
  return result;
}

AuditResult audit(const Graph& source, const Plan& plan, const Graph& read_back) {
  Auditor auditor(source, read_back);
  for (std::size_t i = 0; i < plan.weights.size(); ++i)
    auditor.weight(plan.placement.weights[i], plan.weights[i]);
  for (std::size_t i = 0; i < plan.activations.size(); ++i)
    auditor.activation(plan.placement.activations[i], plan.activations[i]);
  return auditor.take();
}

}  // namespace pare::quant
