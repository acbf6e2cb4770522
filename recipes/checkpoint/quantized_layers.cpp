#include "recipes/checkpoint/quantized_layers.h"

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"
#include "quant/grid/tall_blocks.h"

namespace pare {
namespace {

int integer_bits(const quant::Format& format) {
  if (!is_integer(format.dtype)) return 0;
  return format.bits > 0 ? format.bits : bits(format.dtype);
}

bool is_signed(DType codes) { return codes == DType::kI8 || codes == DType::kI4 || codes == DType::kI2; }

// Codes in the low bits of bytes -> numbers.
void extend_signs(const CodeFormat& format, std::vector<std::uint8_t>& codes) {
  if (!is_signed(format.codes)) return;
  const int unused = 8 - bits(format.codes);
  for (std::uint8_t& code : codes)
    code = static_cast<std::uint8_t>(static_cast<std::int8_t>(code << unused) >> unused);
}

std::vector<std::uint8_t> unpacked(const Tensor& tensor) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(tensor.size()));
  unpack_codes(bits(tensor.dtype()), tensor.data(), codes.data(), tensor.size());
  return codes;
}

// [rows, cols] of a tensor that holds them in this order, or the other way round.
template <typename T>
std::vector<T> in_order(const std::vector<T>& values, std::int64_t rows, std::int64_t cols, bool turned) {
  if (!turned || rows == 1 || cols == 1) return values;
  std::vector<T> out(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      out[static_cast<std::size_t>(r * cols + c)] = values[static_cast<std::size_t>(c * rows + r)];
  return out;
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  decode(tensor.dtype(), tensor.data(), values.data(), tensor.size());
  return values;
}

}  // namespace

CodeFormat weight_code_format(const quant::Format& format) {
  CodeFormat code;
  code.codes = format.dtype;
  code.bits = integer_bits(format);
  code.symmetric = format.symmetric;
  code.scales = format.scales;
  code.row_group = format.granularity == quant::Granularity::kTensor ? 0 : format.rows;
  code.group = format.granularity == quant::Granularity::kBlock ? format.block : 0;
  return code;
}

CodeFormat input_code_format(const quant::Format& format) {
  CodeFormat code;
  if (!format.active()) return code;
  code = weight_code_format(format);
  code.row_group = format.granularity == quant::Granularity::kTensor ? 0 : 1;
  code.dynamic = format.dynamic;
  return code;
}

quant::Format fit_to_dialect(Dialect dialect, DType model, quant::Format format) {
  if (!format.active() || format.scales == DType::kE4M3FN || format.scales == DType::kE8M0) return format;
  switch (dialect) {
    case Dialect::kAutoAwq:
    case Dialect::kGptq:
    case Dialect::kGptqV2:
    case Dialect::kGguf:
      format.scales = DType::kF16;
      break;
    case Dialect::kCompressedTensors:
      format.scales = model == DType::kBF16 || model == DType::kF16 ? model : DType::kF32;
      break;
    case Dialect::kModelOpt:
      format.positive = true;
      break;
  }
  return format;
}

quant::Spec fit_to_dialect(Dialect dialect, DType model, quant::Spec spec) {
  spec.weights = fit_to_dialect(dialect, model, spec.weights);
  for (quant::Rule& rule : spec.rules)
    if (rule.weights) rule.weights = fit_to_dialect(dialect, model, *rule.weights);
  return spec;
}

LinearFormat linear_format(const LinearModule& module, const quant::Format& weights,
                           const quant::Format& inputs) {
  LinearFormat layer;
  layer.module = module.module;
  layer.outs = module.outs;
  layer.ins = module.ins;
  layer.in_first = module.in_first;
  layer.weights = weight_code_format(weights);
  layer.inputs = input_code_format(inputs);
  return layer;
}

void set_codes(QuantizedLinear& layer, const quant::Grid& grid, std::vector<std::uint8_t> codes,
               bool numbers) {
  quant::GridFormat format;
  format.codes = layer.weights.codes;
  format.scales = layer.weights.scales;
  layer.scales = quant::written_scales(format, grid);
  layer.zero_points = grid.zero_points;
  layer.global = grid.global;
  layer.global_divides = false;
  layer.codes = std::move(codes);
  if (!numbers) extend_signs(layer.weights, layer.codes);
}

void set_codes(QuantizedLinear& layer, const quant::WeightSite& site, const quant::WeightPlan& plan) {
  const Dims& dims = plan.codes.dims();
  PARE_ASSERT(dims.size() == 2 && element_count(dims) == layer.outs * layer.ins);
  const bool turned = site.axis == 1;  // [ins, outs]
  layer.codes = in_order(unpacked(plan.codes), layer.outs, layer.ins, turned);
  extend_signs(layer.weights, layer.codes);
  const std::int64_t tall = layer.weights.row_group, groups = column_groups(layer);
  const std::int64_t rows = tall > 1 ? layer.outs : row_groups(layer);
  layer.scales = in_order(floats_of(plan.scales), rows, groups, turned);
  if (tall > 1) layer.scales = quant::once_a_block(layer.scales, rows, groups, tall);
  layer.zero_points.clear();
  if (!plan.zero_points.empty()) {
    const std::vector<float> zeros = floats_of(plan.zero_points);
    const std::vector<float> ordered = in_order(zeros, rows, groups, turned);
    layer.zero_points.assign(ordered.begin(), ordered.end());
  }
  layer.global = plan.global.empty() ? 1.0f : *plan.global.as<float>();
  layer.global_divides = false;
}

}  // namespace pare
