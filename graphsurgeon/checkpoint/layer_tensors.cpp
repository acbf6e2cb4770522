#include "graphsurgeon/checkpoint/layer_tensors.h"

#include "engine/base/error.h"
#include "engine/numeric/checkpoint_pack.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

bool is_signed(DType codes) { return codes == DType::kI8 || codes == DType::kI4 || codes == DType::kI2; }

// Values that `type` holds exactly.
Tensor exact(DType type, const Dims& dims, const std::vector<float>& values, const std::string& module) {
  if (type == DType::kF32) return Tensor::from<float>(type, dims, values);
  const FormatInfo& info = format_info(type);
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * info.bits / 8));
  std::vector<float> back(values.size());
  encode(type, values.data(), bytes.data(), n);
  decode(type, bytes.data(), back.data(), n);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (back[i] != values[i])
      throw make_error(ErrorCode::kUnsupported, "the scale {} is not exact in {}", values[i], name(type))
          .at(fmt::format("layer '{}'", module))
          .hint("the scales must be chosen for the format that they are written in");
  return Tensor::copy_of(type == DType::kE8M0 ? DType::kU8 : type, dims, bytes.data(), bytes.size());
}

}  // namespace

void LayerTensors::add_codes(const char* suffix, DType dtype) {
  const Dims dims = {layer_.outs, layer_.ins};
  add(suffix, dtype, dims,
      [&] { return Tensor::copy_of(dtype, dims, layer_.codes.data(), layer_.codes.size()); });
}

void LayerTensors::add_stream(const char* suffix) {
  const int width = layer_.weights.bits;
  const Dims dims = {layer_.outs, stream_words(layer_.ins, width)};
  add(suffix, DType::kI32, dims, [&] {
    Tensor words = Tensor::allocate(DType::kI32, dims);
    const int middle = is_signed(layer_.weights.codes) ? 1 << (width - 1) : 0;
    pack_rows(width, layer_.codes.data(), layer_.outs, layer_.ins, words.mut<std::uint32_t>(),
              static_cast<std::uint8_t>(middle));
    return words;
  });
}

void LayerTensors::add_fp4(const char* suffix) {
  const Dims dims = {layer_.outs, layer_.ins / 2};
  add(suffix, DType::kU8, dims, [&] {
    Tensor packed = Tensor::allocate(DType::kU8, dims);
    pack_codes(4, layer_.codes.data(), packed.mut<std::uint8_t>(), layer_.outs * layer_.ins);
    return packed;
  });
}

void LayerTensors::add_scales(const char* suffix, Dims dims, bool groups_first) {
  const DType type = layer_.weights.scales;
  add(suffix, type == DType::kE8M0 ? DType::kU8 : type, dims, [&] {
    return exact(
        type, dims,
        groups_first ? transposed(layer_.scales, row_groups(layer_), column_groups(layer_)) : layer_.scales,
        layer_.module);
  });
}

void LayerTensors::add_floats(const char* suffix, Dims dims, const std::vector<float>& values) {
  add(suffix, DType::kF32, dims, [&] { return Tensor::from<float>(DType::kF32, dims, values); });
}

const QuantizedLinear& signed_form(const QuantizedLinear& given, QuantizedLinear& changed) {
  if (is_signed(given.weights.codes)) return given;
  changed = given;
  to_signed(changed);
  return changed;
}

std::vector<std::uint8_t> zero_codes(const QuantizedLinear& layer) {
  const int middle = 1 << (layer.weights.bits - 1), add = is_signed(layer.weights.codes) ? middle : 0;
  std::vector<std::uint8_t> zeros(layer.scales.size(), static_cast<std::uint8_t>(add));
  for (std::size_t i = 0; i < layer.zero_points.size(); ++i)
    zeros[i] = static_cast<std::uint8_t>(layer.zero_points[i] + add);
  return zeros;
}

std::vector<std::uint8_t> unsigned_codes(const QuantizedLinear& layer) {
  if (!is_signed(layer.weights.codes)) return layer.codes;
  const unsigned middle = 1u << (layer.weights.bits - 1), mask = 2 * middle - 1;
  std::vector<std::uint8_t> codes(layer.codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>((layer.codes[i] ^ middle) & mask);
  return codes;
}

std::string exact_pattern(const std::string& module) {
  std::string text = "^";
  for (const char c : module) text += c == '.' ? std::string("\\.") : std::string(1, c);
  return text + "$";
}

}  // namespace pare
