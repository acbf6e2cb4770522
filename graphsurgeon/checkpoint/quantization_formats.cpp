#include "graphsurgeon/checkpoint/quantization_formats.h"

#include <algorithm>
#include <initializer_list>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace pare {
namespace {

using Strategy = QuantizationArgs::Strategy;

constexpr std::int64_t kMostGroup = std::int64_t{1} << 24;

}  // namespace

const char* const kQuantizationHint = "download the checkpoint again, or have its tool write it again";

QuantizationSection::QuantizationSection(const Json& json, const std::string& where)
    : json_(json), where_(where) {
  if (!json.is_object())
    throw make_error(ErrorCode::kBadFile, "the quantization config is no JSON object")
        .at(where)
        .hint(kQuantizationHint);
}

const Json* QuantizationSection::find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t QuantizationSection::integer(const char* key, std::int64_t otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number_integer()) wrong(key, "a whole number");
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(kMostGroup))
    wrong(key, fmt::format("at most {}", kMostGroup));
  const auto n = value->get<std::int64_t>();
  if (n < -1) wrong(key, "-1 or more");
  return n;
}

bool QuantizationSection::flag(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(key, "true or false");
  return value->get<bool>();
}

std::string QuantizationSection::text(const char* key, const std::string& otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) wrong(key, "text");
  return value->get<std::string>();
}

std::vector<std::string> QuantizationSection::texts(const char* key) const {
  std::vector<std::string> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) wrong(key, "a list of names");
  for (const Json& item : *value) {
    if (!item.is_string()) wrong(key, "a list of names");
    list.push_back(item.get<std::string>());
  }
  return list;
}

void QuantizationSection::wrong(const std::string& key, const std::string& wanted) const {
  throw make_error(ErrorCode::kBadFile, "the quantization config: '{}' is not {}", key, wanted)
      .at(where_)
      .hint(kQuantizationHint);
}

void QuantizationSection::refuse(const std::string& what, const std::string& hint) const {
  throw make_error(ErrorCode::kUnsupported, "the quantization config: {}", what).at(where_).hint(hint);
}

namespace {

void need_bits(const QuantizationSection& at, std::int64_t bits, std::initializer_list<int> known) {
  std::string list;
  for (const int n : known) {
    if (n == bits) return;
    list += (list.empty() ? "" : ", ") + std::to_string(n);
  }
  at.refuse(fmt::format("{} bits are not read", bits), "read are " + list);
}

QuantizationArgs integer_groups(std::int64_t bits, std::int64_t group, bool symmetric) {
  QuantizationArgs args;
  args.bits = static_cast<int>(bits);
  args.symmetric = symmetric;
  args.strategy = group > 0 ? Strategy::kGroup : Strategy::kChannel;
  args.group = std::max<std::int64_t>(group, 0);
  return args;
}

// --- compressed-tensors

void read_block(const QuantizationSection& at, QuantizationArgs& args) {
  const Json* block = at.find("block_structure");
  if (block == nullptr || !block->is_array() || block->size() != 2 || !(*block)[0].is_number_unsigned() ||
      !(*block)[1].is_number_unsigned())
    at.wrong("block_structure", "two whole numbers");
  args.block_rows = static_cast<std::int64_t>(
      std::min<std::uint64_t>((*block)[0].get<std::uint64_t>(), static_cast<std::uint64_t>(kMostGroup)));
  args.block_columns = static_cast<std::int64_t>(
      std::min<std::uint64_t>((*block)[1].get<std::uint64_t>(), static_cast<std::uint64_t>(kMostGroup)));
  if (args.block_rows < 1 || args.block_columns < 1) at.wrong("block_structure", "two numbers above 0");
}

QuantizationArgs read_args(const QuantizationSection& at) {
  QuantizationArgs args;
  const std::string type = at.text("type", "int");
  if (type != "int" && type != "float") at.wrong("type", "int or float");
  args.is_float = type == "float";
  const std::int64_t bits = at.integer("num_bits", 8);
  if (args.is_float)
    need_bits(at, bits, {4, 8});
  else
    need_bits(at, bits, {2, 3, 4, 5, 6, 7, 8});
  args.bits = static_cast<int>(bits);
  args.symmetric = at.flag("symmetric", true);
  args.group = std::max<std::int64_t>(at.integer("group_size", 0), 0);
  if (const Json* dynamic = at.find("dynamic")) {
    if (!dynamic->is_boolean() && *dynamic != "local") at.wrong("dynamic", "true, false or local");
    args.dynamic = !dynamic->is_boolean() || dynamic->get<bool>();
  }
  const std::string strategy = at.text("strategy", "");
  const std::pair<const char*, Strategy> kKnown[] = {{"", Strategy::kUnset},
                                                     {"tensor", Strategy::kTensor},
                                                     {"channel", Strategy::kChannel},
                                                     {"group", Strategy::kGroup},
                                                     {"block", Strategy::kBlock},
                                                     {"token", Strategy::kToken},
                                                     {"tensor_group", Strategy::kGroup}};
  const auto known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                  [&](const auto& row) { return strategy == row.first; });
  if (known == std::end(kKnown))
    at.refuse("the strategy '" + strategy + "' is not read",
              "read are tensor, channel, group, block, token and tensor_group");
  args.strategy = known->second;
  if (args.strategy == Strategy::kUnset && args.group > 0) args.strategy = Strategy::kGroup;
  args.two_levels = strategy == "tensor_group" || (args.is_float && args.bits == 4 && args.group == 16);
  if (args.strategy == Strategy::kBlock) read_block(at, args);
  args.power_scales = args.is_float && !args.two_levels && args.strategy == Strategy::kGroup &&
                      args.group == 32 && (args.bits == 4 || at.text("scale_dtype", "") == "torch.uint8");
  return args;
}

}  // namespace

