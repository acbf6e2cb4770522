#include "engine/ops/integer/quantize_linear.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare::quantize_linear {
namespace {

bool is_code_type(DType type) {
  const FormatInfo* info = find_format(type);
  if (info == nullptr || info->encode == nullptr || info->bits > 16) return false;
  return type != DType::kF16 && type != DType::kBF16 && type != DType::kE8M0;
}

bool small_integer(DType type) { return is_integer(type) && bits(type) <= 16; }

}  // namespace

DType code_type(const OpCall& call, Direction direction) {
  if (direction == Direction::kDequantize) return call.in[0].dtype;
  if (direction == Direction::kQuantize) return call.out[0].dtype;
  return static_cast<DType>(call.node->attr("code_dtype", static_cast<std::int64_t>(DType::kU8)));
}

std::string why_not(const OpCall& call, Direction direction) {
  const bool from_float = direction != Direction::kDequantize, to_float = direction != Direction::kQuantize;
  if (from_float && call.in[0].dtype != DType::kF32) return "x is not float32";
  if (to_float && call.out[0].dtype != DType::kF32) return "y is not float32";
  if (call.input(1).dtype != DType::kF32) return "the scale is not float32";
  const DType code = code_type(call, direction);
  if (!is_code_type(code) && !(direction == Direction::kDequantize && code == DType::kI32))
    return fmt::format("codes of type {} are not quantized", name(code));
  if (call.node->attr("block_size", std::int64_t{0}) < 0) return "block_size is negative";
  const auto precision = call.node->attr("precision", std::int64_t{0});
  if (precision != 0 && precision != static_cast<std::int64_t>(DType::kF32))
    return "the precision is not float32";
  if (call.has(2) && call.input(2).dtype != code) return "the zero point is not of the type of the codes";
  return "";
}

Parameters parameters(const OpCall& call, Direction direction) {
  Parameters p;
  const Dims& dims = call.in[0].dims;
  const TensorView& scale = call.input(1);
  const std::int64_t axis = call.node->attr("axis", std::int64_t{1});
  const std::int64_t block = call.node->attr("block_size", std::int64_t{0});
  if (block > 0)
    p.layout = ScaleLayout::blocked(dims, axis, block);
  else if (scale.dims.empty() || scale.size() == 1)
    p.layout = ScaleLayout::per_tensor(call.in[0].size());
  else
    p.layout = ScaleLayout::per_channel(dims, axis);
  p.target.type = code_type(call, direction);
  p.target.saturate = call.node->attr("saturate", std::int64_t{1}) != 0;
  p.scales = scale.as<float>();
  const TensorView& zero = call.input(2);
  if (!zero.present()) return p;
  const auto n = static_cast<std::size_t>(zero.size());
  if (zero.dtype == DType::kI32) {
    p.zero_points.assign(zero.as<std::int32_t>(), zero.as<std::int32_t>() + n);
  } else {
    std::vector<float> values(n);
    format_info(zero.dtype).decode(zero.data, values.data(), zero.size());
    p.zero_points.resize(n);
    // Of a floating type anything but 0 is refused below, whatever it becomes here.
    std::transform(values.begin(), values.end(), p.zero_points.begin(), [](float v) {
      return v == 0 ? 0 : v > -65536 && v < 65536 ? static_cast<std::int32_t>(v) : 1;
    });
  }
  if (!small_integer(zero.dtype)) {
    if (std::any_of(p.zero_points.begin(), p.zero_points.end(), [](std::int32_t z) { return z != 0; }))
      fail(ErrorCode::kUnsupported, "a zero point of type {} that is not 0", name(zero.dtype));
    p.zero_points.clear();
  }
  return p;
}

}  // namespace pare::quantize_linear
