#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/expand.h"

namespace pare {
namespace {

// True: the node has been replaced. False: it has not, and nothing was written.
using Rule = bool (*)(Expander&, std::string& why);

bool is_real(DType type) { return type == DType::kF32 || type == DType::kF64 || type == DType::kF16; }

bool refuse(std::string& why, const char* reason) {
  why = reason;
  return false;
}

// Softmax below 13 works on the last axes: the axis is brought there.
bool expand_softmax(Expander& e, std::string& why) {
  const int rank = e.rank();
  if (rank <= 0) return refuse(why, "the rank of its input is not known");
  std::int64_t axis = e.node().attr("axis", std::int64_t{-1});
  if (axis < 0) axis += rank;
  std::vector<std::int64_t> swap(static_cast<std::size_t>(rank));
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[static_cast<std::size_t>(axis)], swap.back());
  const ValueId last = e.emit("Transpose", {e.node().in[0]}, {{"perm", swap}});
  const ValueId result = e.emit(e.node().op.c_str(), {last}, {{"axis", std::int64_t{-1}}});
  e.finish("Transpose", {result}, {{"perm", swap}});
  return true;
}

// num_outputs (18): ceil(size / parts) each, the last one what is left.
bool expand_split(Expander& e, std::string& why) {
  if (e.has(1)) return false;
  std::int64_t size = 0;
  if (!e.size(0, e.node().attr("axis", std::int64_t{0}), size))
    return refuse(why, "the size that it splits is not known");
  const auto parts = static_cast<std::int64_t>(e.node().out.size());
  const std::int64_t each = (size + parts - 1) / parts;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), each);
  sizes.back() = size - each * (parts - 1);
  if (sizes.back() < 0) return refuse(why, "it has more parts than elements");
  Attributes attrs = e.node().attrs;
  attrs.erase("num_outputs");
  e.finish("Split", {e.node().in[0], e.ints(sizes)}, std::move(attrs));
  return true;
}

bool expand_reduce(Expander& e, std::string& why) {
  std::vector<std::int64_t> axes;
  const bool constant = e.constant_ints(1, axes);
  const bool none = !e.has(1) || (constant && axes.empty());
  const std::string& op = e.node().op;
  if (none && e.node().attr("noop_with_empty_axes", std::int64_t{0}) != 0) {
    // Reduces nothing: what it does to each element alone.
    const ValueId x = e.node().in[0];
    if (op == "ReduceSum" || op == "ReduceMean" || op == "ReduceMax" || op == "ReduceMin" ||
        op == "ReduceProd")
      e.finish("Identity", {x});
    else if (op == "ReduceL1" || op == "ReduceL2")
      e.finish("Abs", {x});
    else if (op == "ReduceSumSquare")
      e.finish("Mul", {x, x});
    else
      return refuse(why, "it reduces nothing (noop_with_empty_axes)");
    return true;
  }
  // Computed axes: from 13 on only ReduceSum takes them.
  if (e.opset() < 13 || !e.has(1) || constant || !is_real(e.in(0).dtype)) return false;
  const ValueId x = e.node().in[0], by = e.node().in[1];
  const Attributes keep = {{"keepdims", e.node().attr("keepdims", std::int64_t{1})},
                           {"noop_with_empty_axes", e.node().attr("noop_with_empty_axes", std::int64_t{0})}};
  if (op == "ReduceMean") {
    const ValueId shape = e.emit("Shape", {x});
    const ValueId one = e.scalar(DType::kI64, 1);
    const ValueId ones = e.emit("Expand", {one, shape});
    const ValueId sum = e.emit("ReduceSum", {x, by}, keep);
    const ValueId count = e.emit("ReduceSum", {ones, by}, keep);
    e.finish("Div", {sum, e.emit("Cast", {count}, {{"to", static_cast<std::int64_t>(e.in(0).dtype)}})});
    return true;
  }
  if (op == "ReduceSumSquare")
    e.finish("ReduceSum", {e.emit("Mul", {x, x}), by}, keep);
  else if (op == "ReduceL1")
    e.finish("ReduceSum", {e.emit("Abs", {x}), by}, keep);
  else if (op == "ReduceL2")
    e.finish("Sqrt", {e.emit("ReduceSum", {e.emit("Mul", {x, x}), by}, keep)});
  else if (op == "ReduceLogSum")
    e.finish("Log", {e.emit("ReduceSum", {x, by}, keep)});
  else
    return false;
  return true;
}

