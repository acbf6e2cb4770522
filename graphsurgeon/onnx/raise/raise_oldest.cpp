// Opsets 1 to 6: what opset 7 changed at once (numpy's broadcasting in place of `broadcast` and `axis`), and
// attributes that had other names or types before.
#include <array>
#include <cmath>

#include "engine/numeric/table.h"
#include "graphsurgeon/onnx/raise/raise_rules.h"

namespace pare {
namespace {

// Input `slot` seen as aligned at `axis` of input 0: sizes of 1 are put behind it. They depend on the rank of
// input 0, which may not be known yet, so they are computed, and fold once it is.
void align_at(Raiser& r, Node& node, std::size_t slot, std::int64_t axis) {
  const ValueId x = node.in.at(0), small = node.in.at(slot);
  const int rank = r.graph().value(small).shape.rank(), whole = r.graph().value(x).shape.rank();
  if (rank < 0)
    fail(ErrorCode::kUnsupported, "{} aligned at axis {} with an operand of unknown rank", node.op, axis);
  if (rank == 0 || (axis < 0 && axis + rank == 0)) return;
  if (axis < 0) {
    if (whole < 0) fail(ErrorCode::kUnsupported, "{} aligned at axis {} of unknown rank", node.op, axis);
    axis += whole;
  }
  std::vector<std::int64_t> behind;
  if (whole >= 0) {
    for (std::int64_t i = axis + rank; i < whole; ++i)
      behind.push_back(rank + static_cast<std::int64_t>(behind.size()));
    if (behind.empty()) return;
    put_input(node, slot, emit_step(r, node, "aligned", "Unsqueeze", {small, r.ints(node, "axes", behind)}));
    return;
  }
  const ValueId rest = emit_step(r, node, "behind", "Shape", {x}, {{"start", axis + rank}});
  const ValueId count = emit_step(r, node, "behind_count", "Shape", {rest});
  const ValueId ones = emit_step(r, node, "ones", "ConstantOfShape", {count}, {{"value", Tensor::ints({1})}});
  const ValueId own = emit_step(r, node, "own_shape", "Shape", {small});
  const ValueId shape =
      emit_step(r, node, "aligned_shape", "Concat", {own, ones}, {{"axis", std::int64_t{0}}});
  put_input(node, slot, emit_step(r, node, "aligned", "Reshape", {small, shape}));
}

bool raise_broadcast(Raiser& r, Node& node) {
  std::int64_t broadcast = 0, axis = 0;
  take(node, "broadcast", broadcast);
  if (take(node, "axis", axis) && broadcast != 0) align_at(r, node, 1, axis);
  return true;
}

bool raise_prelu(Raiser& r, Node& node) {  // one slope, or one a channel
  const Shape& slope = r.graph().value(node.in.at(1)).shape;
  if (slope.rank() == 1 && !(slope.dims[0].known() && slope.dims[0].value == 1)) align_at(r, node, 1, 1);
  return true;
}

bool drop_broadcast(Raiser&, Node& node) {
  node.attrs.erase("broadcast");
  return true;
}

bool drop_output_sequence(Raiser&, Node& node) {
  node.attrs.erase("output_sequence");
  return true;
}

// `is_test` 0, the default, is training.
bool raise_batch_mode(Raiser& r, Node& node) {
  std::int64_t is_test = 0;
  take(node, "is_test", is_test);
  node.attrs.erase("consumed_inputs");
  if (is_test != 0) node.out.resize(1);
  static_cast<void>(r);
  return true;
}

bool raise_float_p(Raiser&, Node& node) {
  float p = 2;
  if (node.has_attr("p") && std::holds_alternative<float>(node.attrs["p"])) {
    take(node, "p", p);
    if (p != std::floor(p)) fail(ErrorCode::kUnsupported, "{} with p = {}", node.op, p);
    node.attrs["p"] = static_cast<std::int64_t>(p);
  }
  return true;
}

bool raise_upsample_1(Raiser&, Node& node) {
  float height = 1, width = 1;
  take(node, "height_scale", height);
  take(node, "width_scale", width);
  node.attrs["scales"] = std::vector<float>{1, 1, height, width};
  return true;
}

bool raise_reshape_1(Raiser& r, Node& node) {
  std::vector<std::int64_t> shape;
  node.attrs.erase("consumed_inputs");
  if (take(node, "shape", shape)) put_input(node, 1, r.ints(node, "shape", shape));
  return true;
}

bool raise_cast_1(Raiser&, Node& node) {
  if (!node.has_attr("to") || !std::holds_alternative<std::string>(node.attrs["to"])) return true;
  std::string to;
  take(node, "to", to);
  static constexpr std::pair<const char*, DType> kNames[] = {
      {"FLOAT", DType::kF32},    {"UINT8", DType::kU8},   {"INT8", DType::kI8},    {"UINT16", DType::kU16},
      {"INT16", DType::kI16},    {"INT32", DType::kI32},  {"INT64", DType::kI64},  {"BOOL", DType::kBool},
      {"FLOAT16", DType::kF16},  {"DOUBLE", DType::kF64}, {"UINT32", DType::kU32}, {"UINT64", DType::kU64},
      {"STRING", DType::kString}};
  for (const auto& [word, type] : kNames)
    if (to == word) {
      node.attrs["to"] = static_cast<std::int64_t>(type);
      return true;
    }
  fail(ErrorCode::kBadFile, "Cast to '{}'", to);
}

bool raise_concat_1(Raiser&, Node& node) {
  if (!node.has_attr("axis")) node.attrs["axis"] = std::int64_t{1};
  return true;
}

bool raise_pad_1(Raiser&, Node& node) {
  std::vector<std::int64_t> pads;
  if (take(node, "paddings", pads)) node.attrs["pads"] = pads;
  return true;
}

bool raise_split_1(Raiser& r, Node& node) {
  if (node.in.size() > 1) fail(ErrorCode::kUnsupported, "Split of opset 1 with its sizes as an input");
  static_cast<void>(r);
  return true;
}

bool refuse_tile_1(Raiser&, Node& node) {
  fail(ErrorCode::kUnsupported, "{} of opsets below 6, which repeats along one axis", node.op);
}

bool drop_consumed(Raiser&, Node& node) {
  node.attrs.erase("consumed_inputs");
  return true;
}

constexpr RaiseEntry kOldest[] = {
    {"Add", 7, raise_broadcast},
    {"Sub", 7, raise_broadcast},
    {"Mul", 7, raise_broadcast},
    {"Div", 7, raise_broadcast},
    {"Pow", 7, raise_broadcast},
    {"And", 7, raise_broadcast},
    {"Or", 7, raise_broadcast},
    {"Xor", 7, raise_broadcast},
    {"Equal", 7, raise_broadcast},
    {"Greater", 7, raise_broadcast},
    {"Less", 7, raise_broadcast},
    {"PRelu", 7, raise_prelu},
    {"Gemm", 7, drop_broadcast},
    {"RNN", 7, drop_output_sequence},
    {"LSTM", 7, drop_output_sequence},
    {"GRU", 7, drop_output_sequence},
    {"BatchNormalization", 7, raise_batch_mode},
    {"LpPool", 2, raise_float_p},
    {"GlobalLpPool", 2, raise_float_p},
    {"LpNormalization", 2, raise_float_p},
    {"Upsample", 7, raise_upsample_1},
    {"Reshape", 5, raise_reshape_1},
    {"Cast", 6, raise_cast_1},
    {"Concat", 4, raise_concat_1},
    {"Pad", 2, raise_pad_1},
    {"Split", 2, raise_split_1},
    {"Tile", 6, refuse_tile_1},
    {"Dropout", 6, drop_consumed},
};

}  // namespace

RaiseList oldest_rules() { return {kOldest, std::size(kOldest)}; }

}  // namespace pare
