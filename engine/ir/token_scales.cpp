#include "engine/ir/token_scales.h"

#include <limits>

#include "engine/base/error.h"

namespace pare {

TokenCodes write_token_quantize(OpWriter& w, ValueId x, const Shape& shape, std::int64_t axis) {
  if (axis < 0) axis += shape.rank();
  if (!shape.ranked || axis < 0 || axis >= shape.rank() ||
      !shape.dims[static_cast<std::size_t>(axis)].known())
    fail(ErrorCode::kUnsupported, "a scale for each row of axis {} of {}: the size there must be known", axis,
         to_string(shape));
  Shape one = shape;
  Dim& dim = one.dims[static_cast<std::size_t>(axis)];
  const std::int64_t row = dim.value;
  dim = Dim::of(1);
  const Attributes keep = {{"keepdims", std::int64_t{1}}};
  const ValueId axes = w.constant("axes", Tensor::ints({axis}));
  const ValueId nothing = w.constant("zero", Tensor::scalar(0.0f));
  const ValueId largest = w.node("largest", "ReduceMax", {x, axes}, DType::kF32, one, keep);
  const ValueId least = w.node("least", "ReduceMin", {x, axes}, DType::kF32, one, keep);
  const ValueId high = w.node("high", "Max", {largest, nothing}, DType::kF32, one, {});
  const ValueId low = w.node("low", "Min", {least, nothing}, DType::kF32, one, {});
  const ValueId span = w.node("span", "Sub", {high, low}, DType::kF32, one, {});
  const ValueId raw =
      w.node("raw", "Div", {span, w.constant("steps", Tensor::scalar(255.0f))}, DType::kF32, one, {});
  TokenCodes out;
  out.scale =
      w.node("scale", "Max", {raw, w.constant("floor", Tensor::scalar(std::numeric_limits<float>::min()))},
             DType::kF32, one, {});
  const ValueId below = w.node("below", "Div", {low, out.scale}, DType::kF32, one, {});
  const ValueId up = w.node("up", "Neg", {below}, DType::kF32, one, {});
  const ValueId whole = w.node("whole", "Round", {up}, DType::kF32, one, {});
  out.zero =
      w.node("zero_point", "Cast", {whole}, DType::kU8, one, {{"to", static_cast<std::int64_t>(DType::kU8)}});
  out.attributes = {{"axis", axis}, {"block_size", row}};
  out.codes =
      w.node("QuantizeLinear", "QuantizeLinear", {x, out.scale, out.zero}, DType::kU8, shape, out.attributes);
  return out;
}

}  // namespace pare
