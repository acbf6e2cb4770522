#include "graphsurgeon/checkpoint/linear_parts.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"

namespace pare::linear {

using Strategy = QuantizationArgs::Strategy;

Tensor Parts::need(const char* part, DType type, const Dims& dims) const {
  const WeightStore::Entry& entry = entry_of(part);
  if (entry.type != name(type) || entry.dims != dims)
    bad(part, fmt::format("is {} {}, and beside the others it is {} {}", entry.type, to_string(entry.dims),
                          name(type), to_string(dims)));
  return stored_.get(entry.name);
}

const WeightStore::Entry& Parts::entry_of(const char* part) const {
  const WeightStore::Entry* entry = find(part);
  if (entry == nullptr)
    throw make_error(ErrorCode::kBadFile, "there is no tensor '{}.{}'", module_, part)
        .at(where())
        .hint("the module's other tensors say that it is quantized; was the checkpoint saved whole?");
  return *entry;
}

Dims Parts::matrix(const char* part) const {
  const WeightStore::Entry& entry = entry_of(part);
  if (entry.dims.size() != 2 || entry.dims[0] < 1 || entry.dims[1] < 1 || entry.dims[0] > kMostSize ||
      entry.dims[1] > kMostSize)
    bad(part, "is " + to_string(entry.dims) + ", which is no matrix that is read");
  return entry.dims;
}

void Parts::bad(const char* part, const std::string& what) const {
  throw make_error(ErrorCode::kBadFile, "the tensor '{}.{}' {}", module_, part, what)
      .at(where())
      .hint("download the checkpoint again, or have the tool that quantized it write it again");
}

void Parts::refuse(const std::string& what) const {
  throw make_error(ErrorCode::kUnsupported, "{}", what)
      .at(where())
      .hint("give the float checkpoint, which pare quantizes itself");
}

std::string Parts::where() const { return fmt::format("layer '{}'", module_); }

std::vector<float> floats_of(const Parts& parts, const char* part) {
  const Tensor tensor = parts.get(part);
  if (!is_float(tensor.dtype()) || bits(tensor.dtype()) < 16 || bits(tensor.dtype()) > 32)
    parts.bad(part, fmt::format("is {}, which is no type of scales", name(tensor.dtype())));
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  decode(tensor.dtype(), tensor.data(), values.data(), tensor.size());
  return values;
}

float number_of(const Parts& parts, const char* part) {
  if (element_count(parts.entry_of(part).dims) != 1)
    parts.bad(part, "is " + to_string(parts.entry_of(part).dims) + ", not one number");
  const float value = floats_of(parts, part)[0];
  if (!std::isfinite(value)) parts.bad(part, "is NaN or infinite");
  return value;
}

DType float_type(const Parts& parts, const char* part) {
  DType type = DType::kUndefined;
  if (!dtype_from_name(parts.entry_of(part).type, type) || !is_float(type) || bits(type) < 16 ||
      bits(type) > 32)
    parts.bad(part, "is " + parts.entry_of(part).type + ", which is no type of scales");
  return type;
}

// --- inputs

void read_inputs(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args, bool numbers) {
  if (!args.active()) return;
  CodeFormat& x = layer.inputs;
  x.bits = args.bits;
  if (args.is_float)
    x.codes = args.bits == 4 ? DType::kE2M1 : DType::kE4M3FN;
  else if (args.bits == 8 || args.bits == 4)
    x.codes = args.bits == 8 ? DType::kI8 : DType::kI4;
  else
    parts.refuse(fmt::format("inputs of {} bits are not read", args.bits));
  x.symmetric = args.symmetric;
  x.row_group = 1;
  if (args.two_levels) {
    x.scales = DType::kE4M3FN;
    x.group = args.group > 0 ? args.group : 16;
    // The global scale; the block scales below it are always made at run time.
    const char* part = parts.has("input_global_scale") ? "input_global_scale" : "input_scale";
    if (numbers) layer.input_scale = number_of(parts, part);
    if (numbers && !(layer.input_scale > 0)) parts.bad(part, "is not above 0");
    return;
  }
  if (args.power_scales) {
    x.scales = DType::kE8M0;
    x.group = args.group > 0 ? args.group : 32;
    x.dynamic = true;
    return;
  }
  x.dynamic = args.dynamic;
  const Strategy strategy = args.strategy != Strategy::kUnset ? args.strategy
                            : args.dynamic                    ? Strategy::kToken
                                                              : Strategy::kTensor;
  if (strategy == Strategy::kGroup && args.dynamic) {
    x.group = args.group;
  } else if (strategy == Strategy::kTensor) {
    x.row_group = 0;
  } else if (strategy != Strategy::kToken || !args.dynamic) {
    parts.refuse(
        "inputs are quantized in a way that is not read: read are one static scale, and dynamic ones "
        "for the tensor, a token or a group");
  }
  if (x.dynamic) return;
  const char* part = parts.has("input_scale_inv") ? "input_scale_inv" : "input_scale";
  parts.entry_of(part);
  if (!numbers) return;
  layer.input_scale = number_of(parts, part);
  if (!(layer.input_scale > 0)) parts.bad(part, "is not above 0");
  if (parts.has("input_zero_point")) {
    const Tensor zero = parts.get("input_zero_point");
    if (zero.size() != 1) parts.bad("input_zero_point", "is not one number");
    if (is_integer(zero.dtype())) layer.input_zero = static_cast<std::int32_t>(zero.to_ints()[0]);
    if (layer.input_zero < -(1 << (x.bits - 1)) || layer.input_zero >= 1 << (x.bits - 1))
      parts.bad("input_zero_point", fmt::format("is {}", layer.input_zero));
    if (layer.input_zero != 0) x.symmetric = false;
  }
}

// --- codes and scales

void take_bytes(QuantizedLinear& layer, const Tensor& tensor) {
  const auto* bytes = tensor.as<std::uint8_t>();
  layer.codes.assign(bytes, bytes + tensor.size());
}

void take_nibbles(QuantizedLinear& layer, const Tensor& tensor) {
  layer.codes.resize(static_cast<std::size_t>(layer.outs * layer.ins));
  unpack_codes(4, tensor.data(), layer.codes.data(), 2 * tensor.size());
}

namespace {

std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// Which weights share a scale, from the sizes of the scales and, where these leave a choice, the config.
void place_scales(QuantizedLinear& layer, const Parts& parts, const char* part,
                  const QuantizationArgs& args) {
  Dims dims = parts.entry_of(part).dims;
  if (dims.size() == 4 && dims[1] == 1 && dims[3] == 1)
    dims = {dims[0], dims[2]};  // Model Optimizer's blocks
  CodeFormat& w = layer.weights;
  const auto wrong = [&](const std::string& wanted) {
    parts.bad(part, fmt::format("is {}, and for a weight of {}x{} it is {}",
                                to_string(parts.entry_of(part).dims), layer.outs, layer.ins, wanted));
  };
  if (args.strategy == Strategy::kBlock) {
    w.row_group = args.block_rows;
    w.group = args.block_columns;
    const Dims blocks = {divide_up(layer.outs, w.row_group), divide_up(layer.ins, w.group)};
    if (dims != blocks) wrong(to_string(blocks));
    return;
  }
  if (args.strategy == Strategy::kGroup && args.group > 0) {
    if (layer.ins % args.group != 0)
      parts.bad(part,
                fmt::format("has groups of {}, which do not divide the {} inputs", args.group, layer.ins));
    w.group = args.group;
    const Dims groups = {layer.outs, layer.ins / args.group};
    if (dims != groups && !(groups[1] == 1 && dims == Dims{layer.outs})) wrong(to_string(groups));
    return;
  }
  if (element_count(dims) == 1 && (args.strategy != Strategy::kChannel || layer.outs == 1)) {
    w.row_group = 0;
    return;
  }
  if (dims == Dims{layer.outs} || dims == Dims{layer.outs, 1}) return;  // a scale a row
  if (args.strategy != Strategy::kChannel && args.strategy != Strategy::kTensor && dims.size() == 2 &&
      dims[0] == layer.outs && dims[1] > 1 && layer.ins % dims[1] == 0) {
    w.group = layer.ins / dims[1];  // not said, but there is one that fits
    return;
  }
  wrong(fmt::format("[1], [{}], [{},1] or a row of groups", layer.outs, layer.outs));
}

}  // namespace

void take_float_scales(QuantizedLinear& layer, const Parts& parts, const char* part,
                       const QuantizationArgs& args, bool numbers) {
  layer.weights.scales = float_type(parts, part);
  place_scales(layer, parts, part, args);
  if (numbers) layer.scales = floats_of(parts, part);
}

void take_power_scales(QuantizedLinear& layer, const Parts& parts, std::int64_t group, bool numbers) {
  CodeFormat& w = layer.weights;
  w.scales = DType::kE8M0;
  w.group = group > 0 ? group : 32;
  if (layer.ins % w.group != 0)
    parts.bad("weight_scale",
              fmt::format("has blocks of {}, which do not divide the {} inputs", w.group, layer.ins));
  const Tensor bytes = parts.need("weight_scale", DType::kU8, {layer.outs, layer.ins / w.group});
  if (!numbers) return;
  layer.scales.resize(static_cast<std::size_t>(bytes.size()));
  decode(DType::kE8M0, bytes.data(), layer.scales.data(), bytes.size());
}

void take_two_levels(QuantizedLinear& layer, const Parts& parts, std::int64_t group, const char* global,
                     bool divides, bool numbers) {
  CodeFormat& w = layer.weights;
  w.scales = DType::kE4M3FN;
  w.group = group > 0 ? group : 16;
  if (layer.ins % w.group != 0)
    parts.bad("weight_scale",
              fmt::format("has blocks of {}, which do not divide the {} inputs", w.group, layer.ins));
  const Tensor bytes = parts.need("weight_scale", DType::kE4M3FN, {layer.outs, layer.ins / w.group});
  layer.global_divides = divides;
  parts.entry_of(global);
  if (!numbers) return;
  layer.scales.resize(static_cast<std::size_t>(bytes.size()));
  decode(DType::kE4M3FN, bytes.data(), layer.scales.data(), bytes.size());
  layer.global = number_of(parts, global);
}

void set_float_codes(QuantizedLinear& layer, DType codes) {
  layer.weights.codes = codes;
  layer.weights.bits = bits(codes);
}

void set_integer_codes(QuantizedLinear& layer, int width, bool with_sign, bool symmetric) {
  CodeFormat& w = layer.weights;
  w.bits = width;
  w.symmetric = symmetric;
  if (width > 4)
    w.codes = with_sign ? DType::kI8 : DType::kU8;
  else if (width > 2)
    w.codes = with_sign ? DType::kI4 : DType::kU4;
  else
    w.codes = with_sign ? DType::kI2 : DType::kU2;
}

}  // namespace pare::linear
