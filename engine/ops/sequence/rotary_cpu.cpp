// RotaryEmbedding in float32: each product and each sum rounded once, places that do not turn are copied.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/registry.h"
#include "engine/ops/sequence/attention.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  for (const int i : {0, 1, 2})
    if (call.input(i).dtype != DType::kF32) return "float32 only";
  if (call.has(3) && call.input(3).dtype != DType::kI64) return "positions that are not int64";
  const std::size_t rank = call.in[0].dims.size();
  return rank == 3 || rank == 4 ? "" : "x has neither three nor four dimensions";
}

struct Layout {
  std::int64_t batch = 0, heads = 0, seq = 0, size = 0, dim = 0;
  bool seq_first = false;

  explicit Layout(const OpCall& call) {
    const Dims& d = call.in[0].dims;
    seq_first = d.size() == 3;
    batch = d[0];
    heads = seq_first ? std::max<std::int64_t>(1, call.node->attr("num_heads", std::int64_t{1})) : d[1];
    seq = d[seq_first ? 1 : 2];
    size = seq_first ? d[2] / heads : d[3];
    dim = call.node->attr("rotary_embedding_dim", std::int64_t{0});
    if (dim == 0) dim = size;
  }
  std::int64_t row(std::int64_t b, std::int64_t h, std::int64_t s) const {
    return (seq_first ? (b * seq + s) * heads + h : (b * heads + h) * seq + s) * size;
  }
};

void turn(const float* __restrict x, const float* __restrict c, const float* __restrict d,
          float* __restrict y, std::int64_t half, bool interleaved) {
  if (interleaved) {
    for (std::int64_t k = 0; k < half; ++k) {
      const float a = x[2 * k], b = x[2 * k + 1];
      y[2 * k] = a * c[k] - b * d[k];
      y[2 * k + 1] = a * d[k] + b * c[k];
    }
    return;
  }
  for (std::int64_t k = 0; k < half; ++k) y[k] = x[k] * c[k] - x[half + k] * d[k];
  for (std::int64_t k = 0; k < half; ++k) y[half + k] = x[k] * d[k] + x[half + k] * c[k];
}

void run(const OpCall& call) {
  const Layout l(call);
  const Dims& cache = call.in[1].dims;
  const std::int64_t half = l.dim / 2;
  const bool by_position = call.has(3), interleaved = call.node->attr("interleaved", std::int64_t{0}) != 0;
  const bool fits = by_position ? cache.size() == 2 && cache[1] == half : cache == Dims{l.batch, l.seq, half};
  if (l.dim > l.size || l.dim < 0 || l.dim % 2 != 0 || !fits || call.in[2].dims != cache)
    throw make_error(ErrorCode::kBadFile, "cos {} and sin {} do not fit {} with {} rotated places",
                     to_string(cache), to_string(call.in[2].dims), to_string(call.in[0].dims), l.dim);
  if (by_position && call.in[3].size() != l.batch * l.seq)
    throw make_error(ErrorCode::kBadFile, "position_ids {} do not fit {}", to_string(call.in[3].dims),
                     to_string(call.in[0].dims));
  const auto *x = call.in[0].as<float>(), *cosines = call.in[1].as<float>(), *sines = call.in[2].as<float>();
  auto* y = call.out[0].mut<float>();
  call.pool->parallel_for(l.batch * l.seq, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t b = at / l.seq, s = at % l.seq;
      const std::int64_t line = by_position ? call.in[3].as<std::int64_t>()[at] : at;
      if (by_position && (line < 0 || line >= cache[0]))
        throw make_error(ErrorCode::kBadFile, "position {} of {} cached ones", line, cache[0])
            .hint("the text is longer than the model's context");
      for (std::int64_t h = 0; h < l.heads; ++h) {
        const std::int64_t row = l.row(b, h, s);
        turn(x + row, cosines + line * half, sines + line * half, y + row, half, interleaved);
        std::copy_n(x + row + l.dim, l.size - l.dim, y + row + l.dim);
      }
    }
  });
}

}  // namespace

void add_rotary_kernels(Registry& registry) {
  registry.add({"", "RotaryEmbedding", Backend::kCpu, "RotaryEmbedding/cpu:rows", why_not, nullptr, run});
}

}  // namespace pare
