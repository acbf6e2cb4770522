#include "graphsurgeon/checkpoint/quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "graphsurgeon/checkpoint/linear_codes_simd.h"
#include "graphsurgeon/checkpoint/turned_globals.h"

namespace pare {
namespace {

constexpr const char* kDialects[] = {"compressed_tensors", "autoawq", "gptq", "gptq_v2", "modelopt", "gguf"};

bool is_signed(DType codes) { return codes == DType::kI8 || codes == DType::kI4 || codes == DType::kI2; }

DType unsigned_type(DType codes) {
  return codes == DType::kI8 ? DType::kU8 : codes == DType::kI4 ? DType::kU4 : DType::kU2;
}
DType signed_type(DType codes) {
  return codes == DType::kU8 ? DType::kI8 : codes == DType::kU4 ? DType::kI4 : DType::kI2;
}

LinearCodes codes_of(DType codes) {
  if (codes == DType::kE4M3FN) return LinearCodes::kE4M3;
  if (codes == DType::kE2M1) return LinearCodes::kE2M1;
  return is_signed(codes) ? LinearCodes::kSigned : LinearCodes::kUnsigned;
}

float step_of(const QuantizedLinear& layer, float scale) {
  if (!layer.weights.two_levels()) return scale;
  return layer.global_divides ? scale / layer.global : scale * layer.global;
}

std::int64_t divide_up(std::int64_t n, std::int64_t by) { return by <= 0 ? 1 : (n + by - 1) / by; }

}  // namespace

std::string to_string(const CodeFormat& format) {
  if (!format.active()) return "float";
  std::string text = is_integer(format.codes)
                         ? fmt::format("{}int{}", is_signed(format.codes) ? "" : "u", format.bits)
                         : std::string(name(format.codes));
  if (!format.symmetric) text += ", zero points";
  if (format.row_group > 1)
    text += fmt::format(", blocks of {}x{}", format.row_group, format.group);
  else if (format.group > 0)
    text += fmt::format(", groups of {}", format.group);
  else
    text += format.row_group == 0 ? ", per tensor" : ", per channel";
  text += fmt::format(", scales {}", name(format.scales));
  if (format.dynamic) text += ", dynamic";
  return text;
}

std::int64_t row_groups(const LinearFormat& layer) { return divide_up(layer.outs, layer.weights.row_group); }
std::int64_t column_groups(const LinearFormat& layer) { return divide_up(layer.ins, layer.weights.group); }

void check_linear(const QuantizedLinear& layer) {
  const auto bad = [&](const std::string& what) {
    throw make_error(ErrorCode::kBadFile, "{}", what).at(fmt::format("layer '{}'", layer.module));
  };
  const auto count = static_cast<std::size_t>(element_count({layer.outs, layer.ins}));
  const auto scales = static_cast<std::size_t>(element_count({row_groups(layer), column_groups(layer)}));
  if (layer.codes.size() != count)
    bad(fmt::format("there are {} codes for {}x{}", layer.codes.size(), layer.outs, layer.ins));
  if (layer.scales.size() != scales) bad(fmt::format("{} scales, not {}", layer.scales.size(), scales));
  if (layer.zero_points.size() != (layer.weights.symmetric ? 0 : scales))
    bad(fmt::format("{} zero points beside {} scales", layer.zero_points.size(), scales));
  if (layer.weights.two_levels() && !(std::isfinite(layer.global) && layer.global != 0))
    bad("the global scale is 0, NaN or infinite");
  std::int32_t largest_scale = 0;  // magnitudes have the order of their bits, NaN the largest
  for (const float scale : layer.scales)
    largest_scale = std::max(largest_scale, std::bit_cast<std::int32_t>(scale) & 0x7FFFFFFF);
  if (!std::isfinite(step_of(layer, std::bit_cast<float>(largest_scale)))) bad("a scale is NaN or infinite");
  if (is_integer(layer.weights.codes)) {
    const int bits = layer.weights.bits;
    if (bits < 2 || bits > 8) bad(fmt::format("integers of {} bits", bits));
    const int low = is_signed(layer.weights.codes) ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
    int least = 0, largest = 0;
    PARE_SIMD_PICK(linear_code_range)
    (layer.codes.data(), static_cast<std::int64_t>(layer.codes.size()), low < 0, &least, &largest);
    if (least < low || largest > high)
      bad(fmt::format("the code {} is outside of {} bits", least < low ? least : largest, bits));
    for (const std::int32_t zero : layer.zero_points)
      if (zero < low || zero > high) bad(fmt::format("the zero point {} is outside of {} bits", zero, bits));
  }
  if (layer.act_order != !layer.group_of.empty() ||
      (layer.act_order && layer.group_of.size() != static_cast<std::size_t>(layer.ins)))
    bad(fmt::format("{} group indices for {} inputs", layer.group_of.size(), layer.ins));
  for (const std::int32_t group : layer.group_of)
    if (group < 0 || group >= column_groups(layer)) bad(fmt::format("there is no group {}", group));
  if (layer.input_factors != !layer.factors.empty() ||
      (layer.input_factors && layer.factors.size() != static_cast<std::size_t>(layer.ins)))
    bad(fmt::format("{} factors for {} inputs", layer.factors.size(), layer.ins));
}

void dequantize_linear(const QuantizedLinear& layer, std::int64_t begin, std::int64_t end, float* to) {
  const std::int64_t groups = column_groups(layer);
  const std::int64_t width = layer.weights.group > 0 ? layer.weights.group : layer.ins;
  const std::int64_t tall = layer.weights.row_group > 0 ? layer.weights.row_group : layer.outs;
  const LinearCodes type = codes_of(layer.weights.codes);
  const auto values = PARE_SIMD_PICK(linear_values);
  std::vector<float> steps(static_cast<std::size_t>(groups)), zeros;
  if (!layer.zero_points.empty()) zeros.resize(steps.size());
  // Groups in another order: a row of whole numbers first, then each by the group of its column.
  const bool ordered = layer.group_of.empty();
  const float one = 1;
  for (std::int64_t row = begin; row < end; ++row) {
    const auto at = static_cast<std::size_t>(row / tall * groups);
    for (std::size_t g = 0; g < steps.size(); ++g) steps[g] = step_of(layer, layer.scales[at + g]);
    for (std::size_t g = 0; g < zeros.size(); ++g) zeros[g] = static_cast<float>(layer.zero_points[at + g]);
    const std::uint8_t* code = layer.codes.data() + row * layer.ins;
    float* out = to + (row - begin) * layer.ins;
    if (ordered) {
      values(type, code, layer.ins, width, steps.data(), zeros.empty() ? nullptr : zeros.data(), out);
      continue;
    }
    values(type, code, layer.ins, layer.ins, &one, nullptr, out);
    for (std::int64_t c = 0; c < layer.ins; ++c) {
      const auto g = static_cast<std::size_t>(layer.group_of[static_cast<std::size_t>(c)]);
      out[c] = (out[c] - (zeros.empty() ? 0.0f : zeros[g])) * steps[g];
    }
  }
}

void dequantize_linear(const QuantizedLinear& layer, float* to) {
  dequantize_linear(layer, 0, layer.outs, to);
}

void to_unsigned(QuantizedLinear& layer) {
  if (!is_signed(layer.weights.codes)) return;
  const int middle = 1 << (layer.weights.bits - 1);
  for (std::uint8_t& code : layer.codes)
    code = static_cast<std::uint8_t>(static_cast<std::int8_t>(code) + middle);
  if (layer.weights.symmetric) layer.zero_points.assign(layer.scales.size(), 0);
  for (std::int32_t& zero : layer.zero_points) zero += middle;
  layer.weights.symmetric = false;
  layer.weights.codes = unsigned_type(layer.weights.codes);
}

void to_signed(QuantizedLinear& layer) {
  if (!is_integer(layer.weights.codes) || is_signed(layer.weights.codes)) return;
  const int middle = 1 << (layer.weights.bits - 1);
  for (std::uint8_t& code : layer.codes) code = static_cast<std::uint8_t>(static_cast<int>(code) - middle);
  if (layer.zero_points.empty()) layer.zero_points.assign(layer.scales.size(), 0);
  for (std::int32_t& zero : layer.zero_points) zero -= middle;
  layer.weights.symmetric = std::all_of(layer.zero_points.begin(), layer.zero_points.end(),
                                        [](std::int32_t zero) { return zero == 0; });
  if (layer.weights.symmetric) layer.zero_points.clear();
  layer.weights.codes = signed_type(layer.weights.codes);
}

namespace {

constexpr int kNeighbours = 3;  // float32 numbers around 1 / global; the fitting one is next to it

// A divisor (factor) of which every scale makes the step that `global` makes; 0 where there is none.
float turned(float global, bool divides, const std::vector<float>& scales) {
  float candidate = 1 / global;
  for (int i = 0; i < kNeighbours; ++i) candidate = std::nextafter(candidate, 0.0f);
  for (int i = 0; i <= 2 * kNeighbours; ++i, candidate = std::nextafter(candidate, INFINITY)) {
    const bool same = std::all_of(scales.begin(), scales.end(), [&](float scale) {
      return divides ? scale / candidate == scale * global : scale * candidate == scale / global;
    });
    if (same) return candidate;
  }
  return 0;
}

// The scales without repetition: E4M3 numbers, of which there are few. (Others, that no file holds, all
// count.)
std::vector<float> distinct_levels(const std::vector<float>& scales) {
  std::vector<bool> seen(4096);  // by sign, exponent and three bits of the fraction
  std::vector<float> distinct;
  for (const float scale : scales) {
    const auto bits = std::bit_cast<std::uint32_t>(scale);
    const bool short_ = (bits & 0xFFFFFu) == 0;
    if (short_ && seen[bits >> 20]) continue;
    if (short_) seen[bits >> 20] = true;
    distinct.push_back(scale);
  }
  return distinct;
}

}  // namespace

bool turned_globals(const QuantizedLinear& layer, bool divides, GlobalScales& out) {
  out = {layer.global, layer.input_scale};
  if (!layer.weights.two_levels() || layer.global_divides == divides) return true;
  if (!layer.scales.empty()) {
    out.weight = turned(layer.global, divides, distinct_levels(layer.scales));
    if (out.weight == 0) return false;
  }
  if (layer.inputs.two_levels() && layer.input_scale != 0) {
    out.input = 1 / layer.input_scale;
    // A divisor of inputs means its inverse in float32; a factor means itself.
    if (divides && 1 / out.input != layer.input_scale) return false;
  }
  return true;
}

bool turn_global(QuantizedLinear& layer, bool divides) {
  GlobalScales turned;
  if (!turned_globals(layer, divides, turned)) return false;
  layer.global = turned.weight;
  layer.input_scale = turned.input;
  if (layer.weights.two_levels()) layer.global_divides = divides;
  return true;
}

float turnable_global(float global) {
  constexpr int kFarthest = 1 << 12;  // one in a few dozen fits
  // Significands of E4M3; powers of two change nothing.
  const std::vector<float> scales = {8, 9, 10, 11, 12, 13, 14, 15};
  float below = global, above = global;
  for (int i = 0; i < kFarthest; ++i) {
    if (turned(above, true, scales) != 0) return above;
    if (turned(below, true, scales) != 0) return below;
    above = std::nextafter(above, INFINITY);
    below = std::nextafter(below, 0.0f);
  }
  return global;
}

float turnable_input(float scale) {
  for (int i = 0; i < 4 && 1 / (1 / scale) != scale; ++i) scale = 1 / (1 / scale);
  return scale;
}

const char* name(Dialect dialect) { return kDialects[static_cast<int>(dialect)]; }

bool dialect_from_name(const std::string& text, Dialect& out) {
  for (int i = 0; i < 6; ++i)
    if (text == kDialects[i] || (text == "awq" && std::string(kDialects[i]) == "autoawq")) {
      out = static_cast<Dialect>(i);
      return true;
    }
  return false;
}

}  // namespace pare
