#include "quant/placement/spec.h"

#include <algorithm>
#include <cctype>

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/placement/activation.h"

namespace pare::quant {
namespace {

constexpr const char* kTargets[] = {"pare", "tensorrt", "onnxruntime"};
constexpr int kGroup = 128;       // what INT4 kernels of every runtime take
constexpr int kSmallestFit = 16;  // inputs that are worth a scale of their own

Format channel(DType dtype) { return {dtype, Granularity::kChannel, 0, true}; }
Format tensor(DType dtype, bool symmetric = true) { return {dtype, Granularity::kTensor, 0, symmetric}; }

Format blocks(DType dtype, int block, DType scales = DType::kF32, bool symmetric = true, int bits = 0) {
  Format format{dtype, Granularity::kBlock, block, symmetric};
  format.scales = scales;
  format.bits = bits;
  return format;
}

// As DeepSeek has FP8: blocks of weights are squares.
Format squares(DType dtype, int side) {
  Format format = blocks(dtype, side);
  format.rows = side;
  return format;
}

Format at_run_time(Format format) {
  format.dynamic = true;
  return format;
}

Format per_token(Format format) {
  format.granularity = Granularity::kToken;
  return at_run_time(format);
}

// The names that recipes use, as weights and as activations.
struct NamedFormat {
  const char* name;
  Format weights, activations;
};

const std::vector<NamedFormat>& named_formats() {
  const auto mx = [](DType dtype) { return blocks(dtype, 32, DType::kE8M0); };
  const Format nvfp4 = blocks(DType::kE2M1, 16, DType::kE4M3FN);
  static const std::vector<NamedFormat> table = {
      {"int8", channel(DType::kI8), tensor(DType::kI8)},
      {"uint8", {DType::kU8, Granularity::kChannel, 0, false}, tensor(DType::kU8, false)},
      {"int16", channel(DType::kI16), tensor(DType::kI16)},
      {"uint16", {DType::kU16, Granularity::kChannel, 0, false}, tensor(DType::kU16, false)},
      {"fp8", channel(DType::kE4M3FN), tensor(DType::kE4M3FN)},
      {"fp8_e5m2", channel(DType::kE5M2), tensor(DType::kE5M2)},
      {"int4", blocks(DType::kI4, kGroup), tensor(DType::kI4)},
      {"uint4", blocks(DType::kU4, kGroup, DType::kF32, false), tensor(DType::kU4, false)},
      {"int3", blocks(DType::kI4, kGroup, DType::kF32, true, 3), {}},
      {"int2", blocks(DType::kI2, 64), {}},
      {"nvfp4", nvfp4, nvfp4},
      {"mxfp4", mx(DType::kE2M1), at_run_time(mx(DType::kE2M1))},
      {"mxfp8", mx(DType::kE4M3FN), at_run_time(mx(DType::kE4M3FN))},
  };
  return table;
}

Format named(const std::string& text, bool on_weights) {
  if (text == "none") return {};
  std::string list;
  const FormatInfo* info = find_format(text);  // other spellings: "e4m3", "float8_e5m2", "I8"
  for (const NamedFormat& row : named_formats()) {
    const Format& format = on_weights ? row.weights : row.activations;
    if (!format.active()) continue;
    const bool plain = format.scales == DType::kF32 && format.bits == 0;
    if (text == row.name || (plain && info != nullptr && info->dtype == format.dtype)) return format;
    list += (list.empty() ? "" : ", ") + std::string(row.name);
  }
  throw make_error(ErrorCode::kUnsupported, "{} are not quantized to {}",
                   on_weights ? "weights" : "activations", text)
      .hint("formats: " + list);
}

bool is_integer(const Format& format) { return find_format(format.dtype)->is_integer(); }
bool has_blocks(const Format& format) { return format.granularity == Granularity::kBlock; }

void check_weight(const Format& f) {
  if (!f.active()) return;
  if (!f.symmetric && !is_integer(f))
    throw make_error(ErrorCode::kUsage, "{} has no zero point", name(f.dtype)).hint("symmetric: true");
  if (has_blocks(f) != (f.block > 0))
    throw make_error(ErrorCode::kUsage, "weights with {} of {}", name(f.granularity), f.block)
        .hint("granularity: block needs a group_size above 0");
  if (f.rows != 1 && (f.rows < 1 || !has_blocks(f) || !f.symmetric || format_info(f.scales).bits < 16))
    throw make_error(ErrorCode::kUsage, "weights in {} have no blocks of {} outputs", to_string(f), f.rows)
        .hint("format fp8 with granularity block");
  if ((f.scales == DType::kE4M3FN || f.scales == DType::kE8M0) && !has_blocks(f))
    throw make_error(ErrorCode::kUsage, "weights in {} have scales for blocks", to_string(f))
        .hint("granularity: block");
}

void check_pair(const Format& weights, const Format& activations) {
  check_weight(weights);
  check_activation(activations);
  if (!weights.active() || !activations.active()) return;
  // Weights of 4 bits and fewer are widened to whatever the activations are.
  if (format_info(weights.dtype).bits >= 8 && is_integer(weights) != is_integer(activations))
    throw make_error(ErrorCode::kUsage, "weights in {} and activations in {} do not meet in one kernel",
                     name(weights.dtype), name(activations.dtype))
        .hint("both integer, or both 8-bit float");
}

}  // namespace

Target target_from_name(const std::string& text) {
  for (int i = 0; i < 3; ++i)
    if (text == kTargets[i]) return static_cast<Target>(i);
  throw make_error(ErrorCode::kUsage, "unknown target '{}'", text).hint("one of pare, tensorrt, onnxruntime");
}

const char* name(Target target) { return kTargets[static_cast<int>(target)]; }

const char* name(Granularity granularity) {
  constexpr const char* kNames[] = {"tensor", "channel", "block", "token"};
  return kNames[static_cast<int>(granularity)];
}

std::string to_string(const Format& format) {
  if (!format.active()) return "float32";
  std::string text = format.bits > 0 ? fmt::format("int{} in ", format.bits) : "";
  text += fmt::format("{}, per {}", name(format.dtype), name(format.granularity));
  if (has_blocks(format) && format.rows > 1)
    text += fmt::format(" of {}x{}", format.rows, format.block);
  else if (has_blocks(format))
    text += fmt::format(" of {}", format.block);
  if (!format.symmetric) text += ", asymmetric";
  if (format.scales == DType::kE4M3FN) text += ", two levels of scales";
  if (format.scales != DType::kF32) text += fmt::format(", scales {}", name(format.scales));
  if (format.dynamic) text += ", dynamic";
  if (format.fitted) text += ", scales of least error";
  return text;
}

const std::vector<std::string>& methods() {
  static const std::vector<std::string> names = {"auto",    "rtn",     "search",      "local_hessian",
                                                 "gptq",    "awq",     "smoothquant", "equalize",
                                                 "learned", "low_rank"};
  return names;
}

namespace {

void check_method(const std::string& method) {
  const std::vector<std::string>& names = methods();
  if (std::find(names.begin(), names.end(), method) != names.end()) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "methods: " : ", ") + name;
  throw make_error(ErrorCode::kUsage, "there is no method '{}'", method).hint(list);
}

}  // namespace

