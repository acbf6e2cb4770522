#include "graphsurgeon/checkpoint/awq_gptq.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/numeric/checkpoint_pack.h"
#include "graphsurgeon/checkpoint/layer_tensors.h"

namespace pare {
namespace {

constexpr int kWord = 32;

// What both formats ask of a layer.
std::string why_not_grouped(const LinearFormat& layer) {
  const CodeFormat& w = layer.weights;
  if (layer.inputs.active()) return "has inputs in " + to_string(layer.inputs);
  if (layer.input_factors) return "has factors before its input";
  if (!is_integer(w.codes) || w.row_group != 1) return "is coded as " + to_string(w);
  if (w.scales != DType::kF16) return fmt::format("has scales in {}, not in float16", name(w.scales));
  if (w.group > 0 && layer.ins % w.group != 0)
    return fmt::format("has {} inputs, which groups of {} do not divide", layer.ins, w.group);
  return "";
}

// [outs, ins] codes as [ins, outs].
std::vector<std::uint8_t> codes_in_first(const QuantizedLinear& layer) {
  const std::vector<std::uint8_t> codes = unsigned_codes(layer);
  std::vector<std::uint8_t> turned(codes.size());
  transpose_bytes(codes.data(), layer.outs, layer.ins, turned.data());
  return turned;
}
std::vector<std::uint8_t> zeros_groups_first(const QuantizedLinear& layer) {
  return transposed(zero_codes(layer), layer.outs, column_groups(layer));
}

// -1 stands for the whole row.
std::int64_t group_size(const LinearFormat& layer) {
  return layer.weights.group > 0 ? layer.weights.group : -1;
}

std::vector<StoredTensor> gptq_layer(const QuantizedLinear& layer, GptqVersion version) {
  LayerTensors out(layer);
  const int bits = layer.weights.bits;
  const std::int64_t groups = column_groups(layer);
  out.add_words("qweight", {layer.ins * bits / kWord, layer.outs},
                [&] { return pack_columns(bits, codes_in_first(layer).data(), layer.ins, layer.outs); });
  out.add_words("qzeros", {groups, layer.outs * bits / kWord}, [&] {
    return with_context(fmt::format("packing the zero points of layer '{}'", layer.module), [&] {
      return pack_gptq_zeros(bits, version, zeros_groups_first(layer).data(), groups, layer.outs);
    });
  });
  out.add_scales("scales", {groups, layer.outs}, true);
  out.add("g_idx", DType::kI32, {layer.ins}, [&] {
    std::vector<std::int32_t> index = layer.group_of;
    const std::int64_t width = layer.weights.group > 0 ? layer.weights.group : layer.ins;
    for (std::int64_t i = 0; i < layer.ins && layer.group_of.empty(); ++i)
      index.push_back(static_cast<std::int32_t>(i / width));
    return Tensor::from<std::int32_t>(DType::kI32, {layer.ins}, index);
  });
  return out.take();
}

// The format that most layers have.
const LinearFormat* most_frequent(const QuantizedModel& model) {
  const LinearFormat* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const LinearFormat& layer : model.layers) {
    const auto count =
        std::count_if(model.layers.begin(), model.layers.end(),
                      [&](const LinearFormat& other) { return other.weights == layer.weights; });
    if (count > most) most = count, best = &layer;
    if (most * 2 > static_cast<std::ptrdiff_t>(model.layers.size())) break;
  }
  return best;
}

Json gptq_json(const QuantizedModel& model, const char* version) {
  Json json = Json::object();
  const LinearFormat* usual = most_frequent(model);
  if (usual == nullptr) return json;
  const bool ordered = std::any_of(model.layers.begin(), model.layers.end(),
                                   [](const LinearFormat& layer) { return layer.act_order; });
  json["bits"] = usual->weights.bits;
  json["group_size"] = group_size(*usual);
  json["desc_act"] = ordered;
  json["sym"] = usual->weights.symmetric;
  json["static_groups"] = false;
  json["true_sequential"] = true;
  json["damp_percent"] = 0.01;
  json["lm_head"] = std::any_of(model.layers.begin(), model.layers.end(),
                                [](const LinearFormat& layer) { return layer.module == "lm_head"; });
  json["checkpoint_format"] = version;
  json["pack_dtype"] = "int32";
  Json dynamic = Json::object();
  for (const LinearFormat& layer : model.layers)
    if (!(layer.weights == usual->weights))
      dynamic["+:" + exact_pattern(layer.module)] = {
          {"bits", layer.weights.bits}, {"group_size", group_size(layer)}, {"sym", layer.weights.symmetric}};
  for (const std::string& module : model.ignored)
    if (module != "lm_head") dynamic["-:" + exact_pattern(module)] = Json::object();
  if (!dynamic.empty()) json["dynamic"] = std::move(dynamic);
  json["quant_method"] = "gptq";
  return json;
}

}  // namespace

