// Movement operators as views, and copies where a view will not do.
#include "engine/base/error.h"
#include "engine/build/plan/planner.h"

namespace pare::planning {
namespace {

bool constant_ints(const Graph& graph, const Node& node, std::size_t slot, std::vector<std::int64_t>& out) {
  if (slot >= node.in.size() || node.in[slot] == ValueId::kNone) return false;
  if (!graph.is_constant(node.in[slot])) return false;
  out = graph.value(node.in[slot]).constant.to_ints();
  return true;
}

constexpr std::int64_t kTableSize = 65536;

bool is_real(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

}  // namespace

bool Planner::is_view_node(const Node& node, std::string& why) const {
  for (const ValueId id : node.out)
    if (id != ValueId::kNone && !graph_.value(id).shape.concrete()) {
      why = "a size that is only known when it runs";
      return false;
    }
  if (node.is("pare", "ToPlain") || node.is("pare", "ToChannelsLast")) return true;
  if (!node.domain.empty()) return false;
  std::vector<std::int64_t> ints;
  if (node.op == "Identity" || node.op == "Reshape" || node.op == "Flatten" || node.op == "Squeeze" ||
      node.op == "Unsqueeze" || node.op == "Transpose" || node.op == "Expand" || node.op == "Split")
    return true;
  if (node.op == "Cast")
    return graph_.value(node.in[0]).dtype == graph_.value(node.out[0]).dtype ||
           (is_real(graph_.value(node.in[0]).dtype) && is_real(graph_.value(node.out[0]).dtype));
  if (node.op == "Slice") {
    if (constant_ints(graph_, node, 1, ints) && constant_ints(graph_, node, 2, ints)) return true;
    why = "its limits are not constants";
    return false;
  }
  return node.op == "Gather" && constant_ints(graph_, node, 1, ints) && ints.size() == 1;
}

bool Planner::view_node(const Node& node, PlanView& view) {
  const int rank = static_cast<int>(view.dims.size());
  const auto axis_of = [&](std::int64_t axis) { return static_cast<int>(axis < 0 ? axis + rank : axis); };
  if (node.is("pare", "ToPlain") || node.is("pare", "ToChannelsLast")) {
    std::vector<std::int64_t> perm = {0};
    if (node.op == "ToPlain") perm.push_back(rank - 1);
    for (int i = node.op == "ToPlain" ? 1 : 2; i < (node.op == "ToPlain" ? rank - 1 : rank); ++i)
      perm.push_back(i);
    if (node.op != "ToPlain") perm.push_back(1);
    view_transpose(view, perm);
    return true;
  }
  if (node.op == "Identity" || node.op == "Cast") return true;
  if (node.op == "Transpose") {
    std::vector<std::int64_t> perm = node.attr_ints("perm");
    if (perm.empty())
      for (int i = rank; i-- > 0;) perm.push_back(i);
    view_transpose(view, perm);
    return true;
  }
  if (node.op == "Expand") {
    view_expand(view, sizes(node.out[0]));
    return true;
  }
  if (node.op == "Slice") {
    std::vector<std::int64_t> starts, ends, axes, steps;
    constant_ints(graph_, node, 1, starts);
    constant_ints(graph_, node, 2, ends);
    if (!constant_ints(graph_, node, 3, axes))
      for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
    if (!constant_ints(graph_, node, 4, steps)) steps.assign(starts.size(), 1);
    const Dims result = sizes(node.out[0]);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const int axis = axis_of(axes[i]);
      const std::int64_t size = view.dims[static_cast<std::size_t>(axis)];
      std::int64_t start = starts[i] < 0 ? starts[i] + size : starts[i];
      start = steps[i] > 0 ? std::min(std::max<std::int64_t>(start, 0), size)
                           : std::min(std::max<std::int64_t>(start, 0), size - 1);
      view_slice(view, axis, start, result[static_cast<std::size_t>(axis)], steps[i]);
    }
    return true;
  }
  if (node.op == "Gather") {
    const int axis = axis_of(node.attr("axis", std::int64_t{0}));
    const std::int64_t size = view.dims[static_cast<std::size_t>(axis)];
    std::int64_t index = graph_.value(node.in[1]).constant.to_ints()[0];
    if (index < 0) index += size;
    if (index < 0 || index >= size)
      fail(ErrorCode::kBadFile, "node '{}' gathers row {} of {}", node.name, index, size);
    view_select(view, axis, index);
    return view_reshape(view, sizes(node.out[0]));
  }
  return view_reshape(view, sizes(node.out[0]));  // Reshape, Flatten, Squeeze, Unsqueeze
}

PlanView Planner::apply_view_node(ValueId value) {
  const Node& node = graph_.node(graph_.producer(value));
  PlanView view = view_of(node.in[0]);
  if (node.is("Split")) {
    const int rank = static_cast<int>(view.dims.size());
    const std::int64_t given = node.attr("axis", std::int64_t{0});
    const int axis = static_cast<int>(given < 0 ? given + rank : given);
    std::int64_t start = 0;
    for (const ValueId out : node.out) {
      if (out == value) break;
      start += sizes(out)[static_cast<std::size_t>(axis)];
    }
    view_slice(view, axis, start, sizes(value)[static_cast<std::size_t>(axis)], 1);
    return view;
  }
  if (!view_node(node, view)) {
    view = copy(view, tensor(view.tensor).dtype, graph_.value(node.in[0]).name);
    const bool works = view_node(node, view);
    PARE_ASSERT(works);
  }
  return view;
}

PlanView Planner::view_of(ValueId value) {
  const auto it = placed_.find(value);
  if (it != placed_.end()) return it->second;
  const Value& v = graph_.value(value);
  if (v.is_constant()) {
    const bool real = is_real(v.dtype);
    // Tables (embeddings) in the engine's precision, vectors and the like in full.
    const DType type = v.constant.size() > kTableSize ? options_.precision : DType::kF32;
    const int id = real ? weight_as(v.name, v.constant, type) : weight(v.name, v.constant);
    return placed_[value] = whole(plan_, id);
  }
  const NodeId id = graph_.producer(value);
  PARE_ASSERT(id != NodeId::kNone);
  const NodeClass c = class_of(id);
  if (c == NodeClass::kView) return placed_[value] = apply_view_node(value);
  PARE_ASSERT(c == NodeClass::kPointwise || c == NodeClass::kRows);
  emit_region(region_[static_cast<std::size_t>(id)]);
  const auto made = placed_.find(value);
  PARE_ASSERT(made != placed_.end());
  return made->second;
}

PlanView Planner::view_before_quantizer(ValueId value, ProgramStep& step) {
  std::vector<NodeId> movement;
  ValueId at = value;
  while (placed_.find(at) == placed_.end() && graph_.only_user(at) != NodeId::kNone) {
    const NodeId id = graph_.producer(at);
    if (id == NodeId::kNone) break;
    const Node& node = graph_.node(id);
    std::string why;
    if (class_of(id) == NodeClass::kView && node.out.size() == 1 && !node.is("Split")) {
      movement.push_back(id);
      at = node.in[0];
      continue;
    }
    if (class_of(id) != NodeClass::kPointwise || !node.is("QuantizeLinear") || emitted_.count(id) != 0 ||
        region_[static_cast<std::size_t>(id)] != id || !step_of_node(graph_, node, step, why))
      break;
    // What the quantizer's own kernel computes on its way is nowhere to be read.
    const NodeId before = graph_.producer(node.in[0]);
    if (placed_.find(node.in[0]) == placed_.end() && before != NodeId::kNone &&
        class_of(before) == NodeClass::kPointwise && region_[static_cast<std::size_t>(before)] == id)
      break;
    PlanView view = view_of(node.in[0]);
    for (auto it = movement.rbegin(); it != movement.rend(); ++it)
      if (!view_node(graph_.node(*it), view)) {
        step = {};
        return view_of(value);
      }
    return view;
  }
  step = {};
  return view_of(value);
}

PlanView Planner::copy(const PlanView& from, DType dtype, const std::string& what, std::int64_t pad,
                       const ProgramStep* step) {
  PlanLayer layer;
  layer.kind = LayerKind::kPointwise;
  layer.name = "copy " + what;
  layer.nodes = {layer.name};
  layer.requested = layer.realized = name(options_.precision);
  Dims dims = from.dims;
  const std::int64_t width = dims.empty() ? 1 : dims.back();
  if (!dims.empty()) dims.back() = (width + pad - 1) / pad * pad;
  PlanView source = from;
  source.dims = dims;
  const int at = leaf(layer.program, layer, source);
  if (!dims.empty() && dims.back() != width) {
    ProgramLeaf& l = layer.program.leaves.back();
    l.range_axis = static_cast<int>(dims.size()) - 1;
    l.hi = width;
  }
  layer.program.dims = dims;
  layer.program.results = {at};
  if (step != nullptr && !step->op.empty()) {
    layer.program.steps.push_back(*step);
    layer.program.steps.back().args = {at};
    layer.program.results = {at + 1};
  }
  const int target = add_tensor(what + "_copy", dtype, dims);
  layer.out = {whole(plan_, target)};
  plan_.layers.push_back(std::move(layer));
  return whole(plan_, target);
}

PlanView Planner::dense_operand(ValueId value, DType dtype, const Dims& dims) {
  const auto key = std::make_pair(value, static_cast<int>(dtype));
  const auto it = copies_.find(key);
  if (it != copies_.end()) {
    PlanView view = it->second;
    const bool fits = view_reshape(view, dims);
    PARE_ASSERT(fits);
    return view;
  }
  PlanView view = view_of(value);
  if (tensor(view.tensor).dtype == dtype && is_dense(view) && view.offset % 16 == 0) {
    const bool fits = view_reshape(view, dims);
    PARE_ASSERT(fits);
    return view;
  }
  PlanView made = copy(view, dtype, graph_.value(value).name);
  copies_[key] = made;
  const bool fits = view_reshape(made, dims);
  PARE_ASSERT(fits);
  return made;
}

}  // namespace pare::planning