GridFormat grid_format(const Format& format) {
  GridFormat grid;
  grid.codes = format.dtype;
  grid.bits = format.bits;
  grid.symmetric = format.symmetric;
  grid.positive = format.positive;
  grid.scales = format.scales;
  grid.group = has_blocks(format) ? format.block : 0;
  grid.rows = format.rows;
  return grid;
}

Format weight_format(const std::string& text) { return named(text, true); }
Format activation_format(const std::string& text) { return named(text, false); }

namespace {

// Blocks along inputs that are looked at a tap at a time: too few of them, or rows that blocks would join.
bool has_no_room(const Format& format, std::int64_t ins, std::int64_t taps) {
  return taps > 1 && (format.rows > 1 || (is_integer(format) && ins < kSmallestFit));
}

}  // namespace

bool groups_misfit(const LayerGroups& one) {
  const Format& format = one.format;
  if (!has_blocks(format) || !format.asked || has_no_room(format, one.ins, one.taps)) return false;
  return (format.block < one.ins || !is_integer(format)) && one.ins % format.block != 0;
}

void check_groups(const std::vector<LayerGroups>& layers) {
  const LayerGroups* first = nullptr;
  for (const LayerGroups& one : layers)
    if (first == nullptr && groups_misfit(one)) first = &one;
  if (first == nullptr) return;
  std::size_t misfits = 0;
  std::int64_t divides = 1, power = 1;
  for (const LayerGroups& one : layers) misfits += one.format == first->format && groups_misfit(one) ? 1 : 0;
  for (std::int64_t size = 1; size < first->format.block; ++size) {
    const bool all = std::none_of(layers.begin(), layers.end(), [&](const LayerGroups& one) {
      LayerGroups other = one;
      other.format.block = static_cast<int>(size);
      return one.format == first->format && groups_misfit(other);
    });
    if (!all) continue;
    divides = size;
    if ((size & (size - 1)) == 0) power = size;
  }
  const std::string does =
      layers.size() > 1 ? "is the largest that does in every layer" : "is the largest that does";
  throw make_error(ErrorCode::kUsage, "a group of {} does not divide its {} inputs{}", first->format.block,
                   first->ins, misfits == 1 ? "" : fmt::format(", nor those of {} more layers", misfits - 1))
      .at(first->layer.empty() ? "" : fmt::format("layer '{}'", first->layer))
      .hint(divides == power ? fmt::format("{} {}", divides, does)
                             : fmt::format("{} {}, {} the largest power of two", divides, does, power));
}

