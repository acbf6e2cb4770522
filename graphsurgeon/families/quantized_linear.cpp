// Linear layers whose weights are codes, as operators: DequantizeLinear of low-bit constants [ins, outs], as
// quantizers leave them (quant/apply.cpp), and what the checkpoint says of the inputs in front of the
// product.
//
//   scales         float32 (bfloat16 and float16 widened), E8M0, or E4M3 below a float32: DequantizeLinear of
//                  the scales, or Cast and Div where the float32 divides and no factor gives the same steps
//   blocks         of RxC weights repeat their scales down the R outputs
//   group order    the input is gathered into the order of the groups (act order of GPTQ); groups of uneven
//                  sizes make a float32 constant
//   inputs         static: QuantizeLinear, DequantizeLinear; a token, a tensor, a group: the scale is made by
//                  Abs, ReduceMax, Div, Max; blocks below a scale: engine/ir/block_scales.h
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/base/error.h"
#include "engine/ir/block_scales.h"
#include "engine/ir/token_scales.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/families/builder.h"

namespace pare {
namespace {

// One code a byte into a tensor of their type, packed as tensors are.
Tensor packed(DType type, Dims dims, const std::vector<std::uint8_t>& codes) {
  Tensor tensor = Tensor::allocate(type, std::move(dims));
  auto* out = tensor.mut<std::uint8_t>();
  const int width = bits(type), each = 8 / width;
  if (each == 1) {
    std::memcpy(out, codes.data(), codes.size());
    return tensor;
  }
  std::memset(out, 0, static_cast<std::size_t>(tensor.bytes()));
  const unsigned mask = (1u << width) - 1;
  for (std::size_t i = 0; i < codes.size(); ++i)
    out[i / static_cast<std::size_t>(each)] |= static_cast<std::uint8_t>(
        (codes[i] & mask) << (static_cast<std::size_t>(width) * (i % static_cast<std::size_t>(each))));
  return tensor;
}

// [outs, ins] -> [ins, outs], inputs in the order of `from`.
std::vector<std::uint8_t> turned_codes(const QuantizedLinear& layer, const std::vector<std::int64_t>& from) {
  std::vector<std::uint8_t> out(layer.codes.size());
  constexpr std::int64_t kStep = 64;  // blocks that fit the cache
  for (std::int64_t c = 0; c < layer.ins; c += kStep)
    for (std::int64_t r = 0; r < layer.outs; r += kStep)
      for (std::int64_t j = r; j < std::min(r + kStep, layer.outs); ++j)
        for (std::int64_t i = c; i < std::min(c + kStep, layer.ins); ++i)
          out[static_cast<std::size_t>(i * layer.outs + j)] = layer.codes[static_cast<std::size_t>(
              j * layer.ins + (from.empty() ? i : from[static_cast<std::size_t>(i)]))];
  return out;
}

// values [row groups, groups] of every output: [groups, outs]; one of each alone where there is one group.
template <typename T>
std::vector<T> by_output(const QuantizedLinear& layer, const std::vector<T>& values) {
  const std::int64_t groups = column_groups(layer), tall = layer.weights.row_group;
  if (tall == 0 && groups == 1) return values;
  std::vector<T> out(static_cast<std::size_t>(groups * layer.outs));
  for (std::int64_t r = 0; r < layer.outs; ++r)
    for (std::int64_t g = 0; g < groups; ++g)
      out[static_cast<std::size_t>(g * layer.outs + r)] =
          values[static_cast<std::size_t>((tall == 0 ? 0 : r / tall) * groups + g)];
  return out;
}

Dims scale_dims(const QuantizedLinear& layer) {
  if (layer.weights.group > 0) return {column_groups(layer), layer.outs};
  return layer.weights.row_group == 0 ? Dims{} : Dims{layer.outs};
}

Attributes dequantize_attributes(const QuantizedLinear& layer) {
  if (layer.weights.group > 0) return {{"axis", std::int64_t{0}}, {"block_size", layer.weights.group}};
  if (layer.weights.row_group == 0) return {};
  return {{"axis", std::int64_t{1}}};
}

// Inputs in the order of their groups. {}: as they are. `even` is false when no order gives groups of the
// stated size.
std::vector<std::int64_t> group_order(const QuantizedLinear& layer, bool& even) {
  even = true;
  if (layer.group_of.empty()) return {};
  std::vector<std::int64_t> order(static_cast<std::size_t>(layer.ins));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return layer.group_of[static_cast<std::size_t>(a)] < layer.group_of[static_cast<std::size_t>(b)];
  });
  for (std::size_t i = 0; i < order.size(); ++i)
    even = even && layer.group_of[static_cast<std::size_t>(order[i])] ==
                       static_cast<std::int64_t>(i) / layer.weights.group;
  return order;
}

