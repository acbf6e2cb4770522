#include "graphsurgeon/checkpoint/compressed_tensors.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/numeric/checkpoint_pack.h"
#include "graphsurgeon/checkpoint/layer_tensors.h"
#include "graphsurgeon/checkpoint/turned_globals.h"

namespace pare {
namespace {

bool is_block(const CodeFormat& f) { return f.row_group > 1; }
bool is_plain_scale(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

std::string why_not_inputs(const CodeFormat& f) {
  if (!f.active()) return "";
  if (f.codes != DType::kI8 && f.codes != DType::kU8 && f.codes != DType::kE4M3FN && f.codes != DType::kE2M1)
    return fmt::format("has inputs in {}", to_string(f));
  if (f.scales == DType::kE8M0 || (f.group > 0 && !f.two_levels())) {
    if (!f.dynamic) return "has inputs with fixed scales for groups";
    return "";
  }
  if (f.codes == DType::kE2M1 && !f.two_levels()) return fmt::format("has inputs in {}", to_string(f));
  return "";
}

const char* strategy(const CodeFormat& f, bool weights) {
  if (f.two_levels()) return "tensor_group";
  if (is_block(f)) return "block";
  if (f.group > 0) return "group";
  if (f.row_group == 0) return "tensor";
  return weights ? "channel" : "token";
}

Json args(const CodeFormat& f, bool weights, bool act_order) {
  const bool integer = is_integer(f.codes);
  Json json = {{"num_bits", integer ? f.bits : bits(f.codes)},
               {"type", integer ? "int" : "float"},
               {"symmetric", f.symmetric},
               {"group_size", f.group > 0 && !is_block(f) ? Json(f.group) : Json(nullptr)},
               {"strategy", strategy(f, weights)}};
  if (is_block(f)) json["block_structure"] = {f.row_group, f.group};
  // Block scales of two-level inputs are of the moment, the global scale is not.
  if (!weights && f.two_levels())
    json["dynamic"] = "local";
  else
    json["dynamic"] = f.dynamic;
  if (act_order) json["actorder"] = "group";
  if (f.two_levels()) json["scale_dtype"] = "torch.float8_e4m3fn";
  if (f.scales == DType::kE8M0) json["scale_dtype"] = "torch.uint8";
  return json;
}

Json group_of(const LinearFormat& layer) {
  return {{"format", ct_format(layer)},
          {"weights", args(layer.weights, true, layer.act_order)},
          {"input_activations", layer.inputs.active() ? args(layer.inputs, false, false) : Json(nullptr)},
          {"output_activations", nullptr}};
}

}  // namespace

std::string ct_why_not(const LinearFormat& layer) {
  const CodeFormat& w = layer.weights;
  if (layer.in_first) return "stores its weight [in, out]";
  if (layer.input_factors) return "has factors before its input";
  // actorder "group" was removed: version 0.20 refuses the config.
  if (layer.act_order) return "has groups in another order than its inputs";
  if (w.group > 0 && !is_block(w) && layer.ins % w.group != 0)
    return fmt::format("has {} inputs, which groups of {} do not divide", layer.ins, w.group);
  if (const std::string why = why_not_inputs(layer.inputs); !why.empty()) return why;
  if (is_integer(w.codes)) {
    if (!is_plain_scale(w.scales) || is_block(w) || w.bits < 2 || w.bits > 8)
      return "is coded as " + to_string(w);
    return "";
  }
  if (w.codes == DType::kE4M3FN) {
    if (w.scales == DType::kE8M0 && w.group == 32 && w.row_group == 1) return "";
    if (is_plain_scale(w.scales) && (is_block(w) ? w.group > 0 : w.group == 0)) return "";
    return "is coded as " + to_string(w);
  }
  if (w.codes == DType::kE2M1 && w.row_group == 1 &&
      ((w.two_levels() && w.group == 16) || (w.scales == DType::kE8M0 && w.group == 32)))
    return "";
  return "is coded as " + to_string(w);
}

const char* ct_format(const LinearFormat& layer) {
  const CodeFormat& w = layer.weights;
  if (w.codes == DType::kE2M1) return w.two_levels() ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  if (w.codes == DType::kE4M3FN) {
    if (w.scales == DType::kE8M0) return "mxfp8-quantized";
    return layer.inputs.active() ? "float-quantized" : "naive-quantized";
  }
  // Integers beside float codes are packed, as vLLM's W4A-FP8 kernels take them.
  return layer.inputs.active() && is_integer(layer.inputs.codes) ? "int-quantized" : "pack-quantized";
}

std::vector<StoredTensor> ct_tensors(const QuantizedLinear& given) {
  GlobalScales globals;
  if (!turned_globals(given, true, globals))
    throw make_error(ErrorCode::kUnsupported, "no divisor gives the steps that the global scale {} gives",
                     given.global)
        .at(fmt::format("layer '{}'", given.module))
        .hint("quantize for compressed_tensors: the global scale is then one that has a divisor");
  const std::string format = ct_format(given);
  QuantizedLinear as_signed;
  const QuantizedLinear& layer = format == "int-quantized" ? signed_form(given, as_signed) : given;
  LayerTensors out(layer);
  const CodeFormat& w = layer.weights;
  const std::int64_t groups = column_groups(layer), rows = row_groups(layer);
  const Dims scale_dims = w.row_group == 0 ? Dims{1} : Dims{rows, groups};
  if (format == "pack-quantized") {
    out.add_stream("weight_packed");
    out.add_scales("weight_scale", scale_dims);
    out.add("weight_shape", DType::kI64, {2}, [&] { return Tensor::ints({layer.outs, layer.ins}); });
    if (!w.symmetric)
      out.add_words("weight_zero_point", {stream_words(rows, w.bits), groups},
                    [&] { return pack_columns(w.bits, zero_codes(layer).data(), rows, groups); });
  } else if (format == "int-quantized") {
    out.add_codes("weight", DType::kI8);
    out.add_scales("weight_scale", scale_dims);
    if (!given.weights.symmetric)
      out.add("weight_zero_point", DType::kI8, scale_dims, [&] {
        std::vector<std::int8_t> zeros(layer.scales.size(), 0);
        std::copy(layer.zero_points.begin(), layer.zero_points.end(), zeros.begin());
        return Tensor::from<std::int8_t>(DType::kI8, scale_dims, zeros);
      });
  } else if (w.codes == DType::kE4M3FN) {
    out.add_codes("weight", DType::kE4M3FN);
    out.add_scales("weight_scale", scale_dims);
  } else {
    out.add_fp4("weight_packed");
    out.add_scales("weight_scale", {layer.outs, groups});
    if (w.two_levels()) out.add_floats("weight_global_scale", {1}, {globals.weight});
  }
  if (layer.act_order)
    out.add("weight_g_idx", DType::kI32, {layer.ins},
            [&] { return Tensor::from<std::int32_t>(DType::kI32, {layer.ins}, layer.group_of); });
  if (layer.inputs.active() && !layer.inputs.dynamic) {
    out.add_floats(layer.inputs.two_levels() ? "input_global_scale" : "input_scale", {1}, {globals.input});
    if (!layer.inputs.symmetric)
      out.add("input_zero_point", DType::kI8, {1}, [&] {
        return Tensor::from<std::int8_t>(DType::kI8, {1}, {static_cast<std::int8_t>(layer.input_zero)});
      });
  }
  return out.take();
}

std::vector<StoredTensor> ct_kv_tensors(const KvScales& scales) {
  return {
      {scales.attention + ".k_scale", DType::kF32, {1}, Tensor::from<float>(DType::kF32, {1}, {scales.key})},
      {scales.attention + ".v_scale",
       DType::kF32,
       {1},
       Tensor::from<float>(DType::kF32, {1}, {scales.value})}};
}

Json ct_config(const QuantizedModel& model) {
  struct Group {
    Json scheme;
    std::vector<std::string> modules;
  };
  std::vector<Group> groups;
  std::vector<std::string> formats;
  for (const LinearFormat& layer : model.layers) {
    const Json scheme = group_of(layer);
    auto at = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.scheme == scheme; });
    if (at == groups.end()) {
      groups.push_back(Group{scheme, {}});
      at = groups.end() - 1;
      const std::string format = ct_format(layer);
      if (std::find(formats.begin(), formats.end(), format) == formats.end()) formats.push_back(format);
    }
    at->modules.push_back(layer.module);
  }
  Json json = Json::object();
  Json all = Json::object();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Json group = groups[i].scheme;
    group["targets"] = groups.size() == 1 ? Json({"Linear"}) : Json(groups[i].modules);
    all[fmt::format("group_{}", i)] = std::move(group);
  }
  json["config_groups"] = std::move(all);
  json["format"] = formats.size() == 1 ? formats[0] : "mixed-precision";
  json["global_compression_ratio"] = nullptr;
  json["ignore"] = model.ignored;
  json["kv_cache_scheme"] = nullptr;
  if (model.kv_cache != DType::kUndefined) {
    CodeFormat cache;
    cache.codes = model.kv_cache;
    cache.bits = 8;
    cache.row_group = 0;
    json["kv_cache_scheme"] = args(cache, false, false);
  }
  json["quant_method"] = "compressed-tensors";
  json["quantization_status"] = "compressed";
  return json;
}

}  // namespace pare