std::string awq_why_not(const LinearFormat& layer) {
  if (const std::string why = why_not_grouped(layer); !why.empty()) return why;
  if (layer.in_first) return "stores its weight [in, out]";
  if (layer.act_order) return "has groups in another order than its inputs";
  if (layer.weights.bits != 4) return fmt::format("has codes of {} bits, not 4", layer.weights.bits);
  if (layer.outs % 8 != 0) return fmt::format("has {} outputs, no multiple of 8", layer.outs);
  return "";
}

std::vector<StoredTensor> awq_tensors(const QuantizedLinear& layer) {
  LayerTensors out(layer);
  const std::int64_t groups = column_groups(layer);
  out.add_words("qweight", {layer.ins, layer.outs / 8},
                [&] { return pack_awq(codes_in_first(layer).data(), layer.ins, layer.outs); });
  out.add_words("qzeros", {groups, layer.outs / 8},
                [&] { return pack_awq(zeros_groups_first(layer).data(), groups, layer.outs); });
  out.add_scales("scales", {groups, layer.outs}, true);
  return out.take();
}

Json awq_config(const QuantizedModel& model) {
  Json json = Json::object();
  if (model.layers.empty()) return json;
  const LinearFormat& layer = model.layers.front();
  json["bits"] = 4;
  json["group_size"] = group_size(layer);
  json["zero_point"] = !layer.weights.symmetric;
  json["version"] = "gemm";
  json["modules_to_not_convert"] = model.ignored.empty() ? Json(nullptr) : Json(model.ignored);
  json["quant_method"] = "awq";
  return json;
}

std::vector<std::pair<std::string, std::string>> awq_files(const QuantizedModel& model) {
  const Json config = awq_config(model);
  // The same under AutoAWQ's own names.
  const Json own = {{"zero_point", config["zero_point"]},
                    {"q_group_size", config["group_size"]},
                    {"w_bit", config["bits"]},
                    {"version", "GEMM"},
                    {"modules_to_not_convert", config["modules_to_not_convert"]}};
  return {{"quant_config.json", dump(own, 2) + "\n"}};
}

std::string gptq_why_not(const LinearFormat& layer) {
  if (const std::string why = why_not_grouped(layer); !why.empty()) return why;
  const int b = layer.weights.bits;
  if (b != 2 && b != 3 && b != 4 && b != 8) return fmt::format("has codes of {} bits", b);
  if (layer.ins % kWord != 0 || layer.outs % kWord != 0)
    return fmt::format("is {}x{}, no multiples of {}", layer.outs, layer.ins, kWord);
  return "";
}

std::vector<StoredTensor> gptq_tensors(const QuantizedLinear& layer) {
  return gptq_layer(layer, GptqVersion::kV1);
}
std::vector<StoredTensor> gptq_v2_tensors(const QuantizedLinear& layer) {
  return gptq_layer(layer, GptqVersion::kV2);
}
Json gptq_config(const QuantizedModel& model) { return gptq_json(model, "gptq"); }
Json gptq_v2_config(const QuantizedModel& model) { return gptq_json(model, "gptq_v2"); }

std::vector<std::pair<std::string, std::string>> gptq_files(const QuantizedModel& model) {
  return {{"quantize_config.json", dump(gptq_config(model), 2) + "\n"}};
}
std::vector<std::pair<std::string, std::string>> gptq_v2_files(const QuantizedModel& model) {
  return {{"quantize_config.json", dump(gptq_v2_config(model), 2) + "\n"}};
}

}  // namespace pare