void refuse_nan_codes(const QuantizedLinear& layer, const std::string& name, const std::string& where) {
  if (layer.weights.codes != DType::kE4M3FN) return;
  const auto nan = std::count_if(layer.codes.begin(), layer.codes.end(),
                                 [](std::uint8_t code) { return (code & 0x7f) == 0x7f; });
  if (nan > 0)
    throw make_error(ErrorCode::kBadFile, "the weight '{}' has {} NaN of {}", name, nan, layer.codes.size())
        .at(where)
        .hint("the checkpoint is damaged; `pare inspect MODEL --verify-data` lists all such weights");
}

// Where block scales of inputs are written.
class InputWriter final : public OpWriter {
 public:
  InputWriter(NetBuilder& net, std::string base) : net_(net), base_(std::move(base)) {}
  ValueId node(const char* what, const char* op, std::vector<ValueId> in, DType, const Shape&,
               const Attributes& attrs) override {
    return net_.op(op, in, attrs, fmt::format("{}.input_{}", base_, what));
  }
  ValueId constant(const char* what, Tensor tensor) override {
    return net_.constant(fmt::format("{}.input_{}", base_, what), std::move(tensor));
  }

 private:
  NetBuilder& net_;
  std::string base_;
};

float largest_of(const CodeFormat& format) {
  return is_integer(format.codes) ? static_cast<float>((1 << (format.bits - 1)) - 1)
                                  : static_cast<float>(format_info(format.codes).largest);
}

Tensor zero_of(DType type, std::int32_t value) {
  std::vector<std::uint8_t> codes = {static_cast<std::uint8_t>(value)};
  return packed(type, {}, codes);
}

}  // namespace

// The scale input of DequantizeLinear.
ValueId NetBuilder::quantized_steps(const QuantizedLinear& layer, const std::string& name) {
  const std::vector<float> scales = by_output(layer, layer.scales);
  const Dims dims = scale_dims(layer);
  const DType type = layer.weights.scales;
  if (type != DType::kE8M0 && type != DType::kE4M3FN)
    return constant(name + "_scale", Tensor::from(DType::kF32, dims, scales));
  Tensor codes = Tensor::allocate(type, dims);
  encode(type, scales.data(), codes.mut<std::uint8_t>(), codes.size());
  const ValueId stored = constant(name + "_scale", std::move(codes));
  if (type == DType::kE8M0) return stored;
  QuantizedLinear levels;  // the scales alone
  levels.weights = layer.weights;
  levels.scales = layer.scales;
  levels.global = layer.global;
  levels.global_divides = layer.global_divides;
  const bool turned = turn_global(levels, false);
  const ValueId global = constant(name + "_global_scale", Tensor::scalar(levels.global));
  if (turned) return op("DequantizeLinear", {stored, global}, {}, name + "_scale_DequantizeLinear");
  const ValueId wide =
      op("Cast", {stored}, {{"to", static_cast<std::int64_t>(DType::kF32)}}, name + "_scale_f32");
  return op("Div", {wide, global}, {}, name + "_scale_steps");
}

