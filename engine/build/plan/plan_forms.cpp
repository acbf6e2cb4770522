// Forms of a lowered graph: resizing, pools, reductions, padding.
#include "engine/build/plan/plan_forms.h"

#include <algorithm>
#include <set>

#include "engine/build/plan/plan_forms_write.h"
#include "engine/ir/schema.h"
#include "engine/numeric/convert.h"
#include "engine/ops/images/resize.h"

namespace pare::planning {
namespace {

ValueId rows_by_number(Rewrite& to, ValueId x, const std::vector<std::int64_t>& numbers, std::int64_t axis) {
  return to.add("Gather", {x, to.ints(numbers)}, {{"axis", axis}});
}

// `values` along one axis of `rank`, 1 along the others.
ValueId along(Rewrite& to, const std::vector<float>& values, std::size_t axis, std::size_t rank) {
  Dims dims(rank, 1);
  dims[axis] = static_cast<std::int64_t>(values.size());
  return to.constant(Tensor::from<float>(DType::kF32, dims, values));
}

bool resize_by_rows(Rewrite& to) {
  const Node& node = to.node();
  if (!to.sized(to.in(0)) || !to.sized(to.out(0))) return false;
  const Graph& graph = to.graph();
  const resize::Attributes attributes = resize::attributes(node);
  if (attributes.coordinates == "tf_crop_and_resize") return false;
  const Dims x = to.dims(to.in(0)), y = to.dims(to.out(0));
  std::vector<TensorView> in = {TensorView{graph.value(to.in(0)).dtype, x, nullptr}};
  for (std::size_t i = 1; i < node.in.size(); ++i) {
    in.emplace_back();
    if (node.in[i] == ValueId::kNone) continue;
    if (!graph.is_constant(node.in[i])) return false;
    if (graph.value(node.in[i]).constant.size() > 0) in.back() = graph.value(node.in[i]).constant.view();
  }
  const std::vector<TensorView> out = {TensorView{graph.value(to.out(0)).dtype, y, nullptr}};
  OpCall call;
  call.node = &node;
  call.in = in;
  call.out = out;
  const bool real = graph.value(to.in(0)).dtype == DType::kF32;
  if (!real && attributes.mode != "nearest") return false;
  ValueId value = to.in(0);
  for (const resize::AxisMap& map : resize::axis_maps(call)) {
    if (resize::changes_nothing(map, attributes)) continue;
    std::vector<std::vector<resize::Tap>> taps;
    std::size_t most = 0;
    for (std::int64_t i = 0; i < map.out; ++i) {
      taps.push_back(resize::taps(map, attributes, i));
      most = std::max(most, taps.back().size());
    }
    ValueId sum = ValueId::kNone;
    for (std::size_t t = 0; t < most; ++t) {
      std::vector<std::int64_t> places;
      std::vector<float> weights;
      for (const auto& list : taps) {
        places.push_back(t < list.size() ? list[t].place : 0);
        weights.push_back(t < list.size() ? static_cast<float>(list[t].weight) : 0.0F);
      }
      const auto all = [&](float w) {
        return std::all_of(weights.begin(), weights.end(), [&](float v) { return v == w; });
      };
      if (all(0)) continue;
      ValueId term = rows_by_number(to, value, places, static_cast<std::int64_t>(map.axis));
      if (!all(1)) term = to.add("Mul", {term, along(to, weights, map.axis, x.size())});
      sum = sum == ValueId::kNone ? term : to.add("Add", {sum, term});
    }
    value = sum;
  }
  to.give(0, "Identity", {value});
  to.finish();
  return true;
}

// [N,C,H,W] -> pare.MaxPool and the like on [N,H,W,C].
bool pool_channels_last(Rewrite& to) {
  const Node& node = to.node();
  Graph& graph = to.graph();
  if (node.out.size() != 1 || !to.sized(to.in(0)) || !to.sized(to.out(0))) return false;
  const Dims x = to.dims(to.in(0)), y = to.dims(to.out(0));
  if (x.size() != 4 || graph.value(to.in(0)).dtype != DType::kF32) return false;
  const auto last = [&](ValueId id, const Dims& d) {
    graph.value(id).layout = Layout::kChannelsLast;
    graph.value(id).shape = Shape(Dims{d[0], d[2], d[3], d[1]});
    return id;
  };
  const ValueId map = last(to.add("ToChannelsLast", {to.in(0)}, {}, "pare"), x);
  const ValueId pooled = last(to.add(node.op.c_str(), {map}, node.attrs, "pare"), y);
  to.give(0, "ToPlain", {pooled}, {}, "pare");
  to.finish();
  return true;
}

// The axes at the end, as one.
bool reduce_last(Rewrite& to, const char* op, std::set<std::int64_t> axes) {
  if (!to.sized(to.in(0)) || !to.sized(to.out(0)) || axes.empty()) return false;
  const Dims x = to.dims(to.in(0)), y = to.dims(to.out(0));
  const auto rank = static_cast<std::int64_t>(x.size());
  std::vector<std::int64_t> perm;
  Dims kept;
  for (std::int64_t i = 0; i < rank; ++i)
    if (axes.count(i) == 0) perm.push_back(i), kept.push_back(x[static_cast<std::size_t>(i)]);
  std::int64_t count = 1;
  for (const std::int64_t axis : axes) perm.push_back(axis), count *= x[static_cast<std::size_t>(axis)];
  ValueId value = to.transpose(to.in(0), perm);
  kept.push_back(count);
  value = to.reshape(value, kept);
  value = to.add(op, {value, to.ints({static_cast<std::int64_t>(kept.size()) - 1})},
                 {{"keepdims", std::int64_t{0}}});
  to.give(0, "Reshape", {value, to.ints(y)});
  to.finish();
  return true;
}

bool reduce(Rewrite& to) {
  const Node& node = to.node();
  if (!to.sized(to.in(0)) || to.graph().value(to.in(0)).dtype != DType::kF32) return false;
  const auto rank = static_cast<std::int64_t>(to.dims(to.in(0)).size());
  std::set<std::int64_t> axes;
  if (to.in(1) != ValueId::kNone) {
    Tensor list;
    if (!to.known(1, list)) return false;
    for (const std::int64_t axis : list.to_ints()) axes.insert(axis < 0 ? axis + rank : axis);
  }
  if (axes.empty()) {
    if (node.attr("noop_with_empty_axes", std::int64_t{0}) != 0) return false;
    for (std::int64_t i = 0; i < rank; ++i) axes.insert(i);
  }
  if (axes.size() == 1 && *axes.begin() == rank - 1) return false;  // a layer of its own
  return reduce_last(to, node.op.c_str(), axes);
}

bool pad(Rewrite& to) {
  const Node& node = to.node();
  Tensor pads, fill, given;
  if (!to.sized(to.in(0)) || !to.sized(to.out(0)) || !to.known(1, pads)) return false;
  const bool filled = to.known(2, fill), named = to.known(3, given);
  if ((to.in(2) != ValueId::kNone && !filled) || (to.in(3) != ValueId::kNone && !named)) return false;
  const std::string mode = node.attr("mode", "constant");
  Dims now = to.dims(to.in(0));
  const auto rank = static_cast<std::int64_t>(now.size());
  std::vector<std::int64_t> axes, amounts = pads.to_ints();
  if (named)
    for (const std::int64_t axis : given.to_ints()) axes.push_back(axis < 0 ? axis + rank : axis);
  else
    for (std::int64_t i = 0; i < rank; ++i) axes.push_back(i);
  if (amounts.size() != 2 * axes.size()) return false;
  for (const std::int64_t axis : axes)
    if (axis < 0 || axis >= rank) return false;
  for (const std::int64_t amount : amounts)
    if (amount < 0) return false;
  const DType type = to.graph().value(to.in(0)).dtype;
  if (mode == "constant" && type != DType::kF32) return false;
  float number = 0;
  if (filled && fill.size() == 1 && fill.dtype() == type)
    convert(fill.reshaped({1}).view(), TensorView{DType::kF32, {1}, &number});
  ValueId value = to.in(0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t before = amounts[i], after = amounts[i + axes.size()];
    const auto axis = static_cast<std::size_t>(axes[i]);
    const std::int64_t size = now[axis];
    if (before == 0 && after == 0) continue;
    if (mode == "constant") {
      const auto block = [&](std::int64_t count) {
        Dims dims = now;
        dims[axis] = count;
        Tensor made = Tensor::allocate(DType::kF32, dims);
        std::fill_n(made.mut<float>(), made.size(), number);
        return to.constant(std::move(made));
      };
      std::vector<ValueId> pieces = {value};
      if (before > 0) pieces.insert(pieces.begin(), block(before));
      if (after > 0) pieces.push_back(block(after));
      value = to.add("Concat", pieces, {{"axis", axes[i]}});
    } else {
      std::vector<std::int64_t> rows;
      for (std::int64_t p = -before; p < size + after; ++p) {
        std::int64_t row = std::clamp<std::int64_t>(p, 0, size - 1);  // edge
        if (mode == "wrap") row = (p % size + size) % size;
        if (mode == "reflect") {
          const std::int64_t period = std::max<std::int64_t>(2 * (size - 1), 1),
                             at = (p % period + period) % period;
          row = at < size ? at : period - at;
        }
        rows.push_back(row);
      }
      value = rows_by_number(to, value, rows, axes[i]);
    }
    now[axis] = size + before + after;
  }
  to.give(0, "Identity", {value});
  to.finish();
  return true;
}

}  // namespace

void expand_lowered(Graph& graph) {
  bool changed = false;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    Rewrite to(graph, id);
    if (node.is("Resize")) {
      changed = resize_by_rows(to) || changed;
    } else if (node.is("MaxPool") || node.is("AveragePool") || node.is("GlobalAveragePool")) {
      changed = pool_channels_last(to) || changed;
    } else if (node.is("GlobalMaxPool") && to.sized(to.in(0))) {
      std::set<std::int64_t> axes;
      for (std::size_t i = 2; i < to.dims(to.in(0)).size(); ++i) axes.insert(static_cast<std::int64_t>(i));
      changed = reduce_last(to, "ReduceMax", axes) || changed;
    } else if (node.is("ReduceMean") || node.is("ReduceSum") || node.is("ReduceMax") ||
               node.is("ReduceMin")) {
      changed = reduce(to) || changed;
    } else if (node.is("Pad")) {
      changed = pad(to) || changed;
    }
  }
  if (changed) infer_shapes(graph);
}

}  // namespace pare::planning
