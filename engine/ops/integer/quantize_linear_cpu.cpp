// The array functions of engine/numeric over pieces of the tensor.
#include <algorithm>

#include "engine/base/grain.h"
#include "engine/ops/integer/quantize_linear.h"

namespace pare::quantize_linear {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements: enough to be worth a thread, whole bytes of any code

// Calls body(layout, first element, first scale) for pieces of the tensor that share no scale block and no
// byte.
template <typename Body>
void in_pieces(ThreadPool& pool, const ScaleLayout& whole, int code_bits, const Body& body) {
  const auto run = [&](std::int64_t count, std::int64_t elements_each, const auto& piece) {
    const bool bytes_are_shared = elements_each * code_bits % 8 != 0;
    if (bytes_are_shared || whole.count() < 2 * kGrain) return piece(std::int64_t{0}, count);
    const std::int64_t grain = grain_for(kGrain, elements_each);
    pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) { piece(begin, end); });
  };
  if (whole.count() == 0) return;
  if (whole.kind == ScaleLayout::Kind::kTensor) {
    run((whole.count() + 63) / 64, 64, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * 64, last = std::min(end * 64, whole.count());
      body(ScaleLayout::per_tensor(last - first), first, std::int64_t{0});
    });
    return;
  }
  const bool channels_alone = whole.kind == ScaleLayout::Kind::kChannel && whole.outer == 1;
  const std::int64_t units = channels_alone ? whole.channels : whole.outer;
  const std::int64_t each = whole.count() / units;
  const std::int64_t scales_each = whole.kind == ScaleLayout::Kind::kBlock ? whole.scales() / whole.outer
                                   : channels_alone                        ? 1
                                                                           : 0;
  run(units, each, [&](std::int64_t begin, std::int64_t end) {
    ScaleLayout part = whole;
    (channels_alone ? part.channels : part.outer) = end - begin;
    body(part, begin * each, begin * scales_each);
  });
}

template <Direction kDirection>
void run(const OpCall& call) {
  const Parameters p = parameters(call, kDirection);
  const int code_bits = kDirection == Direction::kFake ? 32 : bits(p.target.type);
  in_pieces(*call.pool, p.layout, code_bits,
            [&](const ScaleLayout& layout, std::int64_t first, std::int64_t scale) {
              const std::int32_t* zeros = p.zeros() == nullptr ? nullptr : p.zeros() + scale;
              const float* scales = p.scales + scale;
              if constexpr (kDirection == Direction::kQuantize)
                quantize(call.in[0].as<float>() + first, layout, scales, zeros, p.target,
                         call.out[0].mut<std::uint8_t>() + first * code_bits / 8);
              else if constexpr (kDirection == Direction::kDequantize)
                dequantize(p.target.type, call.in[0].as<std::uint8_t>() + first * code_bits / 8, layout,
                           scales, zeros, call.out[0].mut<float>() + first);
              else
                fake_quantize(call.in[0].as<float>() + first, layout, scales, zeros, p.target,
                              call.out[0].mut<float>() + first);
            });
}

template <Direction kDirection>
std::string reason(const OpCall& call) {
  return why_not(call, kDirection);
}

}  // namespace

Kernel quantize_rows_kernel() {
  return {"",
          "QuantizeLinear",
          Backend::kCpu,
          "QuantizeLinear/cpu:rows",
          reason<Direction::kQuantize>,
          nullptr,
          run<Direction::kQuantize>};
}

Kernel dequantize_rows_kernel() {
  return {"",
          "DequantizeLinear",
          Backend::kCpu,
          "DequantizeLinear/cpu:rows",
          reason<Direction::kDequantize>,
          nullptr,
          run<Direction::kDequantize>};
}

Kernel fake_quant_rows_kernel() {
  Kernel k = {
      "pare",  "FakeQuant",          Backend::kCpu, "pare.FakeQuant/cpu:rows", reason<Direction::kFake>,
      nullptr, run<Direction::kFake>};
  k.in_place = 1;
  return k;
}

}  // namespace pare::quantize_linear
