// Pointwise DAGs, row kernels and pools.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"
#include "engine/ir/window.h"
#include "engine/numeric/convert.h"

namespace pare::planning {
namespace {

bool is_real(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

// Reductions keep or drop the last axis; the result is placed without it either way.
bool reduces_last_axis(const Graph& graph, const Node& node) {
  if (node.op != "ReduceMean" && node.op != "ReduceSum" && node.op != "ReduceMax" && node.op != "ReduceMin")
    return false;
  const int rank = graph.value(node.in[0]).shape.rank();
  std::vector<std::int64_t> axes = node.attr_ints("axes");
  if (node.in.size() > 1 && node.in[1] != ValueId::kNone) {
    if (!graph.is_constant(node.in[1])) return false;
    axes = graph.value(node.in[1]).constant.to_ints();
  }
  return axes.size() == 1 && (axes[0] == -1 || axes[0] == rank - 1);
}

}  // namespace

bool Planner::is_rows(const Node& node) const {
  if (!node.domain.empty() || node.in.empty()) return false;
  const int rank = graph_.value(node.in[0]).shape.rank();
  if (rank < 1 || !is_real(graph_.value(node.in[0]).dtype)) return false;
  if (!graph_.value(node.in[0]).shape.concrete()) return false;
  for (std::size_t i = 1; i < node.out.size(); ++i)
    if (node.out[i] != ValueId::kNone) return false;
  const std::int64_t axis = node.attr("axis", std::int64_t{-1});
  const bool last = axis == -1 || axis == rank - 1;
  if (node.op == "LayerNormalization" || node.op == "RMSNormalization") return last;
  if (node.op == "Softmax" || node.op == "LogSoftmax") return last && node.op == "Softmax";
  return reduces_last_axis(graph_, node);
}

bool Planner::is_pointwise(const Node& node, std::string& why) const {
  for (const ValueId id : node.out)
    if (id != ValueId::kNone && !graph_.value(id).shape.concrete()) {
      why = "a size that is only known when it runs";
      return false;
    }
  if (node.is("pare", "QAdd") || node.is("pare", "QLookup") || node.is("Concat")) return true;
  if (node.is("Gather")) return true;
  if (node.is("Cast")) {
    const DType from = graph_.value(node.in[0]).dtype, to = graph_.value(node.out[0]).dtype;
    if (is_real(to) || (is_integer(from) && is_integer(to))) return true;
    why = fmt::format("a cast from {} to {}", name(from), name(to));
    return false;
  }
  if ((node.op == "Max" || node.op == "Min") && node.in.size() != 2) return false;
  ProgramStep step;
  return step_of_node(graph_, node, step, why);
}

int Planner::leaf(Program& program, PlanLayer& layer, PlanView view) {
  ProgramLeaf l;
  l.input = static_cast<int>(layer.in.size());
  layer.in.push_back(std::move(view));
  program.leaves.push_back(l);
  ProgramStep step;
  step.op = "leaf";
  step.n = static_cast<int>(program.leaves.size()) - 1;
  program.steps.push_back(step);
  return static_cast<int>(program.steps.size()) - 1;
}

int Planner::expression(Program& program, PlanLayer& layer, ValueId value, NodeId root,
                        std::map<ValueId, int>& done) {
  const auto it = done.find(value);
  if (it != done.end()) return it->second;
  const auto add = [&](ProgramStep step) {
    program.steps.push_back(std::move(step));
    return done[value] = static_cast<int>(program.steps.size()) - 1;
  };
  const Value& v = graph_.value(value);
  if (v.is_constant() && v.constant.size() == 1) {
    Tensor f = Tensor::allocate(DType::kF32, {1});
    convert(v.constant.reshaped({1}).view(), f.view());
    ProgramStep step;
    step.op = "const";
    step.x = static_cast<double>(*f.as<float>());
    return add(std::move(step));
  }
  const NodeId id = graph_.producer(value);
  const bool inside = id != NodeId::kNone && class_of(id) == NodeClass::kPointwise &&
                      region_[static_cast<std::size_t>(id)] == root && !post_[static_cast<std::size_t>(id)] &&
                      placed_.find(value) == placed_.end();
  if (!inside) {
    PlanView view = view_of(value);
    view_expand(view, program.dims);
    return done[value] = leaf(program, layer, view);
  }
  const Node& node = graph_.node(id);
  const std::string label = node.name.empty() ? v.name : node.name;
  if (label != layer.name) layer.nodes.push_back(label);
  if (node.is("Cast")) return done[value] = expression(program, layer, node.in[0], root, done);
  if (node.is("Concat")) {
    const int rank = static_cast<int>(program.dims.size());
    std::int64_t axis = node.attr("axis", std::int64_t{0});
    if (axis < 0) axis += rank;
    std::int64_t start = 0;
    int sum = -1;
    for (const ValueId piece : node.in) {
      PlanView view = view_of(piece);
      const std::int64_t count = view.dims[static_cast<std::size_t>(axis)];
      if (count == 0) continue;
      view.dims = program.dims;
      const int at = leaf(program, layer, view);
      ProgramLeaf& l = program.leaves.back();
      l.range_axis = static_cast<int>(axis);
      l.lo = start;
      l.hi = start + count;
      start += count;
      if (sum < 0) {
        sum = at;
        continue;
      }
      ProgramStep step;
      step.op = "Add";
      step.args = {sum, at};
      program.steps.push_back(step);
      sum = static_cast<int>(program.steps.size()) - 1;
    }
    return done[value] = sum;
  }
  if (node.is("Gather") || node.is("pare", "QLookup")) {
    const bool lookup = node.op == "QLookup";
    PlanView table, index = view_of(node.in[lookup ? 0 : 1]);
    if (lookup) {  // by the bits of the code: negative codes count from the end
      const Tensor& codes = graph_.value(node.in[1]).constant;
      table = whole(plan_, weight(v.name + "_table", Tensor::copy_of(v.dtype, {256}, codes.data(), 256)));
    } else {
      table = view_of(node.in[0]);
    }
    const auto rank = static_cast<int>(table.dims.size());
    std::int64_t axis = lookup ? 0 : node.attr("axis", std::int64_t{0});
    if (axis < 0) axis += rank;
    const auto a = static_cast<std::size_t>(axis);
    PlanView rows = table, where = index;
    Dims row_strides(table.strides.begin(), table.strides.begin() + axis), index_strides(a, 0);
    for (std::size_t i = 0; i < index.dims.size(); ++i) {
      row_strides.push_back(0);
      index_strides.push_back(index.strides[i]);
    }
    for (std::size_t i = a + 1; i < table.dims.size(); ++i) {
      row_strides.push_back(table.strides[i]);
      index_strides.push_back(0);
    }
    where.dims = rows.dims = sizes(node.out[0]);
    where.strides = index_strides;
    rows.strides = row_strides;
    view_expand(where, program.dims);
    view_expand(rows, program.dims);
    leaf(program, layer, where);
    const int index_leaf = static_cast<int>(program.leaves.size()) - 1;
    program.steps.pop_back();  // read as an integer by the table's leaf, not as a value
    const int at = leaf(program, layer, rows);
    ProgramLeaf& l = program.leaves.back();
    l.index = index_leaf;
    l.index_stride = table.strides[a];
    l.index_rows = table.dims[a];
    return done[value] = at;
  }
  if (node.is("pare", "QAdd")) {
    int sides[2];
    for (int side = 0; side < 2; ++side) {
      const auto slot = static_cast<std::size_t>(3 * side);
      ProgramStep step;
      step.op = "Dequantize";
      step.args = {expression(program, layer, node.in[slot], root, done)};
      step.x = static_cast<double>(*graph_.value(node.in[slot + 1]).constant.as<float>());
      if (node.in[slot + 2] != ValueId::kNone)
        step.y = static_cast<double>(graph_.value(node.in[slot + 2]).constant.to_ints()[0]);
      program.steps.push_back(step);
      sides[side] = static_cast<int>(program.steps.size()) - 1;
    }
    ProgramStep sum;
    sum.op = "Add";
    sum.args = {sides[0], sides[1]};
    program.steps.push_back(sum);
    Activation act;
    read_activation(node, act);
    const int at = append_activation(program, act, static_cast<int>(program.steps.size()) - 1);
    ProgramStep quantize;
    quantize.op = "Quantize";
    quantize.args = {at};
    quantize.x = static_cast<double>(*graph_.value(node.in[6]).constant.as<float>());
    quantize.y = static_cast<double>(graph_.value(node.in[7]).constant.to_ints()[0]);
    quantize.z = static_cast<double>(static_cast<int>(v.dtype));
    return add(std::move(quantize));
  }
  ProgramStep step;
  std::string why;
  step_of_node(graph_, node, step, why);
  const int wanted = find_step(step.op)->args;
  for (int i = 0; i < wanted; ++i)
    step.args.push_back(expression(program, layer, node.in[static_cast<std::size_t>(i)], root, done));
  return add(std::move(step));
}

void Planner::emit_region(NodeId root) {
  PARE_ASSERT(emitted_.insert(root).second);
  const Node node = graph_.node(root);
  const bool rows = class_of(root) == NodeClass::kRows;
  PlanLayer layer = start_layer(rows ? LayerKind::kRows : LayerKind::kPointwise, node);
  layer.program.dims = sizes(rows ? node.in[0] : node.out[0]);
  std::map<ValueId, int> done;
  const int at = expression(layer.program, layer, rows ? node.in[0] : node.out[0], root, done);
  layer.program.results = {at};
  ValueId result = node.out[0];
  if (rows) {
    layer.op = node.op;
    layer.epsilon = static_cast<double>(node.attr("epsilon", 1e-5f));
    const bool normalizes = node.op == "LayerNormalization" || node.op == "RMSNormalization";
    for (std::size_t i = 1; i < 3; ++i) {
      PlanView view;
      if (normalizes && i < node.in.size() && node.in[i] != ValueId::kNone) view = view_of(node.in[i]);
      layer.in.push_back(view);
    }
    for (NodeId next = graph_.only_user(result);
         next != NodeId::kNone && post_[static_cast<std::size_t>(next)] &&
         region_[static_cast<std::size_t>(next)] == root;
         next = graph_.only_user(result)) {
      ProgramStep step;
      std::string why;
      step_of_node(graph_, graph_.node(next), step, why);
      layer.post.push_back(step);
      layer.nodes.push_back(graph_.node(next).name);
      result = graph_.node(next).out[0];
    }
  }
  const Dims dims = sizes(result);
  const int target = tensor_for(result, dims);
  placed_[result] = whole(plan_, target);
  layer.out.push_back(placed_[result]);
  for (const ValueId extra : exports_[root]) {
    layer.program.results.push_back(expression(layer.program, layer, extra, root, done));
    placed_[extra] = whole(plan_, tensor_for(extra, sizes(extra)));
    layer.out.push_back(placed_[extra]);
  }
  Codes beside;
  if (rows && layer.op.rfind("Reduce", 0) != 0 && options_.integer && bits(tensor(target).dtype) != 8 &&
      copied_quantizers(result, whole(plan_, target), beside)) {
    const int copied = add_tensor(graph_.value(result).name + "_codes", beside.type, dims);
    place_codes(beside, copied);
    layer.out.push_back(whole(plan_, copied));
    layer.copy_scale = beside.scale;
    layer.copy_zero = beside.zero;
  }
  plan_.layers.push_back(std::move(layer));
}

void Planner::emit_pool(NodeId id) {
  const Node node = graph_.node(id);
  PlanLayer layer = start_layer(LayerKind::kPool, node);
  const Dims x = sizes(node.in[0]), y = sizes(node.out[0]);
  if (x.size() != 4)
    fail(ErrorCode::kUnsupported, "pool '{}' has {} spatial axes; two are needed", node.name, x.size() - 2);
  ConvGeometry& g = layer.conv;
  g.n = x[0], g.h = x[1], g.w = x[2], g.c = g.m = x[3];
  g.group = g.c;
  g.oh = y[1], g.ow = y[2];
  layer.op = node.op == "GlobalAveragePool" ? "AveragePool" : node.op;
  if (node.op == "GlobalAveragePool") {
    g.kh = g.h, g.kw = g.w;
  } else {
    Window window = read_window(node, {});
    resolve_pads(window, {g.h, g.w});
    g.kh = window.kernel[0], g.kw = window.kernel[1];
    g.sh = window.strides[0], g.sw = window.strides[1];
    g.dh = window.dilations[0], g.dw = window.dilations[1];
    g.top = window.pads_begin[0], g.left = window.pads_begin[1];
    if (node.op == "AveragePool" && node.attr("count_include_pad", std::int64_t{0}) != 0)
      layer.op = "AveragePool+pads";
  }
  layer.in = {dense_operand(node.in[0], storage(node.in[0]), x)};
  Codes codes;
  PlanView all;
  all.dims = y;
  all.strides = dense_strides(y);
  if (bits(tensor(layer.in[0].tensor).dtype) != 8 && absorb_quantizers(node.out[0], all, 0, codes)) {
    const int target = add_tensor(graph_.value(node.out[0]).name + "_codes", codes.type, y);
    layer.epilogue.y_scale = static_cast<float>(codes.scale);
    layer.epilogue.y_zero = static_cast<float>(codes.zero);
    layer.out = {whole(plan_, target)};
    place_codes(codes, target);
  } else {
    placed_[node.out[0]] = whole(plan_, tensor_for(node.out[0], y));
    layer.out = {placed_[node.out[0]]};
  }
  plan_.layers.push_back(std::move(layer));
}

}  // namespace pare::planning
