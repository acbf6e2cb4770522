#include "quant/placement/activation.h"

#include <algorithm>
#include <cmath>

#include "calib/ranges.h"
#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

bool is_nvfp4(const Format& format) {
  return format.dtype == DType::kE2M1 && format.granularity == Granularity::kBlock && format.block == 16;
}

}  // namespace

void check_activation(const Format& f) {
  if (!f.active()) return;
  const FormatInfo& info = format_info(f.dtype);
  const bool known = (info.is_integer() && (info.bits == 4 || info.bits == 8 || info.bits == 16)) ||
                     f.dtype == DType::kE4M3FN || f.dtype == DType::kE5M2 || f.dtype == DType::kE2M1;
  if (!known)
    throw make_error(ErrorCode::kUnsupported, "activations are not quantized to {}", info.name)
        .hint("int8, uint8, int16, uint16, int4, uint4, float8_e4m3fn, float8_e5m2");
  if (!f.symmetric && !info.is_integer())
    throw make_error(ErrorCode::kUsage, "{} has no zero point", info.name).hint("symmetric: true");
  if (f.granularity == Granularity::kToken && !f.dynamic)
    throw make_error(ErrorCode::kUsage, "scales per token are made at run time").hint("dynamic: true");
  if (f.granularity == Granularity::kChannel && f.dynamic)
    throw make_error(ErrorCode::kUnsupported, "dynamic scales per channel are not available")
        .hint("granularity: token or tensor");
  const bool per_row = f.granularity == Granularity::kTensor || f.granularity == Granularity::kToken;
  if (f.dynamic && !f.symmetric && (!per_row || f.dtype != DType::kU8))
    throw make_error(ErrorCode::kUnsupported,
                     "dynamic quantization with zero points is uint8, per tensor or token")
        .hint("symmetric: true, or format uint8 with granularity tensor or token");
  if (f.granularity == Granularity::kToken && f.symmetric && !info.is_signed)
    throw make_error(ErrorCode::kUnsupported, "scales per token are for signed codes, not {}", info.name)
        .hint("format: int8, or symmetric: false");
  if (f.fitted && f.granularity != Granularity::kBlock)
    throw make_error(ErrorCode::kUnsupported, "scales of least error at run time are for blocks")
        .hint("leave quantize.activations.search out");
  if (f.granularity == Granularity::kBlock && info.is_integer())
    throw make_error(ErrorCode::kUnsupported, "activations are not quantized to {} in blocks", info.name)
        .hint("granularity: tensor, channel or token");
}

int summed_axis(const Node& node, int slot, int rank) {
  if (node.is("MatMul")) return slot == 0 ? rank - 1 : std::max(rank - 2, 0);
  if (node.is("Gemm")) {
    const bool transposed = node.attr(slot == 0 ? "transA" : "transB", std::int64_t{0}) != 0;
    return (slot == 0) != transposed ? 1 : 0;
  }
  return rank > 1 ? 1 : 0;
}

int activation_axis(const Graph& graph, const ActivationSite& site) {
  const int rank = graph.value(site.value).shape.rank();
  for (const Use& use : site.uses) {
    const Node& node = graph.node(use.node);
    if (node.is("MatMul") || node.is("Gemm")) return summed_axis(node, use.slot, rank);
  }
  return rank > 1 ? 1 : 0;
}

std::string why_no_tokens(const Graph& graph, const Node& node, const Format& activations) {
  if (!activations.active() || activations.granularity != Granularity::kToken) return "";
  if (!node.is("MatMul") && !node.is("Gemm"))
    return fmt::format("scales per token have no meaning for {}, which sums over places as well", node.op);
  for (int slot = 0; slot < 2; ++slot) {
    const ValueId in = node.in[static_cast<std::size_t>(slot)];
    if (graph.is_constant(in)) continue;
    const Shape& shape = graph.value(in).shape;
    if (shape.rank() < 1) return "scales per token need the rank of its inputs";
    const int axis = summed_axis(node, slot, shape.rank());
    if (!shape.dims[static_cast<std::size_t>(axis)].known())
      return fmt::format("scales per token need the size of axis {} of {}, the one that is summed over", axis,
                         to_string(shape));
  }
  return "";
}

bool needs_statistics(const Format& format) {
  return format.active() && !format.dynamic &&
         (format.granularity != Granularity::kBlock || is_nvfp4(format));
}

bool needs_statistics(const Spec& spec) {
  return needs_statistics(spec.activations) || needs_statistics(spec.kv_cache) ||
         std::any_of(spec.rules.begin(), spec.rules.end(), [](const Rule& rule) {
           return rule.activations && needs_statistics(*rule.activations);
         });
}

ActivationPlan activation_from_range(const Format& format, const ChosenRange& range) {
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low > range.high)
    throw make_error(ErrorCode::kUsage, "the range [{}, {}] cannot be quantized", range.low, range.high)
        .hint("calibrate again with samples that look like those in service");
  const FormatInfo& info = format_info(format.dtype);
  ActivationPlan plan;
  plan.range = range;
  const double low = std::min(range.low, 0.0), high = std::max(range.high, 0.0);
  double scale = 0;
  if (!format.symmetric)
    scale = (high - low) / (info.largest - info.lowest());
  else if (is_nvfp4(format))
    scale = std::max(-low, high) / (info.largest * symmetric_largest(DType::kE4M3FN));
  else
    scale = std::max(-low, high) / symmetric_largest(format.dtype);
  plan.scale = static_cast<float>(scale);
  if (!std::isnormal(plan.scale)) plan.scale = 1.0f;  // nothing but zeros, or too small to divide by
  if (!format.symmetric) {
    const double zero = std::nearbyint(info.lowest() - low / static_cast<double>(plan.scale));
    plan.zero_point = static_cast<std::int32_t>(std::clamp(zero, info.lowest(), info.largest));
  } else if (info.is_integer() && !info.is_signed) {
    plan.zero_point = static_cast<std::int32_t>(symmetric_largest(format.dtype)) + 1;
  }
  return plan;
}

ActivationPlan activation_from_ranges(const Format& format, const std::vector<ChosenRange>& channels) {
  PARE_ASSERT(!channels.empty());
  ActivationPlan whole;
  whole.range = channels.front();
  for (const ChosenRange& range : channels) {
    const ActivationPlan one = activation_from_range(format, range);
    whole.channel_scales.push_back(one.scale);
    whole.channel_zero_points.push_back(one.zero_point);
    whole.range.low = std::min(whole.range.low, range.low);
    whole.range.high = std::max(whole.range.high, range.high);
  }
  whole.scale = *std::max_element(whole.channel_scales.begin(), whole.channel_scales.end());
  return whole;
}

}  // namespace pare::quant