// Steps are newer than 9: the places that a slice takes are known numbers where the size is.
bool expand_slice(Expander& e, std::string& why) {
  std::vector<std::int64_t> starts, ends, axes, steps;
  if (!e.constant_ints(1, starts) || !e.constant_ints(2, ends))
    return refuse(why, "its starts or ends are computed");
  if (e.has(3) && !e.constant_ints(3, axes)) return refuse(why, "its axes are computed");
  if (e.has(4) && !e.constant_ints(4, steps)) return refuse(why, "its steps are computed");
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  steps.resize(starts.size(), 1);
  std::vector<std::vector<std::int64_t>> places(starts.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    std::int64_t size = 0;
    if (!e.size(0, axes[i], size)) return refuse(why, "it has steps, and the size that it cuts is not known");
    const std::int64_t step = steps[i];
    if (step == 0) return false;
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto clamp = [&](std::int64_t v) { return std::clamp(v < 0 ? v + size : v, low, high); };
    std::int64_t at =
        std::clamp(starts[i] < 0 ? starts[i] + size : starts[i], std::int64_t{0}, step > 0 ? size : size - 1);
    const std::int64_t end = ends[i] < -size ? low : clamp(ends[i]);
    for (; step > 0 ? at < end : at > end; at += step) places[i].push_back(at);
  }
  ValueId x = e.node().in[0];
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Attributes axis = {{"axis", axes[i] < 0 ? axes[i] + e.rank() : axes[i]}};
    if (i + 1 == places.size())
      e.finish("Gather", {x, e.ints(places[i])}, axis);
    else
      x = e.emit("Gather", {x, e.ints(places[i])}, axis);
  }
  return !places.empty();
}

// Bounds that are computed, or of a type that older Clips lack.
bool expand_clip(Expander& e, std::string& why) {
  const DType type = e.in(0).dtype;
  ValueId x = e.node().in[0];
  if (is_real(type)) {
    if (!e.has(1) && !e.has(2)) {
      e.finish("Identity", {x});
    } else if (!e.has(2)) {
      e.finish("Max", {x, e.node().in[1]});
    } else {
      if (e.has(1)) x = e.emit("Max", {x, e.node().in[1]});
      e.finish("Min", {x, e.node().in[2]});
    }
    return true;
  }
  if (e.opset() < 9) return refuse(why, "its type is newer");
  if (!e.has(1) && !e.has(2)) {
    e.finish("Identity", {x});
    return true;
  }
  if (e.has(1)) {
    const ValueId below = e.emit("Less", {x, e.node().in[1]});
    if (!e.has(2)) {
      e.finish("Where", {below, e.node().in[1], x});
      return true;
    }
    x = e.emit("Where", {below, e.node().in[1], x});
  }
  e.finish("Where", {e.emit("Less", {e.node().in[2], x}), e.node().in[2], x});
  return true;
}

// Integers (12), two inputs at a time.
bool expand_extreme(Expander& e, std::string& why) {
  if (is_real(e.in(0).dtype)) return false;
  if (e.opset() < 9) return refuse(why, "its type is newer");
  ValueId x = e.node().in[0];
  const bool max = e.node().op == "Max";
  if (e.node().in.size() == 1) {
    e.finish("Identity", {x});
    return true;
  }
  for (std::size_t i = 1; i < e.node().in.size(); ++i) {
    const ValueId y = e.node().in[i];
    const ValueId less = max ? e.emit("Less", {x, y}) : e.emit("Less", {y, x});
    if (i + 1 == e.node().in.size())
      e.finish("Where", {less, y, x});
    else
      x = e.emit("Where", {less, y, x});
  }
  return true;
}