// [ins, outs], inputs in the order of their groups.
ValueId NetBuilder::quantized_matrix(const QuantizedLinear& layer, const std::string& name) {
  refuse_nan_codes(layer, name, config_.where);
  bool even = true;
  const std::vector<std::int64_t> order = group_order(layer, even);
  if (!even) {
    std::vector<float> row(static_cast<std::size_t>(layer.ins));
    Tensor values = Tensor::allocate(DType::kF32, {layer.ins, layer.outs});
    for (std::int64_t r = 0; r < layer.outs; ++r) {
      dequantize_linear(layer, r, r + 1, row.data());
      for (std::int64_t c = 0; c < layer.ins; ++c)
        values.mut<float>()[c * layer.outs + r] = row[static_cast<std::size_t>(c)];
    }
    return constant(name, std::move(values));
  }
  const DType type = layer.weights.codes;
  std::vector<ValueId> in = {
      constant(name + "_quantized", packed(type, {layer.ins, layer.outs}, turned_codes(layer, order))),
      quantized_steps(layer, name)};
  if (!layer.zero_points.empty()) {
    const std::vector<std::int32_t> zeros = by_output(layer, layer.zero_points);
    in.push_back(
        constant(name + "_zero_point",
                 packed(type, scale_dims(layer), std::vector<std::uint8_t>(zeros.begin(), zeros.end()))));
  } else if (layer.weights.group == 0 && bits(type) >= 8) {
    const Dims dims = scale_dims(layer);
    in.push_back(constant(
        name + "_zero_point",
        packed(type, dims, std::vector<std::uint8_t>(static_cast<std::size_t>(element_count(dims)), 0))));
  }
  Attributes attrs = dequantize_attributes(layer);
  if (layer.weights.scales == DType::kE8M0) attrs["output_dtype"] = static_cast<std::int64_t>(DType::kF32);
  return op("DequantizeLinear", in, std::move(attrs), name + "_DequantizeLinear");
}

ValueId NetBuilder::quantized_input(ValueId x, const QuantizedLinear& layer, const std::string& module) {
  if (!layer.factors.empty())
    x = op("Mul",
           {x, constant(module + ".pre_quant_scale", Tensor::from(DType::kF32, {layer.ins}, layer.factors))},
           {}, module + ".factors");
  const CodeFormat& format = layer.inputs;
  if (format.active()) {
    const std::string key = fmt::format("{} {} {} {} {}", static_cast<std::int64_t>(x), to_string(format),
                                        layer.input_scale, layer.input_zero, layer.global_divides);
    const auto known = quantized_inputs_.find(key);
    x = known != quantized_inputs_.end() ? known->second
                                         : quantized_inputs_[key] = quantized_value(x, layer, module);
  }
  bool even = true;
  const std::vector<std::int64_t> order = group_order(layer, even);
  if (order.empty() || !even) return x;
  return op("Gather", {x, ints(order)}, {{"axis", std::int64_t{-1}}}, module + ".group_order");
}

