#include "graphsurgeon/checkpoint/read_linear.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/numeric/checkpoint_pack.h"
#include "graphsurgeon/checkpoint/linear_parts.h"

namespace pare {
namespace {

using namespace linear;
using Method = QuantizationConfig::Method;

constexpr const char* kMarks[] = {"weight_packed", "qweight", "weight_scale", "weight_scale_inv"};
constexpr const char* kParts[] = {"weight",
                                  "weight_packed",
                                  "weight_scale",
                                  "weight_zero_point",
                                  "weight_shape",
                                  "weight_global_scale",
                                  "weight_g_idx",
                                  "weight_scale_2",
                                  "qweight",
                                  "weight_scale_inv",
                                  "qzeros",
                                  "scales",
                                  "g_idx",
                                  "input_scale",
                                  "input_scale_inv",
                                  "input_zero_point",
                                  "input_global_scale",
                                  "pre_quant_scale"};
// --- weights stored under their own name, one code an element: int-, float-, naive-quantized, mxfp8; FP8 and
// W8 of Model Optimizer; fp8
void read_plain(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args, bool numbers) {
  const Dims dims = parts.matrix("weight");
  layer.outs = dims[0];
  layer.ins = dims[1];
  const std::string type = parts.entry_of("weight").type;
  const char* scale = parts.has("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  if (type == name(DType::kE4M3FN)) {
    set_float_codes(layer, DType::kE4M3FN);
    if (parts.entry_of(scale).type == name(DType::kU8)) {
      take_power_scales(layer, parts, args.group, numbers);
    } else {
      take_float_scales(layer, parts, scale, args, numbers);
    }
  } else if (type == name(DType::kI8)) {
    if (args.active() && args.is_float)
      parts.bad("weight", "is int8, and by the config its codes are floats");
    const int width = args.active() ? args.bits : 8;
    set_integer_codes(layer, width, true, args.symmetric);
    take_float_scales(layer, parts, scale, args, numbers);
    if (!args.symmetric) {
      const Tensor zeros = parts.need("weight_zero_point", DType::kI8, parts.entry_of(scale).dims);
      if (numbers) layer.zero_points.assign(zeros.as<std::int8_t>(), zeros.as<std::int8_t>() + zeros.size());
    }
  } else {
    parts.bad("weight", "is " + type + ", and a scale stands beside it: codes are int8 or float8_e4m3fn");
  }
  if (numbers) take_bytes(layer, parts.get("weight"));
}

// --- compressed-tensors

void take_group_index(QuantizedLinear& layer, const Parts& parts, const char* part) {
  const Tensor index = parts.need(part, DType::kI32, {layer.ins});
  const auto* groups = index.as<std::int32_t>();
  const std::int64_t width = layer.weights.group > 0 ? layer.weights.group : layer.ins;
  bool plain = true, unset = true;
  for (std::int64_t c = 0; c < layer.ins; ++c) {
    plain = plain && groups[c] == c / width;
    unset = unset && groups[c] == -1;  // how compressed-tensors says "none"
  }
  if (plain || unset) return;
  for (std::int64_t c = 0; c < layer.ins; ++c)
    if (groups[c] < 0 || groups[c] >= column_groups(layer))
      parts.bad(part, fmt::format("has the group {}, and there are {}", groups[c], column_groups(layer)));
  layer.group_of.assign(groups, groups + layer.ins);
  layer.act_order = true;
}

void read_packed_integers(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args,
                          bool numbers) {
  const Tensor shape = parts.need("weight_shape", DType::kI64, {2});
  layer.outs = shape.as<std::int64_t>()[0];
  layer.ins = shape.as<std::int64_t>()[1];
  if (layer.outs < 1 || layer.ins < 1 || layer.outs > kMostSize || layer.ins > kMostSize)
    parts.bad("weight_shape", fmt::format("says {}x{}", layer.outs, layer.ins));
  set_integer_codes(layer, args.bits, true, args.symmetric);
  const Tensor words =
      parts.need("weight_packed", DType::kI32, {layer.outs, stream_words(layer.ins, args.bits)});
  take_float_scales(layer, parts, "weight_scale", args, numbers);
  const std::int64_t rows = row_groups(layer), groups = column_groups(layer);
  Tensor zeros;
  if (!args.symmetric)
    zeros = parts.need("weight_zero_point", DType::kI32, {stream_words(rows, args.bits), groups});
  if (parts.has("weight_g_idx")) take_group_index(layer, parts, "weight_g_idx");
  if (!numbers) return;
  layer.codes.resize(static_cast<std::size_t>(layer.outs * layer.ins));
  unpack_rows(args.bits, words.as<std::uint32_t>(), layer.outs, layer.ins, layer.codes.data(),
              1 << (args.bits - 1));
  if (args.symmetric) return;
  for (const std::uint8_t code : unpack_columns(args.bits, zeros.as<std::uint32_t>(), rows, groups))
    layer.zero_points.push_back(code_to_signed(code, args.bits));
}

void read_packed_floats(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args,
                        const char* part, bool numbers) {
  const Dims dims = parts.matrix(part);
  layer.outs = dims[0];
  layer.ins = 2 * dims[1];
  set_float_codes(layer, DType::kE2M1);
  const Tensor codes = parts.need(part, DType::kU8, dims);
  if (parts.has("weight_global_scale"))
    take_two_levels(layer, parts, args.group, "weight_global_scale", true, numbers);
  else if (parts.has("weight_scale_2"))
    take_two_levels(layer, parts, args.group, "weight_scale_2", false, numbers);
  else
    take_power_scales(layer, parts, args.group, numbers);
  if (numbers) take_nibbles(layer, codes);
}

void read_compressed_tensors(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args,
                             bool numbers) {
  if (!parts.has("weight_packed"))
    read_plain(layer, parts, args, numbers);
  else if (args.is_float)
    read_packed_floats(layer, parts, args, "weight_packed", numbers);
  else
    read_packed_integers(layer, parts, args, numbers);
}

// --- AutoAWQ and GPTQ: codes [ins, outs]

// [ins, outs] -> [outs, ins]
void take_turned(QuantizedLinear& layer, const std::vector<std::uint8_t>& codes) {
  layer.codes.resize(codes.size());
  transpose_bytes(codes.data(), layer.ins, layer.outs, layer.codes.data());
}

// Scales and zero points [groups, outs] -> [outs, groups].
void take_turned_scales(QuantizedLinear& layer, const Parts& parts, const std::vector<std::uint8_t>& zeros) {
  const std::vector<float> scales = floats_of(parts, "scales");
  const std::int64_t groups = column_groups(layer);
  layer.scales.resize(scales.size());
  layer.zero_points.resize(scales.size());
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t r = 0; r < layer.outs; ++r) {
      const auto to = static_cast<std::size_t>(r * groups + g),
                 from = static_cast<std::size_t>(g * layer.outs + r);
      layer.scales[to] = scales[from];
      layer.zero_points[to] = zeros[from];
    }
}

// Groups that the config asks for, of a layer whose sizes are known.
void set_groups(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args) {
  layer.weights.group = args.group;
  const std::int64_t groups = column_groups(layer);
  const Dims scales = {groups, layer.outs};
  const Dims& found = parts.entry_of("scales").dims;
  if (args.group > 0 && layer.ins % args.group != 0)
    parts.bad("scales",
              fmt::format("has groups of {}, which do not divide the {} inputs", args.group, layer.ins));
  if (found != scales)
    parts.bad("scales", fmt::format("is {}, and with groups of {} it is {}", to_string(found),
                                    args.group > 0 ? args.group : layer.ins, to_string(scales)));
  layer.weights.scales = float_type(parts, "scales");
}

void read_awq(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args, bool numbers) {
  const Dims dims = parts.matrix("qweight");
  layer.ins = dims[0];
  layer.outs = 8 * dims[1];
  set_integer_codes(layer, 4, args.symmetric, args.symmetric);
  set_groups(layer, parts, args);
  const Tensor words = parts.need("qweight", DType::kI32, dims);
  const Dims zero_dims = {column_groups(layer), dims[1]};
  const bool zeros_there = parts.has("qzeros") || !args.symmetric;
  const Tensor zeros = zeros_there ? parts.need("qzeros", DType::kI32, zero_dims) : Tensor();
  if (!numbers) return;
  std::vector<std::uint8_t> points(static_cast<std::size_t>(column_groups(layer) * layer.outs), 8);
  if (zeros_there) points = unpack_awq(zeros.as<std::uint32_t>(), zero_dims[0], layer.outs);
  take_turned(layer, unpack_awq(words.as<std::uint32_t>(), layer.ins, layer.outs));
  take_turned_scales(layer, parts, points);
  set_integer_codes(layer, 4, false, false);
  if (args.symmetric) to_signed(layer);
}

void read_gptq(QuantizedLinear& layer, const Parts& parts, const QuantizationConfig& config,
               const QuantizationArgs& args, bool numbers) {
  const Dims dims = parts.matrix("qweight");
  const std::int64_t bits_down = 32 * dims[0];
  layer.outs = dims[1];
  layer.ins = parts.has("g_idx") && parts.entry_of("g_idx").dims.size() == 1 ? parts.entry_of("g_idx").dims[0]
                                                                             : bits_down / args.bits;
  if (layer.ins < 1 || stream_words(layer.ins, args.bits) != dims[0])
    parts.bad("qweight", fmt::format("has {} words a column, which are no {} codes of {} bits", dims[0],
                                     layer.ins, args.bits));
  set_integer_codes(layer, args.bits, args.symmetric, args.symmetric);
  set_groups(layer, parts, args);
  const std::int64_t groups = column_groups(layer);
  const Tensor words = parts.need("qweight", DType::kI32, dims);
  const Tensor zeros = parts.need("qzeros", DType::kI32, {groups, stream_words(layer.outs, args.bits)});
  if (parts.has("g_idx")) take_group_index(layer, parts, "g_idx");
  if (!numbers) return;
  const std::vector<std::uint8_t> points =
      unpack_gptq_zeros(args.bits, config.gptq_v2 ? GptqVersion::kV2 : GptqVersion::kV1,
                        zeros.as<std::uint32_t>(), groups, layer.outs);
  take_turned(layer, unpack_columns(args.bits, words.as<std::uint32_t>(), layer.ins, layer.outs));
  take_turned_scales(layer, parts, points);
  set_integer_codes(layer, args.bits, false, false);
  // Version 1 stores z - 1 in the codes' bits: 2^bits is what its readers compute from the largest.
  const std::int32_t most = 1 << args.bits;
  const bool beyond =
      std::find(layer.zero_points.begin(), layer.zero_points.end(), most) != layer.zero_points.end();
  if (beyond && args.bits < 8) {
    layer.weights.codes = DType::kU8;
    layer.weights.bits = 8;
  } else if (args.symmetric) {
    to_signed(layer);
  }
}

// --- Model Optimizer

void read_model_optimizer(QuantizedLinear& layer, const Parts& parts, const QuantizationArgs& args,
                          bool numbers) {
  if (parts.has("svdquant_lora_a"))
    parts.refuse("a low-rank correction (SVDQuant) stands beside the weight, which is not read");
  if (parts.has("pre_quant_scale")) {
    layer.input_factors = true;
    if (numbers) layer.factors = floats_of(parts, "pre_quant_scale");
  }
  if (parts.entry_of("weight").type != name(DType::kU8)) {
    read_plain(layer, parts, args, numbers);
  } else if (args.is_float) {
    read_packed_floats(layer, parts, args, "weight", numbers);
  } else {
    if (args.bits != 4) parts.bad("weight", "is uint8, and by the config no codes of 4 bits");
    if (parts.has("weight_scale_2"))
      parts.refuse("INT4 weights below a second scale (W4A8_AWQ) are not read");
    const Dims dims = parts.matrix("weight");
    layer.outs = 2 * dims[0];
    layer.ins = dims[1];
    set_integer_codes(layer, 4, true, true);
    take_float_scales(layer, parts, "weight_scale", args, numbers);
    const Tensor bytes = parts.need("weight", DType::kU8, dims);
    if (numbers) {
      layer.codes = unpack_modelopt_int4(bytes.as<std::uint8_t>(), layer.outs, layer.ins);
      for (std::uint8_t& code : layer.codes)  // two's complement in four bits
        code = static_cast<std::uint8_t>(code >= 8 ? code - 16 : code);
    }
  }
  if (layer.input_factors && parts.entry_of("pre_quant_scale").dims != Dims{layer.ins})
    parts.bad("pre_quant_scale", fmt::format("is {}, and the layer has {} inputs",
                                             to_string(parts.entry_of("pre_quant_scale").dims), layer.ins));
}

}  // namespace

