#include "engine/ir/block_scales.h"

#include <cmath>
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

// [.., n, tail..] -> [.., n / B, B, the tail as one] -> [.., n / B, tail..]: the largest magnitude, or the
// sum. `prefix` of the names.
ValueId over_blocks(OpWriter& w, ValueId x, const Shape& shape, const Places& p, std::int64_t block,
                    bool maxima, const std::string& prefix) {
  const auto node = [&](const char* what, const char* op, std::vector<ValueId> in, DType dtype,
                        const Shape& of, const Attributes& attrs) {
    return w.node((prefix + what).c_str(), op, std::move(in), dtype, of, attrs);
  };
  const auto constant = [&](const char* what, Tensor tensor) {
    return w.constant((prefix + what).c_str(), std::move(tensor));
  };
  const auto axis = static_cast<std::size_t>(p.axis);
  Shape whole = shape;
  if (p.blocks * block != p.size) {
    std::vector<std::int64_t> pads(2 * shape.dims.size(), 0);
    pads[shape.dims.size() + axis] = p.blocks * block - p.size;
    whole.dims[axis] = Dim::of(p.blocks * block);
    x = node("padded", "Pad", {x, constant("pads", Tensor::ints(pads))}, DType::kF32, whole, {});
  }
  if (maxima) x = node("magnitude", "Abs", {x}, DType::kF32, whole, {});
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
  const ValueId rows =
      node("blocks", "Reshape", {x, constant("split", Tensor::ints(split))}, DType::kF32, split_shape, {});
  Shape flat = split_shape;
  flat.dims.erase(flat.dims.begin() + p.axis + 1);
  const ValueId reduced = node(maxima ? "maxima" : "sums", maxima ? "ReduceMax" : "ReduceSum",
                               {rows, constant("along", Tensor::ints({p.axis + 1}))}, DType::kF32,
                               last ? p.of_scales : flat, {{"keepdims", std::int64_t{0}}});
  if (last || axis + 2 == shape.dims.size()) return reduced;
  std::vector<std::int64_t> target(axis, 0);
  target.push_back(p.blocks);
  ValueId to = ValueId::kNone;
  if (known) {
    for (std::size_t i = axis + 1; i < shape.dims.size(); ++i) target.push_back(shape.dims[i].value);
    to = constant("shape", Tensor::ints(target));
  } else {
    const auto sizes = static_cast<std::int64_t>(shape.dims.size());
    const ValueId tail =
        node("tail", "Shape", {x}, DType::kI64, Shape(Dims{sizes - p.axis - 1}), {{"start", p.axis + 1}});
    to = node("shape", "Concat", {constant("head", Tensor::ints(target)), tail}, DType::kI64,
              Shape(Dims{sizes}), {{"axis", std::int64_t{0}}});
  }
  return node("grid", "Reshape", {reduced, to}, DType::kF32, p.of_scales, {});
}

// Scales of one block among which the best is looked for: E4M3 and F32 as parts of the first, E8M0 as what
// the largest magnitude is divided by.
std::vector<float> candidates(const BlockScales& blocks) {
  if (blocks.scales == DType::kE8M0)
    return blocks.codes == DType::kE2M1
               ? std::vector<float>{4, 2}
               : std::vector<float>{largest_code(blocks.codes), 2 * largest_code(blocks.codes)};
  if (blocks.scales == DType::kE4M3FN) return {1, 1 / 1.5f, 0.75f, 0.8f, 0.85f, 0.925f, 1.08f, 1.16f};
  std::vector<float> phases;
  for (int k = 0; k < 8; ++k) phases.push_back(1 / std::exp2(static_cast<float>(k) / 8));
  return phases;
}

class ScaleChooser {
 public:
  ScaleChooser(OpWriter& w, ValueId x, const Shape& shape, ValueId global, const BlockScales& blocks,
               const Places& places)
      : w_(w), x_(x), shape_(shape), global_(global), blocks_(blocks), places_(places) {}