void read_compressed_tensors(const QuantizationSection& at, QuantizationConfig& out) {
  if (const Json* sparsity = at.find("sparsity_config"))
    if (const std::string format = at.inner(*sparsity).text("format", "dense");
        format != "dense" && !format.empty())
      at.refuse("sparse weights ('" + format + "') are not read", "dense ones are");
  if (const Json* transform = at.find("transform_config"))
    if (const Json* groups = at.inner(*transform).find("config_groups");
        groups != nullptr && !groups->empty())
      at.refuse("a transform_config asks for rotations at run time, which are not read",
                "checkpoints whose rotations are folded into the weights are");
  const std::string format = at.text("format", "");
  const Json* groups = at.find("config_groups");
  if (groups == nullptr || !groups->is_object()) at.wrong("config_groups", "an object");
  constexpr const char* kFormats[] = {"pack-quantized",  "int-quantized",        "float-quantized",
                                      "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                                      "mxfp8-quantized", "mixed-precision",      "dense"};
  for (const auto& [key, group] : groups->items()) {
    if (group.is_array())
      at.refuse("the config group '" + key + "' is the name of a preset", "groups with their args are read");
    const QuantizationSection inner = at.inner(group);
    QuantizationScheme scheme;
    scheme.format = inner.text("format", format);
    if (std::none_of(std::begin(kFormats), std::end(kFormats),
                     [&](const char* known) { return scheme.format == known; })) {
      std::string list;
      for (const char* known : kFormats) list += (list.empty() ? "" : ", ") + std::string(known);
      at.refuse("the format '" + scheme.format + "' is not read", "read are " + list);
    }
    scheme.targets = inner.texts("targets");
    if (const Json* weights = inner.find("weights")) scheme.weights = read_args(at.inner(*weights));
    if (const Json* inputs = inner.find("input_activations")) scheme.inputs = read_args(at.inner(*inputs));
    if (scheme.format == "mxfp8-quantized") scheme.weights.power_scales = true;
    // Inputs beside MX weights have exponents as scales too, whether the file says so or not.
    if (scheme.weights.power_scales && scheme.inputs.is_float && scheme.inputs.group == 32)
      scheme.inputs.power_scales = true;
    out.schemes.push_back(std::move(scheme));
  }
  out.ignore = at.texts("ignore");
  if (const Json* cache = at.find("kv_cache_scheme")) out.kv_cache = read_args(at.inner(*cache));
}

// --- AutoAWQ, GPTQ, fp8

void read_awq(const QuantizationSection& at, QuantizationConfig& out) {
  const std::string version = at.text("version", "gemm");
  if (version != "gemm" && version != "GEMM")
    at.refuse("version '" + version + "' of AutoAWQ is not read", "gemm is, in which nearly all models are");
  const std::int64_t bits = at.integer("bits", at.integer("w_bit", 4));
  need_bits(at, bits, {4});
  QuantizationScheme scheme;
  scheme.weights = integer_groups(bits, at.integer("group_size", at.integer("q_group_size", 128)),
                                  !at.flag("zero_point", true));
  out.schemes.push_back(std::move(scheme));
  out.ignore = at.texts("modules_to_not_convert");
}

void read_gptq(const QuantizationSection& at, QuantizationConfig& out) {
  const std::string format = at.text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    at.refuse("the checkpoint_format '" + format + "' is not read", "gptq and gptq_v2 are");
  out.gptq_v2 = format == "gptq_v2";
  QuantizationScheme rest;
  const std::int64_t bits = at.integer("bits", 4), group = at.integer("group_size", 128);
  need_bits(at, bits, {2, 3, 4, 5, 6, 7, 8});
  rest.weights = integer_groups(bits, group, at.flag("sym", true));
  if (const Json* dynamic = at.find("dynamic")) {
    if (!dynamic->is_object()) at.wrong("dynamic", "an object");
    for (const auto& [key, value] : dynamic->items()) {
      if (key.rfind("-:", 0) == 0) {
        out.ignore.push_back("re:" + key.substr(2));
        continue;
      }
      const QuantizationSection own = at.inner(value);
      QuantizationScheme scheme;
      const std::int64_t own_bits = own.integer("bits", bits);
      need_bits(at, own_bits, {2, 3, 4, 5, 6, 7, 8});
      scheme.weights =
          integer_groups(own_bits, own.integer("group_size", group), own.flag("sym", rest.weights.symmetric));
      scheme.targets = {"re:" + (key.rfind("+:", 0) == 0 ? key.substr(2) : key)};
      out.schemes.push_back(std::move(scheme));
    }
  }
  out.schemes.push_back(std::move(rest));
}

void read_fp8(const QuantizationSection& at, QuantizationConfig& out) {
  QuantizationScheme scheme;
  scheme.weights.bits = scheme.inputs.bits = 8;
  scheme.weights.is_float = scheme.inputs.is_float = true;
  const std::string format = at.text("fmt", "e4m3");
  if (format != "e4m3" && format != "float8_e4m3fn")
    at.refuse("fp8 weights of type '" + format + "' are not read", "e4m3 is");
  const std::string inputs = at.text("activation_scheme", "dynamic");
  if (inputs != "dynamic" && inputs != "static") at.wrong("activation_scheme", "dynamic or static");
  scheme.inputs.dynamic = inputs == "dynamic";
  scheme.inputs.strategy = scheme.inputs.dynamic ? Strategy::kToken : Strategy::kTensor;
  if (const Json* size = at.find("weight_block_size")) {
    if (!size->is_array() || size->size() != 2 || !(*size)[0].is_number_unsigned() ||
        !(*size)[1].is_number_unsigned() || (*size)[0] == 0 || (*size)[1] == 0 || (*size)[0] > kMostGroup ||
        (*size)[1] > kMostGroup)
      at.wrong("weight_block_size", "two whole numbers above 0");
    scheme.weights.strategy = Strategy::kBlock;
    scheme.weights.block_rows = (*size)[0].get<std::int64_t>();
    scheme.weights.block_columns = (*size)[1].get<std::int64_t>();
    if (scheme.inputs.dynamic) {
      scheme.inputs.strategy = Strategy::kGroup;
      scheme.inputs.group = scheme.weights.block_columns;
    }
  }
  out.schemes.push_back(std::move(scheme));
  out.ignore = at.texts("modules_to_not_convert");
  if (out.ignore.empty()) out.ignore = at.texts("ignored_layers");
}

// --- Model Optimizer

namespace {

QuantizationArgs float_args(int bits, Strategy strategy, std::int64_t group, bool dynamic) {
  QuantizationArgs args;
  args.bits = bits;
  args.is_float = true;
  args.strategy = strategy;
  args.group = group;
  args.dynamic = dynamic;
  args.two_levels = bits == 4 && group == 16;
  args.power_scales = group == 32;
  return args;
}

QuantizationScheme model_optimizer_scheme(const QuantizationSection& at, const std::string& algo,
                                          std::int64_t group) {
  QuantizationScheme scheme;
  scheme.format = algo;
  QuantizationArgs &w = scheme.weights, &x = scheme.inputs;
  const QuantizationArgs fp8 = float_args(8, Strategy::kTensor, 0, false);
  if (algo == "FP8") {
    w = x = fp8;
  } else if (algo == "FP8_PER_CHANNEL_PER_TOKEN") {
    w = float_args(8, Strategy::kChannel, 0, false);
    x = float_args(8, Strategy::kToken, 0, true);
  } else if (algo == "FP8_PB_WO") {
    w = float_args(8, Strategy::kBlock, 0, false);
    w.block_rows = w.block_columns = 128;
  } else if (algo == "NVFP4" || algo == "NVFP4_AWQ") {
    w = float_args(4, Strategy::kGroup, 16, false);
    x = float_args(4, Strategy::kGroup, 16, true);
  } else if (algo == "W4A16_NVFP4") {
    w = float_args(4, Strategy::kGroup, 16, false);
  } else if (algo == "W4A8_NVFP4_FP8") {
    w = float_args(4, Strategy::kGroup, 16, false);
    x = fp8;
  } else if (algo == "W4A8_MXFP4_FP8") {
    w = float_args(4, Strategy::kGroup, 32, false);
    x = fp8;
  } else if (algo == "W4A16_MXFP4") {
    w = float_args(4, Strategy::kGroup, 32, false);
  } else if (algo == "MXFP8") {
    w = float_args(8, Strategy::kGroup, 32, false);
    x = float_args(8, Strategy::kGroup, 32, true);
  } else if (algo == "W4A16_AWQ") {
    w = integer_groups(4, group > 0 ? group : 128, true);
  } else if (algo == "W8A16" || algo == "W8A8_SQ_PER_CHANNEL") {
    w = integer_groups(8, 0, true);
    if (algo != "W8A16") {
      x = integer_groups(8, 0, true);
      x.strategy = Strategy::kTensor;
    }
  } else {
    at.refuse("the quant_algo '" + algo + "' is not read",
              "read are FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, NVFP4_AWQ, W4A16_NVFP4, "
              "W4A8_NVFP4_FP8, W4A8_MXFP4_FP8, W4A16_MXFP4, MXFP8, W4A16_AWQ, W8A16, W8A8_SQ_PER_CHANNEL and "
              "MIXED_PRECISION");
  }
  return scheme;
}

}  // namespace

void read_model_optimizer(const QuantizationSection& at, QuantizationConfig& out) {
  const std::string algo = at.text("quant_algo", "");
  const std::int64_t group = at.integer("group_size", 0);
  if (algo == "MIXED_PRECISION") {
    const Json* layers = at.find("quantized_layers");
    if (layers == nullptr || !layers->is_object()) at.wrong("quantized_layers", "an object");
    for (const auto& [module, value] : layers->items()) {
      const QuantizationSection layer = at.inner(value);
      QuantizationScheme scheme =
          model_optimizer_scheme(at, layer.text("quant_algo", ""), layer.integer("group_size", group));
      scheme.targets = {module};
      out.schemes.push_back(std::move(scheme));
    }
  } else if (!algo.empty()) {
    out.schemes.push_back(model_optimizer_scheme(at, algo, group));
  }
  out.ignore = at.find("exclude_modules") != nullptr ? at.texts("exclude_modules") : at.texts("ignore");
  std::string cache;
  if (const Json* algorithm = at.find("kv_cache_quant_algo"))
    cache = algorithm->is_string() ? algorithm->get<std::string>() : "?";
  else if (const Json* scheme = at.find("kv_cache_scheme"))
    cache = scheme->is_string() ? scheme->get<std::string>()
            : scheme->is_object() && at.inner(*scheme).text("type", "int") == "float" ? "FP8"
                                                                                      : "INT8";
  if (cache.empty() || cache == "NONE" || cache == "none") return;
  if (cache != "FP8" && cache != "INT8")
    at.refuse("a KV cache of '" + cache + "' is not read", "FP8 and INT8 are");
  out.kv_cache.bits = 8;
  out.kv_cache.is_float = cache == "FP8";
  out.kv_cache.strategy = Strategy::kTensor;
}

}  // namespace pare
