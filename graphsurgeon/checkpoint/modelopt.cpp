#include "graphsurgeon/checkpoint/modelopt.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/numeric/checkpoint_pack.h"
#include "graphsurgeon/checkpoint/layer_tensors.h"
#include "graphsurgeon/checkpoint/turned_globals.h"

namespace pare {
namespace {

constexpr std::int64_t kBlock = 128;  // of FP8_PB_WO
// The version whose layout this is: readers look at it for the meaning of old files.
constexpr const char* kProducerVersion = "0.47.0";

bool is_static_tensor(const CodeFormat& f, DType codes) {
  return f.codes == codes && !f.dynamic && f.row_group == 0 && f.group == 0 && f.symmetric;
}

std::string fp8_algorithm(const CodeFormat& w, const CodeFormat& in) {
  if (w.scales == DType::kE8M0)
    return w.group == 32 && (!in.active() || (in.codes == DType::kE4M3FN && in.scales == DType::kE8M0))
               ? "MXFP8"
               : "";
  if (w.scales != DType::kF32) return "";
  if (w.row_group > 1)
    return w.row_group == kBlock && w.group == kBlock && (!in.active() || in.dynamic) ? "FP8_PB_WO" : "";
  if (w.group != 0) return "";
  if (w.row_group == 0) return is_static_tensor(in, DType::kE4M3FN) ? "FP8" : "";
  return in.codes == DType::kE4M3FN && in.dynamic && in.group == 0 && in.row_group == 1
             ? "FP8_PER_CHANNEL_PER_TOKEN"
             : "";
}

std::string fp4_algorithm(const CodeFormat& w, const CodeFormat& in) {
  if (w.two_levels() && w.group == 16) {
    if (!in.active()) return "W4A16_NVFP4";
    if (in.codes == DType::kE2M1 && in.two_levels()) return "NVFP4";
    return is_static_tensor(in, DType::kE4M3FN) ? "W4A8_NVFP4_FP8" : "";
  }
  return w.scales == DType::kE8M0 && w.group == 32 && in.codes == DType::kE4M3FN ? "W4A8_MXFP4_FP8" : "";
}

std::string int_algorithm(const CodeFormat& w, const CodeFormat& in) {
  if (!w.symmetric) return "";
  if (w.bits == 4 && w.group > 0 && w.row_group == 1) return in.active() ? "" : "W4A16_AWQ";
  if (w.bits != 8 || w.group != 0 || w.row_group != 1) return "";
  if (!in.active()) return "W8A16";
  return is_static_tensor(in, DType::kI8) ? "W8A8_SQ_PER_CHANNEL" : "";
}

// {"quant_algo": "NVFP4", "group_size": 16, ...}
Json algorithm_json(const LinearFormat& layer, bool factors) {
  const std::string algorithm = modelopt_algorithm(layer);
  Json json = {{"quant_algo", algorithm}};
  if (layer.weights.group > 0 && layer.weights.row_group == 1) json["group_size"] = layer.weights.group;
  if (algorithm == "W4A16_AWQ") {
    json["has_zero_point"] = false;
    json["pre_quant_scale"] = factors;
  }
  return json;
}

bool any_factors(const QuantizedModel& model) {
  return std::any_of(model.layers.begin(), model.layers.end(),
                     [](const LinearFormat& layer) { return layer.input_factors; });
}

Json quantization(const QuantizedModel& model) {
  const bool factors = any_factors(model);
  std::vector<Json> kinds;
  Json layers = Json::object();
  for (const LinearFormat& layer : model.layers) {
    Json one = algorithm_json(layer, factors);
    if (std::find(kinds.begin(), kinds.end(), one) == kinds.end()) kinds.push_back(one);
    layers[layer.module] = std::move(one);
  }
  Json json = {{"quant_algo", kinds.size() == 1 ? kinds[0]["quant_algo"] : Json("MIXED_PRECISION")},
               {"kv_cache_quant_algo", nullptr}};
  if (model.kv_cache != DType::kUndefined)
    json["kv_cache_quant_algo"] = model.kv_cache == DType::kI8 ? "INT8" : "FP8";
  if (kinds.size() == 1) {
    for (const auto& [key, value] : kinds[0].items()) json[key] = value;
    json["exclude_modules"] = model.ignored;
  } else {
    json["quantized_layers"] = std::move(layers);
    json["exclude_modules"] = model.ignored;
  }
  return json;
}

Json producer() { return {{"name", "modelopt"}, {"version", kProducerVersion}}; }

Json args(const CodeFormat& f) {
  Json json = {{"dynamic", false},
               {"num_bits", is_integer(f.codes) ? f.bits : bits(f.codes)},
               {"type", is_integer(f.codes) ? "int" : "float"}};
  if (f.group > 0 && f.row_group <= 1) json["group_size"] = f.group;
  return json;
}

Json group_json(const LinearFormat& layer) {
  Json json = Json::object();
  if (layer.inputs.active()) json["input_activations"] = args(layer.inputs);
  json["weights"] = args(layer.weights);
  if (modelopt_algorithm(layer) == "FP8_PER_CHANNEL_PER_TOKEN" || layer.weights.codes == DType::kI8)
    json["weights"]["strategy"] = "channel";
  return json;
}

}  // namespace

std::string modelopt_algorithm(const LinearFormat& layer) {
  if (layer.weights.codes == DType::kE4M3FN) return fp8_algorithm(layer.weights, layer.inputs);
  if (layer.weights.codes == DType::kE2M1) return fp4_algorithm(layer.weights, layer.inputs);
  return int_algorithm(layer.weights, layer.inputs);
}

std::string modelopt_why_not(const LinearFormat& layer) {
  if (layer.in_first) return "stores its weight [in, out]";
  if (layer.act_order) return "has groups in another order than its inputs";
  const std::string algorithm = modelopt_algorithm(layer);
  if (algorithm.empty())
    return fmt::format("is coded as {} with inputs in {}", to_string(layer.weights),
                       layer.inputs.active() ? to_string(layer.inputs) : "float");
  if (layer.input_factors && algorithm != "W4A16_AWQ") return "has factors before its input";
  if (layer.weights.group > 0 && layer.ins % layer.weights.group != 0)
    return fmt::format("has {} inputs, which groups of {} do not divide", layer.ins, layer.weights.group);
  if (algorithm == "FP8_PB_WO" && layer.outs % kBlock != 0)
    return fmt::format("has {} outputs, no multiple of {}", layer.outs, kBlock);
  if (layer.weights.codes != DType::kE4M3FN && layer.weights.bits == 4 && layer.outs % 2 != 0)
    return fmt::format("has {} outputs, an odd number", layer.outs);
  return "";
}

std::vector<StoredTensor> modelopt_tensors(const QuantizedLinear& given) {
  GlobalScales globals;
  if (!turned_globals(given, false, globals))
    throw make_error(ErrorCode::kUnsupported, "no factor gives the steps that the divisor {} gives",
                     given.global)
        .at(fmt::format("layer '{}'", given.module))
        .hint("write compressed_tensors, which has divisors");
  QuantizedLinear as_signed;
  const QuantizedLinear& layer = is_integer(given.weights.codes) ? signed_form(given, as_signed) : given;
  LayerTensors out(layer);
  const std::string algorithm = modelopt_algorithm(layer);
  const std::int64_t groups = column_groups(layer), rows = row_groups(layer);
  if (layer.weights.codes == DType::kE2M1) {
    out.add_fp4("weight");
    out.add_scales("weight_scale", {layer.outs, groups});
    if (layer.weights.two_levels()) out.add_floats("weight_scale_2", {}, {globals.weight});
  } else if (layer.weights.codes == DType::kE4M3FN) {
    out.add_codes("weight", DType::kE4M3FN);
    out.add_scales("weight_scale", algorithm == "FP8"         ? Dims{}
                                   : algorithm == "FP8_PB_WO" ? Dims{rows, 1, groups, 1}
                                   : algorithm == "MXFP8"     ? Dims{rows, groups}
                                                              : Dims{rows});
  } else if (layer.weights.bits == 4) {
    const Dims dims = {layer.outs / 2, layer.ins};
    out.add("weight", DType::kU8, dims, [&] {
      return Tensor::from<std::uint8_t>(DType::kU8, dims,
                                        pack_modelopt_int4(layer.codes.data(), layer.outs, layer.ins));
    });
    out.add_scales("weight_scale", {rows, groups});
  } else {
    out.add_codes("weight", DType::kI8);
    out.add_scales("weight_scale", {rows});
  }
  if (layer.input_factors) out.add_floats("pre_quant_scale", {layer.ins}, layer.factors);
  if (layer.inputs.active() && !layer.inputs.dynamic) out.add_floats("input_scale", {}, {globals.input});
  return out.take();
}

std::vector<StoredTensor> modelopt_kv_tensors(const KvScales& scales) {
  return {{scales.attention + ".k_proj.k_scale", DType::kF32, {}, Tensor::scalar(scales.key)},
          {scales.attention + ".v_proj.v_scale", DType::kF32, {}, Tensor::scalar(scales.value)}};
}

Json modelopt_config(const QuantizedModel& model) {
  const Json details = quantization(model);
  Json json = Json::object(), groups = Json::object();
  std::vector<std::pair<Json, std::vector<std::string>>> kinds;
  for (const LinearFormat& layer : model.layers) {
    const Json one = group_json(layer);
    const auto at =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == one; });
    if (at == kinds.end())
      kinds.push_back({one, {layer.module}});
    else
      at->second.push_back(layer.module);
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    Json group = kinds[i].first;
    group["targets"] = kinds.size() == 1 ? Json({"Linear"}) : Json(kinds[i].second);
    groups[fmt::format("group_{}", i)] = std::move(group);
  }
  json["config_groups"] = std::move(groups);
  if (details.contains("quantized_layers")) json["quantized_layers"] = details["quantized_layers"];
  json["ignore"] = model.ignored;
  json["quant_algo"] = details["quant_algo"];
  for (const char* key : {"group_size", "has_zero_point", "pre_quant_scale"})
    if (details.contains(key)) json[key] = details[key];
  if (model.kv_cache == DType::kE4M3FN)
    json["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  else if (model.kv_cache != DType::kUndefined)
    json["kv_cache_scheme"] = "INT8";
  json["producer"] = producer();
  json["quant_method"] = "modelopt";
  return json;
}

std::vector<std::pair<std::string, std::string>> modelopt_files(const QuantizedModel& model) {
  const Json json = {{"producer", producer()}, {"quantization", quantization(model)}};
  return {{"hf_quant_config.json", dump(json, 4) + "\n"}};
}

}  // namespace pare
