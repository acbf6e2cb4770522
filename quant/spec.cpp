#include "quant/spec.h"

#include "engine/base/error.h"
#include "engine/numeric/table.h"
#include "quant/activation.h"

namespace pare::quant {
namespace {

constexpr const char* kTargets[] = {"pare", "tensorrt", "onnxruntime"};

Format channel(DType dtype) { return {dtype, Granularity::kChannel, 0, true}; }
Format tensor(DType dtype, bool symmetric = true) { return {dtype, Granularity::kTensor, 0, symmetric}; }

bool is_supported(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kE4M3FN || dtype == DType::kE5M2;
}

void check_pair(const Format& weights, const Format& activations) {
  check_activation(activations);
  if (weights.active()) {
    if (!is_supported(weights.dtype))
      throw make_error(ErrorCode::kUnsupported, "quantizing to {} is not available", name(weights.dtype))
          .hint("formats: int8, uint8, float8_e4m3fn, float8_e5m2");
    if (weights.granularity == Granularity::kBlock)
      fail(ErrorCode::kUnsupported, "block-wise scales are not available for {}", name(weights.dtype));
  }
  if (weights.active() && (weights.dtype == DType::kU8 || !weights.symmetric))
    throw make_error(ErrorCode::kUnsupported, "weights are quantized symmetrically")
        .hint("format: int8 or float8_e4m3fn, symmetric: true");
  if (weights.active() && activations.active() &&
      find_format(weights.dtype)->is_integer() != find_format(activations.dtype)->is_integer())
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
  std::string text = fmt::format("{}, per {}", name(format.dtype), name(format.granularity));
  if (format.granularity == Granularity::kBlock) text += fmt::format(" of {}", format.block);
  if (!format.symmetric) text += ", asymmetric";
  if (format.dynamic) text += ", dynamic";
  return text;
}

void check(const Spec& spec) {
  check_pair(spec.weights, spec.activations);
  for (const Rule& rule : spec.rules)
    check_pair(rule.weights.value_or(spec.weights), rule.activations.value_or(spec.activations));
  if (spec.method != "auto" && spec.method != "rtn" && spec.method != "search")
    throw make_error(ErrorCode::kUnsupported, "method '{}' is not available", spec.method)
        .hint("methods: rtn (largest magnitude), search (least squared error), auto");
  if (!spec.weights.active() && !spec.activations.active())
    fail(ErrorCode::kUsage, "neither weights nor activations are to be quantized");
}

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> table = {
      {"int8", "INT8 weights per channel, INT8 activations per tensor (W8A8)", channel(DType::kI8),
       tensor(DType::kI8)},
      {"uint8", "INT8 weights per channel, UINT8 activations per tensor with zero point", channel(DType::kI8),
       tensor(DType::kU8, false)},
      {"fp8", "FP8 E4M3 weights per channel, FP8 E4M3 activations per tensor (W8A8)", channel(DType::kE4M3FN),
       tensor(DType::kE4M3FN)},
      {"int8_weights", "INT8 weights per channel, float activations (W8A16)", channel(DType::kI8), {}},
      {"fp8_weights", "FP8 E4M3 weights per channel, float activations", channel(DType::kE4M3FN), {}},
  };
  return table;
}

const Scheme& scheme_from_name(const std::string& text) {
  std::vector<const char*> known;
  std::string list;
  for (const Scheme& scheme : schemes()) {
    if (text == scheme.name) return scheme;
    known.push_back(scheme.name);
    list += (list.empty() ? "" : ", ") + std::string(scheme.name);
  }
  const std::string near = nearest_word(text, known.data(), known.size());
  throw make_error(ErrorCode::kUsage, "unknown scheme '{}'", text)
      .hint(near.empty() ? "one of " + list : "did you mean '" + near + "'? One of " + list);
}

}  // namespace pare::quant