// largest = 0 (11): the largest of the negated values. Ties keep their order.
bool expand_topk(Expander& e, std::string& why) {
  if (e.node().attr("largest", std::int64_t{1}) != 0) return false;
  const DType type = e.in(0).dtype;
  if (!is_real(type)) return refuse(why, "it takes the smallest integers");
  Attributes attrs = e.node().attrs;
  attrs.erase("largest");
  attrs.erase("sorted");
  const ValueId negative = e.emit("Neg", {e.node().in[0]});
  const ValueId values = e.emit_pair("TopK", {negative, e.node().in.at(1)}, attrs);
  if (e.node().out.at(0) != ValueId::kNone) e.finish("Neg", {values});
  return true;
}

bool expand_shape(Expander& e, std::string&) {
  const ValueId shape = e.emit("Shape", {e.node().in[0]});
  const std::int64_t end = e.node().has_attr("end") ? e.node().attr("end", std::int64_t{0}) : INT64_MAX;
  e.finish("Slice", {shape, e.ints({e.node().attr("start", std::int64_t{0})}), e.ints({end}), e.ints({0})});
  return true;
}

// A scale a channel (13), or any (10): arithmetic. Codes below 8 bits and float8 stay what they are.
bool expand_dequantize(Expander& e, std::string& why) {
  const DType type = e.in(0).dtype;
  const bool plain = type == DType::kI8 || type == DType::kU8 || type == DType::kI32 || type == DType::kI16 ||
                     type == DType::kU16;
  if (!plain || e.in(1).dtype != DType::kF32) return refuse(why, "its types are newer");
  if (e.node().attr("block_size", std::int64_t{0}) != 0) return refuse(why, "it has blocks");
  const int scales = e.rank(1);
  std::vector<std::int64_t> shape;
  if (scales == 1) {
    const int rank = e.rank();
    if (rank < 0) return refuse(why, "the rank of its input is not known");
    std::int64_t axis = e.node().attr("axis", std::int64_t{1});
    if (axis < 0) axis += rank;
    shape.assign(static_cast<std::size_t>(std::max(rank, 1)), 1);
    std::int64_t count = 0;
    if (axis < rank && !(e.size(1, 0, count) && count == 1)) shape[static_cast<std::size_t>(axis)] = -1;
  } else if (scales != 0) {
    return refuse(why, "the rank of its scale is not known");
  }
  const auto spread = [&](ValueId id) { return scales == 1 ? e.emit("Reshape", {id, e.ints(shape)}) : id; };
  const Attributes to_float = {{"to", static_cast<std::int64_t>(DType::kF32)}};
  ValueId x = e.emit("Cast", {e.node().in[0]}, to_float);
  if (e.has(2)) x = e.emit("Sub", {x, spread(e.emit("Cast", {e.node().in[2]}, to_float))});
  e.finish("Mul", {x, spread(e.node().in[1])});
  return true;
}

