#include "quant/placement/target_rules.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

bool is_one_of(DType type, std::initializer_list<DType> list) {
  return std::find(list.begin(), list.end(), type) != list.end();
}

std::string tensorrt_refuses(const Format& f, Role role) {
  const char* type = name(f.dtype);
  if (!f.symmetric) return "TensorRT has no zero points";
  const bool block = f.granularity == Granularity::kBlock;
  if (!is_one_of(f.dtype, {DType::kI8, DType::kI4, DType::kE4M3FN, DType::kE2M1}))
    return fmt::format("TensorRT has no {}; it has int8, int4, float8_e4m3fn and float4_e2m1", type);
  if (f.dtype == DType::kE2M1 && f.scales == DType::kE8M0)
    return "TensorRT has float4_e2m1fn with float8_e4m3fn scales only (nvfp4)";
  if (role == Role::kActivation) {
    if (f.dynamic && !block)
      return fmt::format("TensorRT makes scales at run time for blocks only, not per {}",
                         name(f.granularity));
    if (f.fitted) return "TensorRT makes the scales of blocks from their largest magnitudes";
    if (f.dtype == DType::kI4) return "TensorRT has int4 for weights only";
    if (f.granularity == Granularity::kChannel) return "TensorRT has one scale for a whole activation";
    if (block && f.dtype == DType::kI8) return "TensorRT has no blocks of int8";
    return "";
  }
  if (block && f.dtype == DType::kI8) return "TensorRT has no blocks of int8";
  if (!block && is_one_of(f.dtype, {DType::kI4, DType::kE2M1}))
    return fmt::format("TensorRT has {} in blocks only", type);
  return "";
}

std::string onnxruntime_refuses(const Format& f, Role role) {
  const char* type = name(f.dtype);
  if (f.scales == DType::kE8M0) return "ONNX Runtime's DequantizeLinear has no float8e8m0 scales";
  if (!is_one_of(f.dtype, {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI4, DType::kU4,
                           DType::kI2, DType::kU2, DType::kE4M3FN, DType::kE5M2}))
    return fmt::format("ONNX Runtime's QuantizeLinear has no {}", type);
  if (role == Role::kActivation && f.granularity == Granularity::kChannel)
    return "ONNX Runtime's integer kernels take one scale for a whole activation";
  return "";
}

// The axis of a Q/DQ node's scales, as a count of scales.
std::int64_t scale_count(const Graph& graph, const Node& node) {
  return graph.is_constant(node.in[1]) ? graph.value(node.in[1]).constant.size() : 1;
}

bool all_positive(const Tensor& scale) {
  if (scale.dtype() != DType::kF32) return true;  // half types: checked by whoever converts them
  const float* s = scale.as<float>();
  return std::all_of(s, s + scale.size(), [](float v) { return v > 0; });
}

bool all_zero(const Tensor& zero) {
  const auto* bytes = static_cast<const std::uint8_t*>(static_cast<const void*>(zero.data()));
  return std::all_of(bytes, bytes + zero.bytes(), [](std::uint8_t b) { return b == 0; });
}

void check_node_for_tensorrt(const Graph& graph, const SubgraphPath& path, const Graph& whole,
                             const Node& node) {
  const bool q = node.is("QuantizeLinear");
  if (!q && !node.is("DequantizeLinear")) return;
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    std::string where = node.name.empty() ? graph.value(node.out[0]).name : node.name;
    if (!path.empty()) where = to_string(whole, path) + "/" + where;
    throw make_error(ErrorCode::kUnsupported, "{}", what).at(where).hint(hint);
  };
  if (!graph.is_constant(node.in[1])) return;
  if (!all_positive(graph.value(node.in[1]).constant))
    refuse("TensorRT takes scales above zero only; this Q/DQ of the model has another",
           "target: onnxruntime or pare keeps it");
  if (graph.value(node.in[0]).dtype == DType::kI32) return;  // a bias
  if (node.in.size() > 2 && graph.is_constant(node.in[2]) && !all_zero(graph.value(node.in[2]).constant))
    refuse("TensorRT has no zero points; this Q/DQ of the model has one",
           "target: onnxruntime or pare keeps it");
  if (q && !graph.is_constant(node.in[0]) && scale_count(graph, node) > 1 &&
      node.attr("block_size", std::int64_t{0}) == 0)
    refuse("TensorRT has one scale for a whole activation; this Q/DQ of the model has one a channel",
           "target: pare keeps it");
}

}  // namespace

std::string why_target_refuses(Target target, const Format& format, Role role) {
  if (!format.active()) return "";
  if (target == Target::kTensorRT) return tensorrt_refuses(format, role);
  if (target == Target::kOnnxRuntime) return onnxruntime_refuses(format, role);
  return "";
}

void check_target(const Spec& spec) {
  const auto check_one = [&](const Format& format, Role role, const std::string& where) {
    const std::string why = why_target_refuses(spec.target, format, role);
    if (why.empty()) return;
    throw make_error(ErrorCode::kUnsupported, "target {} cannot hold {} {}: {}", name(spec.target),
                     role == Role::kWeight ? "weights in" : "activations in", to_string(format), why)
        .at(where)
        .hint(spec.target == Target::kTensorRT &&
                      why_target_refuses(Target::kOnnxRuntime, format, role).empty()
                  ? "choose another format, or target: onnxruntime or pare"
                  : "choose another format, or target: pare");
  };
  check_one(spec.weights, Role::kWeight, "quantize.weights");
  check_one(spec.activations, Role::kActivation, "quantize.activations");
  for (std::size_t i = 0; i < spec.rules.size(); ++i) {
    const std::string where = fmt::format("quantize.rules[{}]", i);
    if (spec.rules[i].weights) check_one(*spec.rules[i].weights, Role::kWeight, where);
    if (spec.rules[i].activations) check_one(*spec.rules[i].activations, Role::kActivation, where);
  }
}

bool takes_negative_scales(Target target) { return target != Target::kTensorRT; }

void check_model_for_target(const Graph& graph, Target target) {
  if (target != Target::kTensorRT) return;
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& scope) {
    for (const NodeId id : scope.nodes()) check_node_for_tensorrt(scope, path, graph, scope.node(id));
  });
}

}  // namespace pare::quant
