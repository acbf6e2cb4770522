#include "graphsurgeon/onnx/lower.h"

#include <onnx/defs/data_type_utils.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/export_graph.h"
#include "graphsurgeon/onnx/raise.h"

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

void drop_attribute(LowerCall& c, std::string_view key) {
  auto& list = *c.proto.mutable_attribute();
  for (int i = list.size() - 1; i >= 0; --i)
    if (list.Get(i).name() == key) list.DeleteSubrange(i, 1);
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

std::string lower_pad(LowerCall& c) {
  if (given(c, 3)) return "it has axes";
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
  if (c.opset < 11) {  // opset 10 knows one way to place coordinates
    if (c.node.attr("coordinate_transformation_mode", "half_pixel") != "asymmetric" || !given(c, 2))
      return "its coordinates are not asymmetric, or it has sizes";
    if (c.node.attr("mode", "nearest") == "nearest" &&
        c.node.attr("nearest_mode", "round_prefer_floor") != "floor")
      return "its nearest_mode is not floor";
    drop_attribute(c, "coordinate_transformation_mode");
    drop_attribute(c, "nearest_mode");
    const std::string scales = c.proto.input(2);
    cut_inputs(c, 1);
    c.proto.add_input(scales);
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
  const Shape& scale = c.graph.value(c.node.in.at(1)).shape;
  if (scale.rank() != 0) return "its scale is not one number";
  drop_attribute(c, "axis");
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
    {"Pad", 18, lower_pad},
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
    {"DFT", 20, refuse},
};

bool equal_to_default(const onnx::AttributeProto& a, const onnx::OpSchema::Attribute& known) {
  const auto& d = known.default_value;
  if (!d.has_name() || a.type() != d.type()) return false;
  switch (a.type()) {
    case onnx::AttributeProto::INT:
      return a.i() == d.i();
    case onnx::AttributeProto::FLOAT:
      return a.f() == d.f();
    case onnx::AttributeProto::STRING:
      return a.s() == d.s();
    default:
      return false;
  }
}

std::string check_attributes(LowerCall& c, const onnx::OpSchema& schema) {
  const onnx::OpSchema* newest = onnx::OpSchemaRegistry::Schema(c.node.op, kNewestOpset, "");
  std::vector<std::string> defaults;
  for (const auto& a : c.proto.attribute()) {
    if (schema.attributes().count(a.name()) != 0) continue;
    const auto known = newest->attributes().find(a.name());
    if (known == newest->attributes().end() || !equal_to_default(a, known->second))
      return fmt::format("attribute '{}' is newer", a.name());
    defaults.push_back(a.name());
  }
  for (const std::string& key : defaults) drop_attribute(c, key);
  return {};
}

bool takes(const onnx::OpSchema::FormalParameter& formal, const Value& value) {
  if (value.dtype == DType::kUndefined) return true;
  onnx::TypeProto proto;
  Value bare;
  bare.dtype = value.dtype;
  bare.kind = value.kind;
  write_type(bare, proto);
  const auto& types = formal.GetTypes();
  return types.empty() || types.count(onnx::Utils::DataTypeUtils::ToType(proto)) != 0;
}

std::string check_types(const LowerCall& c, const std::vector<ValueId>& ids,
                        const std::vector<onnx::OpSchema::FormalParameter>& formals, std::size_t count,
                        const char* side) {
  for (std::size_t i = 0; i < count && i < ids.size(); ++i) {
    if (ids[i] == ValueId::kNone || formals.empty()) continue;
    const Value& value = c.graph.value(ids[i]);
    if (!takes(formals[std::min(i, formals.size() - 1)], value))
      return fmt::format("{} {} is {}{}", side, i,
                         value.kind == ValueKind::kTensor ? "" : std::string(name(value.kind)) + " of ",
                         name(value.dtype));
  }
  return {};
}

std::string check_schema(LowerCall& c) {
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(c.node.op, c.opset, "");
  if (schema == nullptr || schema->Deprecated()) return "the operator is newer";
  std::string why = check_attributes(c, *schema);
  if (!why.empty()) return why;
  while (c.proto.input_size() > 0 && c.proto.input(c.proto.input_size() - 1).empty())
    c.proto.mutable_input()->RemoveLast();
  if (c.proto.input_size() < schema->min_input() || c.proto.input_size() > schema->max_input())
    return fmt::format("it has {} inputs", c.proto.input_size());
  if (c.proto.output_size() > schema->max_output())
    return fmt::format("it has {} outputs", c.proto.output_size());
  // Inputs that became attributes have left the message.
  const bool moved = c.proto.input_size() < static_cast<int>(c.node.in.size());
  why = check_types(c, c.node.in, schema->inputs(),
                    static_cast<std::size_t>(moved ? 1 : c.proto.input_size()), "input");
  return why.empty() ? check_types(c, c.node.out, schema->outputs(), c.node.out.size(), "output") : why;
}

}  // namespace

std::string lower(LowerCall& c) {
  if (!c.node.domain.empty()) return {};
  for (const Entry& entry : kRules) {
    if (c.opset >= entry.below || c.node.op != entry.op) continue;
    std::string why = entry.rule(c);
    if (!why.empty()) return why;
  }
  if (c.opset < 11) {
    std::string why = lower_negative_axes(c);
    if (!why.empty()) return why;
  }
  return check_schema(c);
}

int needed_opset(const Graph& graph, const Node& node, int wanted, std::string& why) {
  int opset = wanted;
  for (const auto& [key, attr] : node.attrs) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attr);
    if (body == nullptr) continue;
    for (const NodeId id : (*body)->nodes()) opset = needed_opset(**body, (*body)->node(id), opset, why);
  }
  std::string reason;
  for (; opset <= kNewestOpset; ++opset) {
    onnx::NodeProto proto = plain_node_proto(graph, node);
    LowerCall call{graph, node, opset, proto,
                   [](const char* what, const Tensor&) { return std::string(what); }};
    const std::string now = lower(call);
    if (now.empty()) break;
    reason = fmt::format("node '{}' ({}): {}", node.name, node.op, now);
  }
  if (opset > kNewestOpset)
    fail(ErrorCode::kUnsupported, "no opset up to {} can hold {}", kNewestOpset, reason);
  if (!reason.empty()) why = reason;
  return opset;
}

int ir_version_of_opset(int opset) {
  constexpr struct {
    int opset, ir;
  } kTable[] = {{25, 13}, {24, 12}, {23, 11}, {21, 10}, {19, 9}, {15, 8}, {12, 7}, {11, 6}, {10, 5}};
  for (const auto& row : kTable)
    if (opset >= row.opset) return row.ir;
  return 4;  // below, initializers would have to be graph inputs
}

}  // namespace pare