Format fit_block(const Format& format, std::int64_t ins, std::int64_t taps, Target target,
                 const std::string& layer) {
  const std::string where = layer.empty() ? "" : fmt::format("layer '{}'", layer);
  if (!has_blocks(format)) return format;
  Format fit = format;
  const bool integer = is_integer(format);
  if (has_no_room(format, ins, taps)) {
    fit.granularity = Granularity::kChannel;
    fit.block = 0;
    fit.rows = 1;
    return fit;
  }
  if (format.block >= ins && integer) fit.block = static_cast<int>(std::max<std::int64_t>(ins, 1));
  if (ins % fit.block == 0) return fit;
  check_groups({{layer, ins, taps, format}});
  std::int64_t power = 1;
  while (ins % (power * 2) == 0 && power * 2 < format.block) power *= 2;
  if (integer && power >= kSmallestFit) {
    fit.block = static_cast<int>(power);
    return fit;
  }
  if (target == Target::kTensorRT)
    throw make_error(ErrorCode::kUnsupported,
                     "blocks of {} do not divide its {} inputs, and TensorRT takes "
                     "whole blocks only",
                     format.block, ins)
        .at(where)
        .hint("leave the layer in float with --exclude (quantize.ignore), or use another target");
  return fit;  // ONNX allows a short last block
}

void check(const Spec& spec) {
  check_pair(spec.weights, spec.activations);
  for (const Rule& rule : spec.rules)
    check_pair(rule.weights.value_or(spec.weights), rule.activations.value_or(spec.activations));
  check_method(spec.method);
  for (const Rule& rule : spec.rules)
    if (rule.method) check_method(*rule.method);
  const Format& cache = spec.kv_cache;
  if (cache.active()) {
    if ((cache.dtype != DType::kE4M3FN && cache.dtype != DType::kI8) || !cache.symmetric || cache.dynamic ||
        cache.granularity != Granularity::kTensor)
      throw make_error(ErrorCode::kUnsupported, "keys and values are not quantized to {}", to_string(cache))
          .hint("fp8 or int8");
    if (spec.target != Target::kPare)
      throw make_error(ErrorCode::kUnsupported, "target {} has no form for a quantized KV cache",
                       name(spec.target))
          .hint("target: pare, whose checkpoint formats have scales for it");
  }
  if (!spec.weights.active() && !spec.activations.active())
    throw make_error(ErrorCode::kUsage, "neither weights nor activations are to be quantized")
        .hint("name a scheme, or a format for one of them");
}