  // Scales in float32 that are exactly of their type.
  ValueId run(ValueId maxima) {
    ValueId best = ValueId::kNone, least = ValueId::kNone;
    const std::vector<float> parts = candidates(blocks_);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      prefix_ = i == 0 ? "" : fmt::format("try{}_", i);
      const ValueId scale = candidate(maxima, parts[i]);
      const ValueId error = error_of(scale);
      if (i == 0) {
        best = scale;
        least = error;
        continue;
      }
      const ValueId better = node("better", "Less", {error, least}, DType::kBool, places_.of_scales);
      best = node("best", "Where", {better, scale, best}, DType::kF32, places_.of_scales);
      if (i + 1 < parts.size())
        least = node("least_error", "Where", {better, error, least}, DType::kF32, places_.of_scales);
    }
    return best;
  }

 private:
  ValueId node(const char* what, const char* op, std::vector<ValueId> in, DType dtype, const Shape& of,
               const Attributes& attrs = {}) {
    return w_.node((prefix_ + what).c_str(), op, std::move(in), dtype, of, attrs);
  }
  ValueId number(const char* what, float value) {
    return w_.constant((prefix_ + what).c_str(), Tensor::scalar(value));
  }

  ValueId candidate(ValueId maxima, float part) {
    const Shape& of = places_.of_scales;
    const auto to = [](DType type) { return static_cast<std::int64_t>(type); };
    if (blocks_.scales == DType::kE8M0) {
      const ValueId level = node("level", "Div", {maxima, number("codes", part)}, DType::kF32, of);
      const std::string mode = blocks_.codes == DType::kE2M1 ? "down" : "up";
      const ValueId power =
          node("power", "Cast", {level}, DType::kE8M0, of, {{"to", to(DType::kE8M0)}, {"round_mode", mode}});
      return node("power_float", "Cast", {power}, DType::kF32, of, {{"to", to(DType::kF32)}});
    }
    const ValueId level =
        node("level", "Div", {maxima, number("codes", largest_code(blocks_.codes) * part)}, DType::kF32, of);
    if (blocks_.scales == DType::kF32)
      return node("scale_safe", "Max", {level, number("least", std::numeric_limits<float>::min())},
                  DType::kF32, of);
    const ValueId least =
        node("least", "Mul", {global_, number("step", 0x1p-9f)}, DType::kF32, Shape(Dims{}));
    const ValueId safe = node("safe", "Max", {level, least}, DType::kF32, of);
    const ValueId code = node("scale_code", "QuantizeLinear", {safe, global_}, DType::kE4M3FN, of,
                              {{"output_dtype", to(DType::kE4M3FN)}});
    return node("scale_value", "DequantizeLinear", {code, global_}, DType::kF32, of);
  }

  ValueId error_of(ValueId scale) {
    const Attributes along = {{"axis", places_.axis}, {"block_size", blocks_.block}};
    Attributes with_type = along;
    with_type["output_dtype"] = static_cast<std::int64_t>(blocks_.codes);
    const ValueId codes =
        node("codes_there", "QuantizeLinear", {x_, scale}, blocks_.codes, shape_, with_type);
    const ValueId image = node("image", "DequantizeLinear", {codes, scale}, DType::kF32, shape_, along);
    const ValueId error = node("error", "Sub", {x_, image}, DType::kF32, shape_);
    const ValueId square = node("square", "Mul", {error, error}, DType::kF32, shape_);
    return over_blocks(w_, square, shape_, places_, blocks_.block, false, prefix_ + "error_");
  }

  OpWriter& w_;
  ValueId x_;
  const Shape& shape_;
  ValueId global_;
  const BlockScales& blocks_;
  const Places& places_;
  std::string prefix_;
};

}  // namespace

BlockCodes write_block_quantize(OpWriter& w, ValueId x, const Shape& shape, ValueId global,
                                const BlockScales& blocks) {
  const Places p = places_of(shape, blocks);
  const ValueId maxima = over_blocks(w, x, shape, p, blocks.block, true, "");
  BlockCodes out{};
  if (blocks.fitted) {
    const ValueId best = ScaleChooser(w, x, shape, global, blocks, p).run(maxima);
    const auto type = static_cast<std::int64_t>(blocks.scales);
    out.scales = out.scale = best;
    if (blocks.scales == DType::kE8M0) {
      out.scales = out.scale = w.node("scale", "Cast", {best}, DType::kE8M0, p.of_scales,
                                      {{"to", type}, {"round_mode", std::string("nearest")}});
    } else if (blocks.scales == DType::kE4M3FN) {
      out.scales = w.node("scale_QuantizeLinear", "QuantizeLinear", {best, global}, DType::kE4M3FN,
                          p.of_scales, {{"output_dtype", type}});
      out.scale = w.node("scale_DequantizeLinear", "DequantizeLinear", {out.scales, global}, DType::kF32,
                         p.of_scales, {});
    }
  } else if (blocks.scales == DType::kE4M3FN) {
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