const char* quantized_part(const std::string& tensor) {
  const std::size_t dot = tensor.rfind('.');
  if (dot == std::string::npos) return nullptr;
  for (const char* mark : kMarks)
    if (tensor.compare(dot + 1, std::string::npos, mark) == 0) return mark;
  return nullptr;
}

bool is_part_of_linear(const std::string& last_name) {
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](const char* part) { return last_name == part; });
}

QuantizedLinear read_linear(const WeightStore& stored, const QuantizationConfig& config,
                            const std::string& module, bool numbers) {
  QuantizedLinear layer;
  layer.module = module;
  const Parts parts(stored, module);
  const QuantizationScheme* scheme = config.scheme_of(module);
  if (scheme == nullptr || !scheme->weights.active())
    throw make_error(ErrorCode::kBadFile, "its tensors are quantized, and no group of the config is for it")
        .at(parts.where())
        .hint(fmt::format("{}: targets, quantized_layers", config.where));
  const QuantizationArgs& args = scheme->weights;
  switch (config.method) {
    case Method::kCompressedTensors:
      read_compressed_tensors(layer, parts, args, numbers);
      break;
    case Method::kAwq:
      read_awq(layer, parts, args, numbers);
      break;
    case Method::kGptq:
      read_gptq(layer, parts, config, args, numbers);
      break;
    case Method::kModelOpt:
      read_model_optimizer(layer, parts, args, numbers);
      break;
    case Method::kFp8:
      read_plain(layer, parts, args, numbers);
      break;
    case Method::kNone:
      parts.refuse("its tensors are quantized, and config.json has no quantization_config");
  }
  read_inputs(layer, parts, scheme->inputs, numbers);
  if (numbers) check_linear(layer);
  return layer;
}

}  // namespace pare