const std::vector<Scheme>& schemes() {
  const auto w = [](const char* text) { return weight_format(text); };
  const auto a = [](const char* text) { return activation_format(text); };
  static const std::vector<Scheme> table = {
      {"int8", "INT8 weights per channel, INT8 activations per tensor (W8A8)", w("int8"), a("int8")},
      {"uint8", "INT8 weights per channel, UINT8 activations per tensor with zero point", w("int8"),
       a("uint8")},
      {"a16w8", "INT8 weights per channel, INT16 activations per tensor", w("int8"), a("int16")},
      {"fp8", "FP8 E4M3 weights per channel, FP8 E4M3 activations per tensor (W8A8)", w("fp8"), a("fp8")},
      {"uint8_dynamic",
       "INT8 weights per channel, UINT8 activations per tensor, scales at run time (DynamicQuantizeLinear)",
       w("int8"), at_run_time(a("uint8"))},
      {"int8_dynamic", "INT8 weights per channel, INT8 activations per token, scales at run time", w("int8"),
       per_token(a("int8"))},
      {"fp8_dynamic", "FP8 E4M3 weights per channel, FP8 E4M3 activations per token, scales at run time",
       w("fp8"), per_token(a("fp8"))},
      {"int8_weights", "INT8 weights per channel, float activations (W8A16)", w("int8"), {}},
      {"fp8_weights", "FP8 E4M3 weights per channel, float activations", w("fp8"), {}},
      {"int4", "INT4 weights in groups of 128, float activations (W4A16)", w("int4"), {}},
      {"uint4", "UINT4 weights with zero points in groups of 128, float activations", w("uint4"), {}},
      {"int3", "INT3 weights (stored as INT4) in groups of 128, float activations", w("int3"), {}},
      {"int2", "INT2 weights in groups of 64, float activations", w("int2"), {}},
      {"nvfp4",
       "FP4 weights in blocks of 16 with E4M3 scales below a float32 one, float activations",
       w("nvfp4"),
       {}},
      {"mxfp4", "FP4 weights in blocks of 32 with power-of-two scales, float activations", w("mxfp4"), {}},
      {"mxfp8",
       "FP8 E4M3 weights in blocks of 32 with power-of-two scales, float activations",
       w("mxfp8"),
       {}},
      {"w4a8", "INT4 weights in groups of 128, INT8 activations per tensor", w("int4"), a("int8")},
      {"w4a8_fp8", "INT4 weights in groups of 128, FP8 E4M3 activations per tensor", w("int4"), a("fp8")},
      {"nvfp4_fp8", "NVFP4 weights, FP8 E4M3 activations per tensor", w("nvfp4"), a("fp8")},
      {"nvfp4_w4a4", "NVFP4 weights and activations; block scales of activations at run time (W4A4)",
       w("nvfp4"), a("nvfp4")},
      {"mxfp4_w4a4", "MXFP4 weights and activations; scales of activations at run time (W4A4)", w("mxfp4"),
       a("mxfp4")},
      {"mxfp8_w8a8", "MXFP8 weights and activations; scales of activations at run time (W8A8)", w("mxfp8"),
       a("mxfp8")},
      // The presets of compressed-tensors, by their names.
      {"W4A16", "as int4", w("int4"), {}},
      {"W4A16_ASYM", "as uint4", w("uint4"), {}},
      {"W8A16", "as int8_weights", w("int8"), {}},
      {"W8A8", "as int8_dynamic", w("int8"), per_token(a("int8"))},
      {"INT8", "as int8_dynamic", w("int8"), per_token(a("int8"))},
      {"W4A8", "INT4 weights in groups of 128, INT8 activations per token, scales at run time", w("int4"),
       per_token(a("int8"))},
      {"W4AFP8", "INT4 weights in groups of 128, FP8 E4M3 activations per token, scales at run time",
       w("int4"), per_token(a("fp8"))},
      {"FP8", "FP8 E4M3 weights and activations per tensor", tensor(DType::kE4M3FN), a("fp8")},
      {"FP8_DYNAMIC", "as fp8_dynamic", w("fp8"), per_token(a("fp8"))},
      {"FP8_BLOCK",
       "FP8 E4M3 weights in blocks of 128x128, FP8 E4M3 activations in groups of 128 of a token, scales at "
       "run time",
       squares(DType::kE4M3FN, kGroup), at_run_time(blocks(DType::kE4M3FN, kGroup))},
      {"NVFP4A16", "as nvfp4", w("nvfp4"), {}},
      {"NVFP4", "as nvfp4_w4a4", w("nvfp4"), a("nvfp4")},
      {"MXFP4A16", "as mxfp4", w("mxfp4"), {}},
      {"MXFP4", "as mxfp4_w4a4", w("mxfp4"), a("mxfp4")},
      {"MXFP8A16", "as mxfp8", w("mxfp8"), {}},
      {"MXFP8", "as mxfp8_w8a8", w("mxfp8"), a("mxfp8")},
  };
  return table;
}

namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Another scheme that is called so but for case.
const Scheme* sibling(const Scheme& scheme) {
  for (const Scheme& other : schemes())
    if (&other != &scheme && lower(other.name) == lower(scheme.name) &&
        !(other.weights == scheme.weights && other.activations == scheme.activations))
      return &other;
  return nullptr;
}

std::string inputs_of(const Scheme& scheme) {
  const Format& inputs = scheme.activations;
  if (!inputs.active()) return "leaves inputs float";
  return fmt::format("has {} inputs, {}", pare::name(inputs.dtype),
                     inputs.dynamic ? "scales at run time" : "scales from calibration");
}

}  // namespace

std::string same_letters(const Scheme& scheme) {
  const Scheme* other = sibling(scheme);
  return other == nullptr
             ? ""
             : fmt::format("{} {}; {} {}", scheme.name, inputs_of(scheme), other->name, inputs_of(*other));
}

std::string scheme_hint(const std::string& text) {
  std::vector<const char*> known;
  std::string list;
  for (const Scheme& scheme : schemes()) {
    known.push_back(scheme.name);
    list += (list.empty() ? "" : ", ") + std::string(scheme.name);
  }
  const std::string near = nearest_word(text, known.data(), known.size());
  if (near.empty()) return "one of " + list + " (`pare ops --formats` says what they are)";
  const std::string both = same_letters(scheme_from_name(near));
  return fmt::format("did you mean '{}'? {}`pare ops --formats` lists all", near,
                     both.empty() ? "" : both + "; ");
}

const Scheme& scheme_from_name(const std::string& text) {
  for (const Scheme& scheme : schemes())
    if (text == scheme.name) return scheme;
  throw make_error(ErrorCode::kUsage, "unknown scheme '{}'", text).hint(scheme_hint(text));
}

}  // namespace pare::quant