bool expand_quantize(Expander& e, std::string& why) {
  if (e.opset() < 11) return refuse(why, "no operator of the opset rounds");
  if (e.in(0).dtype != DType::kF32 || e.in(1).dtype != DType::kF32) return refuse(why, "its types are newer");
  if (e.node().attr("block_size", std::int64_t{0}) != 0) return refuse(why, "it has blocks");
  const DType codes =
      e.has(2) ? e.in(2).dtype
               : static_cast<DType>(e.node().attr("output_dtype", static_cast<std::int64_t>(DType::kU8)));
  const bool is_signed = codes == DType::kI8;
  if (!is_signed && codes != DType::kU8 && codes != DType::kUndefined)
    return refuse(why, "its codes are newer");
  const int rank = e.rank();
  if (rank < 0 || e.rank(1) != 1) return refuse(why, "the rank of its input or scale is not known");
  std::int64_t axis = e.node().attr("axis", std::int64_t{1});
  if (axis < 0) axis += rank;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(std::max(rank, 1)), 1);
  std::int64_t count = 0;
  if (axis < rank && !(e.size(1, 0, count) && count == 1)) shape[static_cast<std::size_t>(axis)] = -1;
  const ValueId scale = e.emit("Reshape", {e.node().in[1], e.ints(shape)});
  ValueId x = e.emit("Round", {e.emit("Div", {e.node().in[0], scale})});
  if (e.has(2)) {
    const ValueId zero = e.emit("Cast", {e.node().in[2]}, {{"to", static_cast<std::int64_t>(DType::kF32)}});
    x = e.emit("Add", {x, e.emit("Reshape", {zero, e.ints(shape)})});
  }
  x = e.emit("Clip",
             {x, e.scalar(DType::kF32, is_signed ? -128 : 0), e.scalar(DType::kF32, is_signed ? 127 : 255)});
  e.finish("Cast", {x}, {{"to", static_cast<std::int64_t>(is_signed ? DType::kI8 : DType::kU8)}});
  return true;
}

// Base and exponent of one type (below 12).
bool expand_pow(Expander& e, std::string& why) {
  const DType base = e.in(0).dtype;
  if (!is_real(base)) return refuse(why, "its base is no float");
  if (e.in(1).dtype == base) return false;
  const ValueId exponent = e.emit("Cast", {e.node().in[1]}, {{"to", static_cast<std::int64_t>(base)}});
  e.finish("Pow", {e.node().in[0], exponent});
  return true;
}

// Floats (11): neither below nor above, and no NaN.
bool expand_equal(Expander& e, std::string& why) {
  if (!is_real(e.in(0).dtype)) return false;
  if (e.opset() < 9) return refuse(why, "it compares floats");
  const ValueId a = e.node().in.at(0), b = e.node().in.at(1);
  const ValueId apart = e.emit("Or", {e.emit("Less", {a, b}), e.emit("Greater", {a, b})});
  const ValueId none = e.emit("Or", {e.emit("IsNaN", {a}), e.emit("IsNaN", {b})});
  e.finish("Not", {e.emit("Or", {apart, none})});
  return true;
}

bool expand_depth_to_space(Expander& e, std::string& why) {
  if (e.node().attr("mode", "DCR") != "CRD") return false;
  const Shape& shape = e.in(0).shape;
  const std::int64_t block = e.node().attr("blocksize", std::int64_t{1});
  std::int64_t c = 0, h = 0, w = 0;
  if (shape.rank() != 4 || !e.size(0, 1, c) || !e.size(0, 2, h) || !e.size(0, 3, w) || block < 1)
    return refuse(why, "the size of its input is not known");
  const std::int64_t out = c / (block * block);
  const ValueId split = e.emit("Reshape", {e.node().in[0], e.ints({-1, out, block, block, h, w})});
  const ValueId moved = e.emit("Transpose", {split}, {{"perm", std::vector<std::int64_t>{0, 1, 4, 2, 5, 3}}});
  e.finish("Reshape", {moved, e.ints({-1, out, h * block, w * block})});
  return true;
}

// Below 11 an index counts from the front.
bool expand_gather(Expander& e, std::string& why) {
  std::vector<std::int64_t> indices;
  if (!e.constant_ints(1, indices)) return false;
  std::int64_t size = 0;
  if (!e.size(0, e.node().attr("axis", std::int64_t{0}), size))
    return refuse(why, "the size that its negative indices count from is not known");
  for (std::int64_t& i : indices)
    if (i < 0) i += size;
  const ValueId flat = e.ints(indices);
  std::vector<std::int64_t> dims = e.in(1).constant.dims();
  e.finish("Gather", {e.node().in[0], e.emit("Reshape", {flat, e.ints(dims)})}, e.node().attrs);
  return true;
}

