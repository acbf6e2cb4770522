#include "graphsurgeon/onnx/raise/raise.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/onnx/raise/raise_microsoft.h"
#include "graphsurgeon/onnx/raise/raise_rules.h"
#include "graphsurgeon/onnx/raise/raise_tensorrt.h"

namespace pare {
namespace {

bool attribute_to_input(Raiser& r, Node& node, const char* key, std::size_t slot) {
  std::vector<std::int64_t> values;
  if (take(node, key, values)) put_input(node, slot, r.ints(node, key, std::move(values)));
  return true;
}

bool raise_axes(Raiser& r, Node& node) { return attribute_to_input(r, node, "axes", 1); }

bool raise_split(Raiser& r, Node& node) {
  attribute_to_input(r, node, "split", 1);
  const bool sized = node.in.size() > 1 && node.in[1] != ValueId::kNone;
  if (!sized && !node.has_attr("num_outputs"))
    node.attrs["num_outputs"] = static_cast<std::int64_t>(node.out.size());
  return true;
}

bool raise_slice(Raiser& r, Node& node) {
  std::vector<std::int64_t> starts, ends, axes;
  if (!take(node, "starts", starts) || !take(node, "ends", ends))
    fail(ErrorCode::kBadFile, "Slice without starts and ends");
  put_input(node, 1, r.ints(node, "starts", std::move(starts)));
  put_input(node, 2, r.ints(node, "ends", std::move(ends)));
  if (take(node, "axes", axes)) put_input(node, 3, r.ints(node, "axes", std::move(axes)));
  return true;
}

// A scalar of the type of input 0.
ValueId typed_scalar(Raiser& r, const Node& node, const char* what, float value) {
  return r.constant(node, what, typed_number(r.dtype(node.in.at(0)), value, what));
}

bool raise_clip(Raiser& r, Node& node) {
  float value = 0;
  if (take(node, "min", value)) put_input(node, 1, typed_scalar(r, node, "min", value));
  if (take(node, "max", value)) put_input(node, 2, typed_scalar(r, node, "max", value));
  return true;
}

bool raise_pad(Raiser& r, Node& node) {
  float value = 0;
  const bool given = take(node, "value", value);
  attribute_to_input(r, node, "pads", 1);
  if (given && value != 0) put_input(node, 2, typed_scalar(r, node, "value", value));
  return true;
}

bool raise_topk(Raiser& r, Node& node) {
  std::int64_t k = 0;
  if (!take(node, "k", k)) fail(ErrorCode::kBadFile, "TopK without k");
  put_input(node, 1, r.ints(node, "k", {k}));
  return true;
}

// The mask was a number (the data's type) before opset 10.
bool raise_dropout(Raiser& r, Node& node) {
  node.attrs.erase("ratio");
  node.attrs.erase("is_test");
  if (r.opset() >= 10 || node.out.size() < 2 || node.out[1] == ValueId::kNone) return true;
  const ValueId wanted = node.out[1];
  node.out[1] = r.temporary(node, "mask");
  Node cast;
  cast.name = raised_name(node) + "_mask";
  cast.op = "Cast";
  cast.in = {node.out[1]};
  cast.out = {wanted};
  cast.attrs["to"] = static_cast<std::int64_t>(r.dtype(node.in.at(0)));
  r.emit(std::move(node));
  r.emit(std::move(cast));
  return false;
}

bool raise_softmax(Raiser& r, Node& node) {
  std::int64_t axis = node.attr("axis", std::int64_t{1});
  const int rank = r.graph().value(node.in.at(0)).shape.rank();
  if (rank > 0 && (axis == -1 || axis == rank - 1)) {
    node.attrs["axis"] = std::int64_t{-1};
    return true;
  }
  const ValueId x = node.in[0], y = node.out.at(0);
  const ValueId shape = r.temporary(node, "shape"), flat = r.temporary(node, "flat");
  const ValueId result = r.temporary(node, "result");
  Node take_shape, flatten, reshape;
  take_shape.name = raised_name(node) + "_shape";
  take_shape.op = "Shape";
  take_shape.in = {x};
  take_shape.out = {shape};
  flatten.name = raised_name(node) + "_flatten";
  flatten.op = "Flatten";
  flatten.in = {x};
  flatten.out = {flat};
  flatten.attrs["axis"] = axis;
  reshape.name = raised_name(node) + "_reshape";
  reshape.op = "Reshape";
  reshape.attrs["allowzero"] = std::int64_t{1};  // a size of 0 is one; finish() drops it where there is none
  reshape.in = {result, shape};
  reshape.out = {y};
  node.attrs["axis"] = std::int64_t{-1};
  node.in = {flat};
  node.out = {result};
  Raiser::Coerced c{};
  c.axis = axis;
  c.shape = r.emit(std::move(take_shape));
  c.flatten = r.emit(std::move(flatten));
  c.op = r.emit(std::move(node));
  c.reshape = r.emit(std::move(reshape));
  r.add_coerced(c);
  return false;
}

bool raise_upsample(Raiser& r, Node& node) {
  std::vector<float> scales;
  if (take(node, "scales", scales)) {
    const Dims dims = {static_cast<std::int64_t>(scales.size())};
    put_input(node, 1, r.constant(node, "scales", Tensor::from(DType::kF32, dims, scales)));
  }
  if (node.in.size() < 2) fail(ErrorCode::kBadFile, "Upsample without scales");
  node.op = "Resize";
  return true;
}

bool raise_resize_10(Raiser&, Node& node) {
  const ValueId scales = node.in.at(1);
  node.in = {node.in[0], ValueId::kNone, scales};
  node.attrs["coordinate_transformation_mode"] = std::string("asymmetric");
  node.attrs["nearest_mode"] = std::string("floor");
  return true;
}

// Opsets 11 and 12 need roi and scales to be there, and leave them empty.
bool raise_resize_11(Raiser& r, Node& node) {
  for (std::size_t i = 1; i < node.in.size(); ++i) {
    if (!r.graph().is_constant(node.in[i])) continue;
    if (r.graph().value(node.in[i]).constant.size() == 0) node.in[i] = ValueId::kNone;
  }
  const bool crops = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
  if (!crops && node.in.size() > 1) node.in[1] = ValueId::kNone;
  return true;
}

bool raise_scatter(Raiser&, Node& node) {
  node.op = "ScatterElements";
  return true;
}

bool raise_grid_sample(Raiser&, Node& node) {
  const std::string mode = node.attr("mode", "bilinear");
  node.attrs["mode"] = mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? "cubic" : mode;
  return true;
}

bool raise_roi_align(Raiser&, Node& node) {
  node.attrs["coordinate_transformation_mode"] = std::string("output_half_pixel");
  return true;
}

bool raise_dft(Raiser& r, Node& node) {
  std::int64_t axis = 1;
  take(node, "axis", axis);
  put_input(node, 2,
            r.constant(node, "axis", Tensor::from(DType::kI64, {}, std::vector<std::int64_t>{axis})));
  return true;
}

// In order: one node may match several, and Upsample goes on as Resize.
const RaiseEntry kRules[] = {
    {"Squeeze", 13, raise_axes},
    {"Unsqueeze", 13, raise_axes},
    {"ReduceSum", 13, raise_axes},
    {"ReduceL1", 18, raise_axes},
    {"ReduceL2", 18, raise_axes},
    {"ReduceLogSum", 18, raise_axes},
    {"ReduceLogSumExp", 18, raise_axes},
    {"ReduceMax", 18, raise_axes},
    {"ReduceMean", 18, raise_axes},
    {"ReduceMin", 18, raise_axes},
    {"ReduceProd", 18, raise_axes},
    {"ReduceSumSquare", 18, raise_axes},
    {"Split", 18, raise_split},
    {"Slice", 10, raise_slice},
    {"Clip", 11, raise_clip},
    {"Pad", 11, raise_pad},
    {"TopK", 10, raise_topk},
    {"Dropout", 12, raise_dropout},
    {"BatchNormalization", 14, raise_batch_normalization},
    {"Softmax", 13, raise_softmax},
    {"LogSoftmax", 13, raise_softmax},
    {"Hardmax", 13, raise_softmax},
    {"Upsample", 10, raise_upsample},
    {"Resize", 11, raise_resize_10},
    {"Resize", 13, raise_resize_11},
    {"Scatter", 1000, raise_scatter},
    {"GridSample", 20, raise_grid_sample},
    {"RoiAlign", 16, raise_roi_align},
    {"DFT", 20, raise_dft},
    {"GroupNormalization", 21, raise_group_normalization},
    {"Scan", 9, raise_scan_8},
};

// The dtype of output 0 of operators of opsets below 13, where a rule needs it before shapes are inferred.
DType guess_dtype(const Raiser& r, const Node& node) {
  static const char* const kToInt64[] = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero", "NonMaxSuppression"};
  static const char* const kToBool[] = {"Equal",      "Greater", "Less",  "And",   "Or",
                                        "Xor",        "Not",     "IsNaN", "IsInf", "GreaterOrEqual",
                                        "LessOrEqual"};
  const auto among = [&](const auto& list) {
    return std::find_if(std::begin(list), std::end(list), [&](const char* op) { return node.op == op; }) !=
           std::end(list);
  };
  if (among(kToInt64)) return DType::kI64;
  if (among(kToBool)) return DType::kBool;
  if (node.op == "Cast") {
    const std::int64_t to = node.attr("to", std::int64_t{1});
    return to > 0 && to < kDTypeCount ? static_cast<DType>(to) : DType::kF32;
  }
  if (node.op == "ConstantOfShape") {
    const Tensor* value = node.attr_tensor("value");
    return value != nullptr ? value->dtype() : DType::kF32;
  }
  const std::size_t like = node.op == "Where" ? 1 : node.op == "OneHot" ? 2 : 0;
  if (node.in.size() <= like || node.in[like] == ValueId::kNone) return DType::kF32;
  return r.dtype(node.in[like]);
}

}  // namespace

Tensor typed_number(DType type, float value, const char* what) {
  if (type == DType::kF64) return Tensor::from(type, {}, std::vector<double>{value});
  if (type == DType::kI64)
    return Tensor::from(type, {}, std::vector<std::int64_t>{static_cast<std::int64_t>(value)});
  if (type == DType::kI32)
    return Tensor::from(type, {}, std::vector<std::int32_t>{static_cast<std::int32_t>(value)});
  if (type == DType::kF32) return Tensor::scalar(value);
  const FormatInfo* format = find_format(type);
  if (format == nullptr || format->encode == nullptr)
    fail(ErrorCode::kUnsupported, "{} of a {} tensor", what, name(type));
  Tensor tensor = Tensor::allocate(type, {});
  format->encode(&value, tensor.mut<void>(), 1);
  return tensor;
}

DType Raiser::dtype(ValueId id) const {
  if (id == ValueId::kNone) return DType::kF32;
  const DType known = graph_.value(id).dtype;
  if (known != DType::kUndefined) return known;
  const auto it = guessed_.find(id);
  return it == guessed_.end() ? DType::kF32 : it->second;
}

ValueId Raiser::constant(const Node& node, const char* what, Tensor tensor) {
  const std::string stem =
      !node.out.empty() && node.out[0] != ValueId::kNone ? graph_.value(node.out[0]).name : raised_name(node);
  return graph_.add_constant(stem + "_" + what, std::move(tensor));
}

ValueId Raiser::ints(const Node& node, const char* what, std::vector<std::int64_t> values) {
  return constant(node, what, Tensor::ints(values));
}

ValueId Raiser::temporary(const Node& node, const char* what) {
  Value value;
  value.name = graph_.value(node.out.at(0)).name + "_" + what;
  return graph_.add_value(std::move(value));
}

NodeId Raiser::emit(Node node) { return graph_.add_node(std::move(node)); }

const Value& Raiser::known(ValueId id) {
  constexpr int kMaxFruitless = 64;  // whole-graph inferences that did not tell what was asked
  const auto is_known = [&] {
    return graph_.value(id).shape.ranked && graph_.value(id).dtype != DType::kUndefined;
  };
  if (is_known() || fruitless_ >= kMaxFruitless || inferred_nodes_ == graph_.node_count())
    return graph_.value(id);
  inferred_nodes_ = graph_.node_count();
  try {
    infer_shapes(graph_);
  } catch (const Error&) {  // said again, and better, when the whole graph is inferred
  }
  if (!is_known()) ++fruitless_;
  return graph_.value(id);
}

void Raiser::append(Node node) {
  RaiseRule foreign = microsoft_rule(node.domain, node.op);
  if (foreign == nullptr) foreign = tensorrt_rule(node.domain, node.op);
  if (const RaiseRule rule = foreign; rule != nullptr) {
    if (node.out.empty() || node.out[0] == ValueId::kNone)
      throw make_error(ErrorCode::kBadFile, "a {} node lacks its output", node.op);
    if (!rule(*this, node)) return;
  }
  if (node.domain.empty()) {
    if (opset_ < 6) node.attrs.erase("consumed_inputs");  // how memory was to be reused
    const RaiseList oldest = oldest_rules();
    for (std::size_t at = 0; at < oldest.count + std::size(kRules); ++at) {
      const RaiseEntry& entry = at < oldest.count ? oldest.first[at] : kRules[at - oldest.count];
      if (opset_ >= entry.below || node.op != entry.op) continue;
      // The checker looks at arity only where it knows the operator's version, and inliners make nodes anew.
      const bool scan = node.op == "Scan";  // its first input may be left out
      const bool whole = !node.in.empty() && (scan || node.in[0] != ValueId::kNone) && !node.out.empty() &&
                         (scan || node.out[0] != ValueId::kNone);
      try {
        if (!whole) throw std::out_of_range("first input or output");
        if (!entry.rule(*this, node)) return;
      } catch (const std::out_of_range&) {
        throw make_error(ErrorCode::kBadFile, "a {} node lacks an input or output that its operator needs",
                         node.op)
            .at(fmt::format("node '{}'", node.name));
      }
    }
    if (opset_ < 13 && !node.out.empty() && node.out[0] != ValueId::kNone)
      guessed_[node.out[0]] = guess_dtype(*this, node);
  }
  graph_.add_node(std::move(node));
}

bool Raiser::finish() {
  bool changed = false;
  for (const Coerced& c : coerced_) {
    const ValueId x = graph_.node(c.flatten).in[0], y = graph_.node(c.reshape).out[0];
    const int rank = graph_.value(x).shape.rank();
    if (rank <= 0 || (c.axis != -1 && c.axis != rank - 1)) {
      const std::vector<Dim>& dims = graph_.value(x).shape.dims;
      if (std::none_of(dims.begin(), dims.end(), [](const Dim& d) { return d.known() && d.value == 0; }))
        graph_.node(c.reshape).attrs.erase("allowzero");
      continue;
    }
    graph_.remove_node(c.reshape);
    graph_.remove_node(c.shape);
    graph_.set_input(c.op, 0, x);
    graph_.set_output(c.op, 0, y);
    graph_.remove_node(c.flatten);
    changed = true;
  }
  coerced_.clear();
  for (const NodeId id : statistics_) {
    const std::vector<ValueId> out = graph_.node(id).out;
    bool read = false;
    for (std::size_t i = 1; i < out.size(); ++i)
      read =
          read || (out[i] != ValueId::kNone && (!graph_.users(out[i]).empty() || graph_.is_output(out[i])));
    if (read) continue;
    for (std::size_t i = 1; i < out.size(); ++i) graph_.set_output(id, static_cast<int>(i), ValueId::kNone);
    graph_.node(id).attrs.erase("training_mode");
    changed = true;
  }
  statistics_.clear();
  return changed;
}

}  // namespace pare