ValueId NetBuilder::quantized_value(ValueId x, const QuantizedLinear& layer, const std::string& module) {
  const CodeFormat& format = layer.inputs;
  const std::int64_t last = rank_ - 1;
  const std::string base = module + ".input";
  if (format.scales == DType::kE8M0 || format.two_levels()) {
    Shape shape(std::vector<Dim>(static_cast<std::size_t>(last), Dim::named("rows")));
    shape.dims.push_back(Dim::of(layer.ins));
    const BlockScales blocks{format.codes, format.scales, last, format.group};
    InputWriter writer(*this, module);
    ValueId global = ValueId::kNone;
    if (format.two_levels())
      global = constant(base + "_global_scale",
                        Tensor::scalar(layer.global_divides ? 1 / layer.input_scale : layer.input_scale));
    const BlockCodes codes = write_block_quantize(writer, x, shape, global, blocks);
    return op("DequantizeLinear", {codes.codes, codes.scale},
              block_dequantize_attributes(blocks, static_cast<int>(rank_)), base + "_DequantizeLinear");
  }
  if (!format.dynamic) {
    const ValueId scale = constant(base + "_scale", Tensor::scalar(layer.input_scale));
    const ValueId zero = constant(base + "_zero_point", zero_of(format.codes, layer.input_zero));
    const ValueId codes = op("QuantizeLinear", {x, scale, zero}, {}, base + "_QuantizeLinear");
    return op("DequantizeLinear", {codes, scale, zero}, {}, base + "_DequantizeLinear");
  }
  if (!format.symmetric && format.row_group == 0 && format.group == 0) {
    const std::vector<ValueId> q = ops("DynamicQuantizeLinear", {x}, 3, {}, base + "_DynamicQuantizeLinear");
    return op("DequantizeLinear", {q[0], q[1], q[2]}, {}, base + "_DequantizeLinear");
  }
  if (!format.symmetric && format.group == 0) {  // int8 with a zero point is uint8 with one 128 higher
    Shape shape(std::vector<Dim>(static_cast<std::size_t>(last), Dim::named("rows")));
    shape.dims.push_back(Dim::of(layer.ins));
    InputWriter writer(*this, module);
    const TokenCodes token = write_token_quantize(writer, x, shape, last);
    return op("DequantizeLinear", {token.codes, token.scale, token.zero}, token.attributes,
              base + "_DequantizeLinear");
  }
  if (!format.symmetric)
    throw make_error(ErrorCode::kUnsupported, "dynamic groups of inputs with zero points are not computed")
        .at(fmt::format("layer '{}'", module))
        .hint("take zero points for each token, or symmetric groups");
  // The largest magnitude of the tensor, a token, or a group of its values.
  ValueId rows = x;
  const bool groups = format.group > 0 && format.group < layer.ins;
  if (groups && layer.ins % format.group != 0)
    throw make_error(ErrorCode::kUnsupported, "dynamic groups of {} do not divide {} inputs", format.group,
                     layer.ins)
        .at(fmt::format("layer '{}'", module))
        .hint("take a group size that divides them");
  if (groups) {
    std::vector<std::int64_t> split(static_cast<std::size_t>(last), 0);
    split.push_back(layer.ins / format.group);
    split.push_back(format.group);
    rows = op("Reshape", {x, ints(split)}, {}, base + "_groups");
  }
  const ValueId magnitude = op("Abs", {rows}, {}, base + "_magnitude");
  const bool whole = format.row_group == 0 && !groups;
  std::vector<ValueId> reduced = {magnitude};
  if (!whole) reduced.push_back(ints({-1}));
  const ValueId amax =
      op("ReduceMax", reduced, {{"keepdims", std::int64_t{whole || groups ? 0 : 1}}}, base + "_amax");
  const ValueId raw = op("Div", {amax, number(largest_of(format))}, {}, base + "_raw");
  const ValueId scale = op("Max", {raw, number(std::numeric_limits<float>::min())}, {}, base + "_scale");
  const auto type = static_cast<std::int64_t>(format.codes);
  if (whole) {
    const ValueId zero = constant(base + "_zero_point", zero_of(format.codes, 0));
    const ValueId codes = op("QuantizeLinear", {x, scale, zero}, {}, base + "_QuantizeLinear");
    return op("DequantizeLinear", {codes, scale, zero}, {}, base + "_DequantizeLinear");
  }
  const Attributes attrs = {{"axis", last}, {"block_size", groups ? format.group : layer.ins}};
  Attributes with_type = attrs;
  with_type["output_dtype"] = type;
  const ValueId codes = op("QuantizeLinear", {x, scale}, with_type, base + "_QuantizeLinear");
  return op("DequantizeLinear", {codes, scale}, attrs, base + "_DequantizeLinear");
}

// Keys or values as a cache of that type gives them back.
ValueId NetBuilder::quantized_cache(ValueId x, float scale, DType type, const std::string& name) {
  const ValueId step = constant(name + "_scale", Tensor::scalar(scale));
  const ValueId zero = constant(name + "_zero_point", zero_of(type, 0));
  const ValueId codes = op("QuantizeLinear", {x, step, zero}, {}, name + "_QuantizeLinear");
  return op("DequantizeLinear", {codes, step, zero}, {}, name + "_DequantizeLinear");
}

}  // namespace pare