// axes (18): scales and sizes of every axis, where all are known.
bool expand_resize(Expander& e, std::string& why) {
  const int rank = e.rank();
  const std::vector<std::int64_t> axes = e.node().attr_ints("axes");
  if (rank < 0) return refuse(why, "the rank of its input is not known");
  std::vector<std::int64_t> sizes, whole;
  if (!axes.empty() && e.has(3)) {
    if (!e.constant_ints(3, sizes) || sizes.size() != axes.size())
      return refuse(why, "its sizes are computed");
    for (int i = 0; i < rank; ++i) {
      std::int64_t size = 0;
      const auto at = std::find_if(axes.begin(), axes.end(), [&](auto a) { return a == i || a + rank == i; });
      if (at == axes.end() && !e.size(0, i, size)) return refuse(why, "the size of its input is not known");
      whole.push_back(at == axes.end() ? size : sizes[static_cast<std::size_t>(at - axes.begin())]);
    }
    Attributes attrs = e.node().attrs;
    attrs.erase("axes");
    if (attrs.count("keep_aspect_ratio_policy") != 0 &&
        e.node().attr("keep_aspect_ratio_policy", "stretch") != "stretch")
      return refuse(why, "it keeps an aspect ratio");
    e.finish("Resize", {e.node().in[0], ValueId::kNone, ValueId::kNone, e.ints(whole)}, std::move(attrs));
    return true;
  }
  if (!axes.empty() && e.has(2) && e.in(2).is_constant() && e.in(2).dtype == DType::kF32 && !e.has(1)) {
    const Tensor& given = e.in(2).constant;
    if (given.size() != static_cast<std::int64_t>(axes.size())) return false;
    std::vector<float> scales(static_cast<std::size_t>(rank), 1.0F);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
      if (a < 0 || a >= rank) return false;
      scales[static_cast<std::size_t>(a)] = given.as<float>()[i];
    }
    Attributes attrs = e.node().attrs;
    attrs.erase("axes");
    e.finish("Resize", {e.node().in[0], ValueId::kNone, e.floats(scales)}, std::move(attrs));
    return true;
  }
  // Opset 10 and Upsample have scales only; whole ones give the same places as sizes do.
  if (e.opset() >= 11 || !e.constant_ints(3, sizes) || static_cast<int>(sizes.size()) != rank) return false;
  std::vector<float> scales;
  for (int i = 0; i < rank; ++i) {
    std::int64_t size = 0;
    if (!e.size(0, i, size) || size == 0) return refuse(why, "the size of its input is not known");
    if (sizes[static_cast<std::size_t>(i)] % size != 0) return refuse(why, "its scales are no whole numbers");
    scales.push_back(static_cast<float>(sizes[static_cast<std::size_t>(i)] / size));
  }
  e.finish("Resize", {e.node().in[0], ValueId::kNone, e.floats(scales)}, e.node().attrs);
  return true;
}

// Pads of some axes, computed: those of all, gathered from the given ones and a zero behind them.
bool expand_pad(Expander& e, std::string& why) {
  std::vector<std::int64_t> axes;
  const int rank = e.rank();
  if (e.opset() < 11 || !e.has(3)) return false;
  if (!e.constant_ints(3, axes)) return refuse(why, "its axes are computed");
  if (rank < 0) return refuse(why, "the rank of its input is not known");
  const auto given = static_cast<std::int64_t>(axes.size());
  std::vector<std::int64_t> from(2 * static_cast<std::size_t>(rank), 2 * given);
  for (std::int64_t i = 0; i < given; ++i) {
    const std::int64_t axis =
        axes[static_cast<std::size_t>(i)] + (axes[static_cast<std::size_t>(i)] < 0 ? rank : 0);
    if (axis < 0 || axis >= rank) return refuse(why, "its axes are out of range");
    from[static_cast<std::size_t>(axis)] = i;
    from[static_cast<std::size_t>(axis + rank)] = i + given;
  }
  const ValueId with_zero = e.emit("Concat", {e.node().in.at(1), e.ints({0})}, {{"axis", std::int64_t{0}}});
  const ValueId pads = e.emit("Gather", {with_zero, e.ints(from)}, {{"axis", std::int64_t{0}}});
  std::vector<ValueId> in = {e.node().in[0], pads};
  if (e.has(2)) in.push_back(e.node().in[2]);
  e.finish("Pad", std::move(in), e.node().attrs);
  return true;
}

