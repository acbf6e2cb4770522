#include "engine/ir/block_scales.h"

#include <limits>

#include "engine/base/error.h"

namespace pare {
namespace {

float largest_code(DType codes) {
  if (codes == DType::kE2M1) return 6;
  return codes == DType::kE5M2 ? 57344.0f : 448.0f;
}

struct Places {
  std::int64_t axis = 0, size = 0, blocks = 0;
  Shape of_scales;
};

Places places_of(const Shape& shape, const BlockScales& blocks) {
  Places p;
  p.axis = blocks.axis < 0 ? blocks.axis + shape.rank() : blocks.axis;
  if (!shape.ranked || p.axis < 0 || p.axis >= shape.rank() ||
      !shape.dims[static_cast<std::size_t>(p.axis)].known())
    fail(ErrorCode::kUnsupported, "blocks along axis {} of {}: the size there must be known", blocks.axis,
         to_string(shape));
  p.size = shape.dims[static_cast<std::size_t>(p.axis)].value;
  p.blocks = (p.size + blocks.block - 1) / blocks.block;
  p.of_scales = shape;
  p.of_scales.dims[static_cast<std::size_t>(p.axis)] = Dim::of(p.blocks);
  return p;
}

// [.., n, tail..] -> [.., n / B, B, the tail as one]
ValueId block_maxima(OpWriter& w, ValueId x, const Shape& shape, const Places& p, std::int64_t block) {
  const auto axis = static_cast<std::size_t>(p.axis);
  Shape whole = shape;
  if (p.blocks * block != p.size) {
    std::vector<std::int64_t> pads(2 * shape.dims.size(), 0);
    pads[shape.dims.size() + axis] = p.blocks * block - p.size;
    whole.dims[axis] = Dim::of(p.blocks * block);
    x = w.node("padded", "Pad", {x, w.constant("pads", Tensor::ints(pads))}, DType::kF32, whole, {});
  }
  const ValueId magnitude = w.node("magnitude", "Abs", {x}, DType::kF32, whole, {});
  const bool last = axis + 1 == shape.dims.size();
  std::vector<std::int64_t> split(axis, 0);  // 0: as it is
  split.push_back(p.blocks);
  split.push_back(block);
  Shape split_shape(
      std::vector<Dim>(shape.dims.begin(), shape.dims.begin() + static_cast<std::ptrdiff_t>(axis)));
  split_shape.dims.push_back(Dim::of(p.blocks));
  split_shape.dims.push_back(Dim::of(block));
  bool known = true;
  if (!last) {
    split.push_back(-1);
    std::int64_t tail = 1;
    for (std::size_t i = axis + 1; i < shape.dims.size(); ++i) {
      known = known && shape.dims[i].known();
      if (known) tail *= shape.dims[i].value;
    }
    split_shape.dims.push_back(known ? Dim::of(tail) : Dim{});
  }
  const ValueId rows = w.node("blocks", "Reshape", {magnitude, w.constant("split", Tensor::ints(split))},
                              DType::kF32, split_shape, {});
  Shape flat = split_shape;
  flat.dims.erase(flat.dims.begin() + p.axis + 1);
  const ValueId maxima =
      w.node("maxima", "ReduceMax", {rows, w.constant("along", Tensor::ints({p.axis + 1}))}, DType::kF32,
             last ? p.of_scales : flat, {{"keepdims", std::int64_t{0}}});
  if (last || axis + 2 == shape.dims.size()) return maxima;
  std::vector<std::int64_t> target(axis, 0);
  target.push_back(p.blocks);
  ValueId to = ValueId::kNone;
  if (known) {
    for (std::size_t i = axis + 1; i < shape.dims.size(); ++i) target.push_back(shape.dims[i].value);
    to = w.constant("shape", Tensor::ints(target));
  } else {
    const auto sizes = static_cast<std::int64_t>(shape.dims.size());
    const ValueId tail =
        w.node("tail", "Shape", {x}, DType::kI64, Shape(Dims{sizes - p.axis - 1}), {{"start", p.axis + 1}});
    to = w.node("shape", "Concat", {w.constant("head", Tensor::ints(target)), tail}, DType::kI64,
                Shape(Dims{sizes}), {{"axis", std::int64_t{0}}});
  }
  return w.node("grid", "Reshape", {maxima, to}, DType::kF32, p.of_scales, {});
}

}  // namespace

BlockCodes write_block_quantize(OpWriter& w, ValueId x, const Shape& shape, ValueId global,
                                const BlockScales& blocks) {
  const Places p = places_of(shape, blocks);
  const ValueId maxima = block_maxima(w, x, shape, p, blocks.block);
  BlockCodes out{};
  if (blocks.scales == DType::kE4M3FN) {
    const ValueId level =
        w.node("level", "Div", {maxima, w.constant("codes", Tensor::scalar(largest_code(blocks.codes)))},
               DType::kF32, p.of_scales, {});
    const ValueId least = w.node("least", "Mul", {global, w.constant("step", Tensor::scalar(0x1p-9f))},
                                 DType::kF32, Shape(Dims{}), {});
    const ValueId safe = w.node("safe", "Max", {level, least}, DType::kF32, p.of_scales, {});
    const auto type = static_cast<std::int64_t>(DType::kE4M3FN);
    out.scales = w.node("scale_QuantizeLinear", "QuantizeLinear", {safe, global}, DType::kE4M3FN, p.of_scales,
                        {{"output_dtype", type}});
    out.scale = w.node("scale_DequantizeLinear", "DequantizeLinear", {out.scales, global}, DType::kF32,
                       p.of_scales, {});
  } else if (blocks.scales == DType::kF32) {
    const ValueId level =
        w.node("level", "Div", {maxima, w.constant("codes", Tensor::scalar(largest_code(blocks.codes)))},
               DType::kF32, p.of_scales, {});
    const ValueId least = w.constant("least", Tensor::scalar(std::numeric_limits<float>::min()));
    out.scales = w.node("scale", "Max", {level, least}, DType::kF32, p.of_scales, {});
    out.scale = out.scales;
  } else {
    const bool down = blocks.codes == DType::kE2M1;
    const float divisor = down ? 3.5f : largest_code(blocks.codes);
    const ValueId level = w.node("level", "Div", {maxima, w.constant("codes", Tensor::scalar(divisor))},
                                 DType::kF32, p.of_scales, {});
    out.scales = w.node(
        "scale", "Cast", {level}, DType::kE8M0, p.of_scales,
        {{"to", static_cast<std::int64_t>(DType::kE8M0)}, {"round_mode", std::string(down ? "down" : "up")}});
    out.scale = out.scales;
  }
  out.codes = w.node("QuantizeLinear", "QuantizeLinear", {x, out.scale}, blocks.codes, shape,
                     {{"axis", p.axis},
                      {"block_size", blocks.block},
                      {"output_dtype", static_cast<std::int64_t>(blocks.codes)}});
  return out;
}

Attributes block_dequantize_attributes(const BlockScales& blocks, int rank) {
  Attributes attrs = {{"axis", blocks.axis < 0 ? blocks.axis + rank : blocks.axis},
                      {"block_size", blocks.block}};
  if (blocks.scales == DType::kE8M0) attrs["output_dtype"] = static_cast<std::int64_t>(DType::kF32);
  return attrs;
}

}  // namespace pare
