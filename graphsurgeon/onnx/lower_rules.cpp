#include "graphsurgeon/onnx/lower_rules.h"

#include <onnx/defs/schema.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ir/window.h"
#include "graphsurgeon/onnx/export_graph.h"
#include "graphsurgeon/onnx/raise/raise.h"

namespace pare {
namespace {

using Rule = std::string (*)(LowerCall&);

bool given(const LowerCall& c, std::size_t slot) {
  return c.node.in.size() > slot && c.node.in[slot] != ValueId::kNone;
}

const Tensor* constant_input(const LowerCall& c, std::size_t slot) {
  return given(c, slot) && c.graph.is_constant(c.node.in[slot]) ? &c.graph.value(c.node.in[slot]).constant
                                                                : nullptr;
}

int rank_of_input(const LowerCall& c) { return given(c, 0) ? c.graph.value(c.node.in[0]).shape.rank() : -1; }

void cut_inputs(LowerCall& c, int keep) {
  while (c.proto.input_size() > keep) c.proto.mutable_input()->RemoveLast();
}

onnx::AttributeProto& attribute(LowerCall& c, const char* key, onnx::AttributeProto::AttributeType type) {
  auto* a = c.proto.add_attribute();
  a->set_name(key);
  a->set_type(type);
  return *a;
}

void set_ints(LowerCall& c, const char* key, const std::vector<std::int64_t>& values) {
  auto& a = attribute(c, key, onnx::AttributeProto::INTS);
  for (const std::int64_t v : values) a.add_ints(v);
}

// Moves a constant list of integers from input `slot` (and all behind it) to an attribute.
std::string input_to_attribute(LowerCall& c, int slot, const char* key) {
  if (given(c, static_cast<std::size_t>(slot))) {
    const Tensor* values = constant_input(c, static_cast<std::size_t>(slot));
    if (values == nullptr) return fmt::format("its {} are computed", key);
    set_ints(c, key, values->to_ints());
  }
  cut_inputs(c, slot);
  return {};
}

std::string lower_axes(LowerCall& c) {
  if (c.node.attr("noop_with_empty_axes", std::int64_t{0}) != 0 && !given(c, 1))
    return "it reduces nothing (noop_with_empty_axes)";
  const Tensor* axes = constant_input(c, 1);
  if (axes != nullptr && axes->size() == 0) {
    if (c.node.attr("noop_with_empty_axes", std::int64_t{0}) != 0)
      return "it reduces nothing (noop_with_empty_axes)";
    cut_inputs(c, 1);
  }
  drop_attribute(c, "noop_with_empty_axes");
  return c.proto.input_size() > 1 ? input_to_attribute(c, 1, "axes") : "";
}

std::string lower_split_18(LowerCall& c) {
  drop_attribute(c, "num_outputs");
  if (given(c, 1) || !c.node.has_attr("num_outputs")) return {};
  const Shape& shape = c.graph.value(c.node.in.at(0)).shape;
  std::int64_t axis = c.node.attr("axis", std::int64_t{0});
  if (axis < 0) axis += shape.rank();
  if (axis < 0 || axis >= shape.rank() || !shape.dims[static_cast<std::size_t>(axis)].known())
    return "the size that it splits is not known";
  const auto parts = static_cast<std::int64_t>(c.node.out.size());
  return shape.dims[static_cast<std::size_t>(axis)].value % parts == 0 ? "" : "its parts are not equal";
}

std::string lower_split_13(LowerCall& c) { return input_to_attribute(c, 1, "split"); }

std::string lower_slice(LowerCall& c) {
  if (given(c, 4)) {
    const Tensor* steps = constant_input(c, 4);
    if (steps == nullptr) return "its steps are computed";
    for (const std::int64_t step : steps->to_ints())
      if (step != 1) return "it has steps";
  }
  constexpr const char* kKeys[] = {"starts", "ends", "axes"};
  for (int slot = 3; slot >= 1; --slot) {
    std::string why = input_to_attribute(c, slot, kKeys[slot - 1]);
    if (!why.empty()) return why;
  }
  return {};
}

// A constant float scalar input as an attribute. The value must be a float32 exactly.
std::string scalar_to_attribute(LowerCall& c, std::size_t slot, const char* key) {
  if (!given(c, slot)) return {};
  const Tensor* value = constant_input(c, slot);
  if (value == nullptr) return fmt::format("its {} is computed", key);
  if (value->dtype() != DType::kF32 || value->size() != 1) return fmt::format("its {} is no float32", key);
  attribute(c, key, onnx::AttributeProto::FLOAT).set_f(*value->as<float>());
  return {};
}

std::string lower_clip(LowerCall& c) {
  std::string why = scalar_to_attribute(c, 1, "min");
  if (why.empty()) why = scalar_to_attribute(c, 2, "max");
  cut_inputs(c, 1);
  return why;
}

// axes (18) as the pads of every axis, 0 for the others.
std::string lower_pad_axes(LowerCall& c) {
  const Tensor* axes = constant_input(c, 3);
  const Tensor* pads = constant_input(c, 1);
  const int rank = rank_of_input(c);
  if (axes == nullptr || pads == nullptr || rank < 0) return "it has axes, and they or its pads are computed";
  const std::vector<std::int64_t> which = axes->to_ints(), given_pads = pads->to_ints();
  if (given_pads.size() != 2 * which.size()) return "its pads do not fit its axes";
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(rank), 0);
  for (std::size_t i = 0; i < which.size(); ++i) {
    const std::int64_t axis = which[i] < 0 ? which[i] + rank : which[i];
    if (axis < 0 || axis >= rank) return "its axes are out of range";
    all[static_cast<std::size_t>(axis)] = given_pads[i];
    all[static_cast<std::size_t>(axis + rank)] = given_pads[i + which.size()];
  }
  cut_inputs(c, 3);
  if (c.opset < 11) {
    set_ints(c, "pads", all);
    return {};
  }
  c.proto.set_input(1, c.constant("pads", Tensor::ints(all)));
  return {};
}

std::string lower_pad(LowerCall& c) {
  if (c.opset < 19 && c.node.attr("mode", "constant") == "wrap") return "its mode wrap is newer";
  if (c.opset >= 18) return {};
  if (given(c, 3)) {
    std::string why = lower_pad_axes(c);
    if (!why.empty() || c.opset >= 11) return why;
    why = scalar_to_attribute(c, 2, "value");
    cut_inputs(c, 1);
    return why;
  }
  if (c.opset >= 11) return {};
  std::string why = scalar_to_attribute(c, 2, "value");
  return why.empty() ? input_to_attribute(c, 1, "pads") : why;
}

std::string lower_topk(LowerCall& c) {
  const Tensor* k = constant_input(c, 1);
  if (k == nullptr || k->size() != 1) return "its k is computed";
  attribute(c, "k", onnx::AttributeProto::INT).set_i(k->to_ints()[0]);
  cut_inputs(c, 1);
  return {};
}

// Any order of the k is allowed where none is asked for.
std::string lower_topk_order(LowerCall& c) {
  if (c.node.attr("largest", std::int64_t{1}) == 0) return "it takes the smallest";
  drop_attribute(c, "sorted");
  drop_attribute(c, "largest");
  return {};
}

std::string lower_dropout(LowerCall& c) {
  if (given(c, 2)) return "it may be in training mode";
  cut_inputs(c, 1);
  drop_attribute(c, "seed");
  return {};
}

std::string lower_softmax(LowerCall& c) {
  const int rank = rank_of_input(c);
  std::int64_t axis = c.node.attr("axis", std::int64_t{-1});
  if (rank <= 0) return "the rank of its input is not known";
  if (axis < 0) axis += rank;
  if (axis != rank - 1) return "its axis is not the last";
  drop_attribute(c, "axis");
  attribute(c, "axis", onnx::AttributeProto::INT).set_i(axis);
  return {};
}

std::string lower_resize(LowerCall& c) {
  if (c.opset < 11) {  // one way to place coordinates
    if (c.node.attr("mode", "nearest") == "cubic") return "its mode cubic is newer";
    if (c.node.attr("coordinate_transformation_mode", "half_pixel") != "asymmetric" || !given(c, 2))
      return "its coordinates are not asymmetric, or it has sizes";
    if (c.node.attr("mode", "nearest") == "nearest" &&
        c.node.attr("nearest_mode", "round_prefer_floor") != "floor")
      return "its nearest_mode is not floor";
    drop_attribute(c, "coordinate_transformation_mode");
    drop_attribute(c, "nearest_mode");
    const std::string scales = c.proto.input(2);
    cut_inputs(c, 1);
    if (c.opset < 10) c.proto.set_op_type("Upsample");
    if (c.opset >= 9) {
      c.proto.add_input(scales);
      return {};
    }
    const Tensor* values = constant_input(c, 2);
    if (values == nullptr || values->dtype() != DType::kF32) return "its scales are computed";
    auto& list = attribute(c, "scales", onnx::AttributeProto::FLOATS);
    for (std::int64_t i = 0; i < values->size(); ++i) list.add_floats(values->as<float>()[i]);
    return {};
  }
  while (c.proto.input_size() < 3) c.proto.add_input();
  for (int slot = 1; slot <= 2; ++slot)
    if (c.proto.input(slot).empty())
      c.proto.set_input(slot, c.constant(slot == 1 ? "roi" : "scales", Tensor::allocate(DType::kF32, {0})));
  return {};
}

std::string lower_grid_sample(LowerCall& c) {
  const std::string mode = c.node.attr("mode", "linear");
  drop_attribute(c, "mode");
  attribute(c, "mode", onnx::AttributeProto::STRING)
      .set_s(mode == "linear"  ? "bilinear"
             : mode == "cubic" ? "bicubic"
                               : mode);
  return {};
}

std::string lower_roi_align(LowerCall& c) {
  if (c.node.attr("coordinate_transformation_mode", "half_pixel") != "output_half_pixel")
    return "its coordinates are half_pixel";
  drop_attribute(c, "coordinate_transformation_mode");
  return {};
}

std::string lower_quantize(LowerCall& c) {
  const Tensor* scale = constant_input(c, 1);
  const bool one = scale != nullptr && scale->size() == 1;
  if (!one && c.graph.value(c.node.in.at(1)).shape.rank() != 0) return "its scale is not one number";
  drop_attribute(c, "axis");
  for (int slot = 1; slot < c.proto.input_size() && slot <= 2; ++slot) {  // [1] becomes a scalar
    const Tensor* value = constant_input(c, static_cast<std::size_t>(slot));
    if (value == nullptr || value->dims().empty()) continue;
    if (value->size() != 1) return "its zero point is not one number";
    c.proto.set_input(slot, c.constant(slot == 1 ? "scale" : "zero_point", value->reshaped({})));
  }
  return {};
}

std::string lower_scatter(LowerCall& c) {
  c.proto.set_op_type("Scatter");
  return {};
}

// The axis is an attribute, and inverse with onesided has no meaning yet.
std::string lower_dft(LowerCall& c) {
  if (c.node.attr("inverse", std::int64_t{0}) != 0 && c.node.attr("onesided", std::int64_t{0}) != 0)
    return "it is inverse and onesided";
  const int rank = rank_of_input(c);
  std::int64_t axis = -2;
  if (given(c, 2)) {
    const Tensor* value = constant_input(c, 2);
    if (value == nullptr || value->size() != 1) return "its axis is computed";
    axis = value->to_ints()[0];
  }
  if (axis < 0 && rank < 0) return "the rank of its input is not known";
  attribute(c, "axis", onnx::AttributeProto::INT).set_i(axis < 0 ? axis + rank : axis);
  cut_inputs(c, 2);
  return {};
}

// allowzero matters only where a size is 0.
std::string lower_reshape(LowerCall& c) {
  if (c.node.attr("allowzero", std::int64_t{0}) == 0) return {};
  const Tensor* shape = constant_input(c, 1);
  if (shape == nullptr) return "its shape is computed, and 0 is a size there (allowzero)";
  for (const std::int64_t size : shape->to_ints())
    if (size == 0) return "0 is a size of its shape (allowzero)";
  drop_attribute(c, "allowzero");
  return {};
}

std::string lower_gemm(LowerCall& c) {
  if (given(c, 2)) return {};
  const DType type = c.graph.value(c.node.in.at(0)).dtype;
  if (type == DType::kUndefined || type == DType::kString) return "the type of its inputs is not known";
  Tensor zero = Tensor::allocate(type, {1});
  std::memset(zero.mut<void>(), 0, static_cast<std::size_t>(zero.bytes()));
  cut_inputs(c, 2);
  c.proto.add_input(c.constant("C", std::move(zero)));
  return {};
}

// Below 8 the inputs have one shape.
std::string lower_same_shapes(LowerCall& c) {
  const Shape& first = c.graph.value(c.node.in.at(0)).shape;
  for (const ValueId in : c.node.in) {
    const Shape& shape = c.graph.value(in).shape;
    bool same = first.ranked && shape.ranked && shape.rank() == first.rank();
    for (int d = 0; same && d < first.rank(); ++d)
      same = shape.dims[static_cast<std::size_t>(d)].same(first.dims[static_cast<std::size_t>(d)]);
    if (!same) return "its inputs broadcast";
  }
  return {};
}

// Below 22 a window that starts in the padding behind counts (ceil_mode).
std::string lower_ceil(LowerCall& c) {
  if (c.node.attr("ceil_mode", std::int64_t{0}) == 0) return {};
  const Shape& shape = c.graph.value(c.node.in.at(0)).shape;
  const Window window = read_window(c.node, {});
  if (window.auto_pad != AutoPad::kNotSet) return {};
  for (int axis = 0; axis < window.axes(); ++axis) {
    const std::size_t d = static_cast<std::size_t>(axis) + 2, i = static_cast<std::size_t>(axis);
    if (d >= shape.dims.size() || !shape.dims[d].known()) continue;
    const std::int64_t padded = shape.dims[d].value + window.pads_begin[i] + window.pads_end[i];
    const std::int64_t room = padded - window.extent(axis);
    if (room >= 0 && (room + window.strides[i] - 1) / window.strides[i] + 1 !=
                         window_output(window, axis, shape.dims[d].value))
      return "its last window starts in the padding (ceil_mode), which has another meaning";
  }
  return {};
}

// What the default is said to be: inference of onnx 1.22 fails without.
std::string lower_mean_variance(LowerCall& c) {
  if (!c.node.has_attr("axes")) set_ints(c, "axes", {0, 2, 3});
  return {};
}

std::string lower_pool(LowerCall& c) {
  const std::vector<std::int64_t> dilations = c.node.attr_ints("dilations");
  if (std::any_of(dilations.begin(), dilations.end(), [](auto d) { return d != 1; })) return "it is dilated";
  drop_attribute(c, "dilations");
  return {};
}

std::string lower_gather(LowerCall& c) {
  const Tensor* indices = constant_input(c, 1);
  if (indices == nullptr) return {};
  for (const std::int64_t i : indices->to_ints())
    if (i < 0) return "its indices are negative";
  return {};
}

std::string lower_slice_axes(LowerCall& c) {
  const Tensor* axes = constant_input(c, 3);
  if (axes == nullptr || c.opset < 10) return {};
  std::vector<std::int64_t> values = axes->to_ints();
  if (std::none_of(values.begin(), values.end(), [](auto a) { return a < 0; })) return {};
  const int rank = rank_of_input(c);
  if (rank < 0) return "the rank that its negative axis counts from is not known";
  for (std::int64_t& axis : values)
    if (axis < 0) axis += rank;
  c.proto.set_input(3, c.constant("axes", Tensor::ints(values)));
  return {};
}

// Opsets below 11 count axes from the front only.
std::string lower_negative_axes(LowerCall& c) {
  if (c.node.op == "OneHot") return {};
  int rank = rank_of_input(c);
  for (auto& a : *c.proto.mutable_attribute()) {
    const bool one = a.name() == "axis" && a.type() == onnx::AttributeProto::INT;
    if (!one && (a.name() != "axes" || a.type() != onnx::AttributeProto::INTS)) continue;
    const bool negative =
        one ? a.i() < 0 : std::any_of(a.ints().begin(), a.ints().end(), [](auto v) { return v < 0; });
    if (!negative) continue;
    if (rank < 0) return "the rank that its negative axis counts from is not known";
    if (c.node.op == "Unsqueeze") rank += a.ints_size();
    if (one) a.set_i(a.i() + rank);
    for (auto& axis : *a.mutable_ints())
      if (axis < 0) axis += rank;
  }
  return {};
}

std::string refuse(LowerCall&) { return "its meaning changed"; }

struct Entry {
  const char* op;
  int below;
  Rule rule;
};

const Entry kRules[] = {
    {"Squeeze", 13, lower_axes},
    {"Unsqueeze", 13, lower_axes},
    {"ReduceSum", 13, lower_axes},
    {"ReduceL1", 18, lower_axes},
    {"ReduceL2", 18, lower_axes},
    {"ReduceLogSum", 18, lower_axes},
    {"ReduceLogSumExp", 18, lower_axes},
    {"ReduceMax", 18, lower_axes},
    {"ReduceMean", 18, lower_axes},
    {"ReduceMin", 18, lower_axes},
    {"ReduceProd", 18, lower_axes},
    {"ReduceSumSquare", 18, lower_axes},
    {"Split", 18, lower_split_18},
    {"Split", 13, lower_split_13},
    {"Slice", 10, lower_slice},
    {"Clip", 11, lower_clip},
    {"Pad", 19, lower_pad},
    {"TopK", 11, lower_topk_order},
    {"TopK", 10, lower_topk},
    {"Dropout", 12, lower_dropout},
    {"Softmax", 13, lower_softmax},
    {"LogSoftmax", 13, lower_softmax},
    {"Hardmax", 13, lower_softmax},
    {"Resize", 13, lower_resize},
    {"GridSample", 20, lower_grid_sample},
    {"RoiAlign", 16, lower_roi_align},
    {"QuantizeLinear", 13, lower_quantize},
    {"DequantizeLinear", 13, lower_quantize},
    {"GroupNormalization", 21, refuse},
    {"DFT", 20, lower_dft},
    {"ScatterElements", 11, lower_scatter},
    {"Reshape", 14, lower_reshape},
    {"Gemm", 11, lower_gemm},
    {"Max", 8, lower_same_shapes},
    {"Mean", 8, lower_same_shapes},
    {"Min", 8, lower_same_shapes},
    {"Sum", 8, lower_same_shapes},
    {"AveragePool", 22, lower_ceil},
    {"MaxPool", 22, lower_ceil},
    {"LpPool", 22, lower_ceil},
    {"MeanVarianceNormalization", kNewestOpset + 1, lower_mean_variance},
    {"AveragePool", 19, lower_pool},
    {"LpPool", 18, lower_pool},
    {"MaxPool", 10, lower_pool},
    {"Gather", 11, lower_gather},
    {"Slice", 11, lower_slice_axes},
};

}  // namespace

void drop_attribute(LowerCall& c, std::string_view key) {
  auto& list = *c.proto.mutable_attribute();
  for (int i = list.size() - 1; i >= 0; --i)
    if (list.Get(i).name() == key) list.DeleteSubrange(i, 1);
}

std::string lower_by_rules(LowerCall& c) {
  for (const Entry& entry : kRules) {
    if (c.opset >= entry.below || c.node.op != entry.op) continue;
    std::string why = entry.rule(c);
    if (!why.empty()) return why;
  }
  return c.opset < 11 ? lower_negative_axes(c) : std::string();
}

}  // namespace pare