// A mask of the last two axes, computed from their sizes.
bool expand_trilu(Expander& e, std::string& why) {
  if (e.opset() < 11) return refuse(why, "no operator of the opset counts");
  const DType type = e.in(0).dtype;
  if (!is_real(type) && type != DType::kI32 && type != DType::kI64) return refuse(why, "its type is newer");
  const ValueId x = e.node().in[0], zero = e.scalar(DType::kI64, 0), one = e.scalar(DType::kI64, 1);
  const ValueId shape = e.emit("Shape", {x});
  const auto counted = [&](std::int64_t axis) {
    const ValueId size =
        e.emit("Gather", {shape, e.scalar(DType::kI64, static_cast<double>(axis + e.rank()))});
    return e.emit("Range", {zero, size, one});
  };
  if (e.rank() < 2) return refuse(why, "the rank of its input is not known");
  const ValueId rows = e.emit("Unsqueeze", {counted(-2), e.ints({1})});
  ValueId columns = e.emit("Unsqueeze", {counted(-1), e.ints({0})});
  if (e.has(1)) columns = e.emit("Sub", {columns, e.node().in[1]});  // upper: column - k >= row
  const bool upper = e.node().attr("upper", std::int64_t{1}) != 0;
  const ValueId out = upper ? e.emit("Less", {columns, rows}) : e.emit("Less", {rows, columns});
  const ValueId nothing = e.emit("Cast", {zero}, {{"to", static_cast<std::int64_t>(type)}});
  e.finish("Where", {out, nothing, x});
  return true;
}

struct Entry {
  const char* op;
  int below;  // tried for opsets below this one
  Rule rule;
};

const Entry kRules[] = {
    {"Softmax", 13, expand_softmax},
    {"LogSoftmax", 13, expand_softmax},
    {"Hardmax", 13, expand_softmax},
    {"Split", 18, expand_split},
    {"ReduceSum", 13, expand_reduce},
    {"ReduceL1", 18, expand_reduce},
    {"ReduceL2", 18, expand_reduce},
    {"ReduceLogSum", 18, expand_reduce},
    {"ReduceLogSumExp", 18, expand_reduce},
    {"ReduceMax", 18, expand_reduce},
    {"ReduceMean", 18, expand_reduce},
    {"ReduceMin", 18, expand_reduce},
    {"ReduceProd", 18, expand_reduce},
    {"ReduceSumSquare", 18, expand_reduce},
    {"Slice", 10, expand_slice},
    {"Clip", 12, expand_clip},
    {"Max", 12, expand_extreme},
    {"Min", 12, expand_extreme},
    {"TopK", 11, expand_topk},
    {"Shape", 15, expand_shape},
    {"DequantizeLinear", 13, expand_dequantize},
    {"QuantizeLinear", 13, expand_quantize},
    {"Pow", 12, expand_pow},
    {"Equal", 11, expand_equal},
    {"DepthToSpace", 11, expand_depth_to_space},
    {"Gather", 11, expand_gather},
    {"Resize", 18, expand_resize},
    {"Pad", 18, expand_pad},
    {"Trilu", 14, expand_trilu},
};

}  // namespace

bool expand_by_rule(Graph& graph, NodeId id, int opset, std::string& why) {
  if (!graph.node(id).domain.empty()) return false;
  for (const Entry& entry : kRules) {
    if (opset >= entry.below || graph.node(id).op != entry.op) continue;
    Expander expander(graph, id, opset);
    if (!entry.rule(expander, why)) continue;
    graph.remove_node(id);
    return true;
  }
  return false;
}

}  // namespace pare
