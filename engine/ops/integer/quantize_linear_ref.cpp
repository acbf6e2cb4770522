#include <algorithm>
#include <cmath>

#include "engine/numeric/table.h"
#include "engine/ops/integer/quantize_linear.h"

namespace pare::quantize_linear {
namespace {

// Which scale belongs to element i of [outer, channels, inner].
std::int64_t scale_index(const ScaleLayout& l, std::int64_t i) {
  if (l.kind == ScaleLayout::Kind::kTensor) return 0;
  const std::int64_t inner = i % l.inner, channel = i / l.inner % l.channels,
                     outer = i / l.inner / l.channels;
  if (l.kind == ScaleLayout::Kind::kChannel) return channel;
  const std::int64_t blocks = (l.channels + l.block - 1) / l.block;
  return (outer * blocks + channel / l.block) * l.inner + inner;
}

float code_of(float x, float scale, std::int32_t zero, const FormatInfo& format) {
  const float value = x / scale;
  if (std::isnan(value)) return static_cast<float>(zero);
  const float rounded = std::nearbyint(value) + static_cast<float>(zero);
  return std::clamp(rounded, static_cast<float>(format.lowest()), static_cast<float>(format.largest));
}

template <Direction kDirection>
void run(const OpCall& call) {
  const Parameters p = parameters(call, kDirection);
  const std::int64_t n = p.layout.count();
  const auto count = static_cast<std::size_t>(n);
  const bool integer = is_integer(p.target.type);
  std::vector<float> codes(count);  // their values, as floats
  if constexpr (kDirection == Direction::kDequantize) {
    if (p.target.type == DType::kI32)
      std::copy_n(call.in[0].as<std::int32_t>(), count, codes.begin());
    else
      format_info(p.target.type).decode(call.in[0].data, codes.data(), n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t s = scale_index(p.layout, i);
      const std::int32_t zero = p.zeros() == nullptr ? 0 : p.zeros()[s];
      const float x = call.in[0].as<float>()[i];
      codes[static_cast<std::size_t>(i)] =
          integer ? code_of(x, p.scales[s], zero, format_info(p.target.type)) : x / p.scales[s];
    }
  }
  if constexpr (kDirection == Direction::kQuantize) {
    format_info(p.target.type).encode(codes.data(), call.out[0].data, n);
    return;
  }
  if (kDirection == Direction::kFake && !integer) {
    std::vector<std::uint8_t> packed(count);
    format_info(p.target.type).encode(codes.data(), packed.data(), n);
    format_info(p.target.type).decode(packed.data(), codes.data(), n);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t s = scale_index(p.layout, i);
    const std::int32_t zero = p.zeros() == nullptr ? 0 : p.zeros()[s];
    call.out[0].mut<float>()[i] =
        (codes[static_cast<std::size_t>(i)] - static_cast<float>(zero)) * p.scales[s];
  }
}

template <Direction kDirection>
std::string reason(const OpCall& call) {
  if (kDirection != Direction::kDequantize && call.node->attr("saturate", std::int64_t{1}) == 0)
    return "does not know saturate = 0";
  return why_not(call, kDirection);
}

}  // namespace

Kernel quantize_ref_kernel() {
  return {"",
          "QuantizeLinear",
          Backend::kCpu,
          "QuantizeLinear/cpu:ref",
          reason<Direction::kQuantize>,
          nullptr,
          run<Direction::kQuantize>};
}

Kernel dequantize_ref_kernel() {
  return {"",
          "DequantizeLinear",
          Backend::kCpu,
          "DequantizeLinear/cpu:ref",
          reason<Direction::kDequantize>,
          nullptr,
          run<Direction::kDequantize>};
}

Kernel fake_quant_ref_kernel() {
  return {"pare",  "FakeQuant",          Backend::kCpu, "pare.FakeQuant/cpu:ref", reason<Direction::kFake>,
          nullptr, run<Direction::kFake>};
}

}  // namespace pare::quantize_linear
