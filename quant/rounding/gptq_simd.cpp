#include "quant/rounding/gptq_simd.h"

namespace pare::PARE_SIMD {

void gptq_block(const quant::GptqBlock& b) {
  constexpr std::int64_t kRows = quant::kGptqRows;
  const quant::Ladder ladder = b.ladder;
  for (std::int64_t i = 0; i < b.columns; ++i) {
    const float* __restrict w = b.weight + i * kRows;
    const float* __restrict s = b.scale + i * kRows;
    const float* __restrict z = b.zero + i * kRows;
    const float* __restrict f = b.feedback + i * kRows;
    float* __restrict level = b.level + i * kRows;
    float* __restrict error = b.error + i * kRows;
    for (std::int64_t r = 0; r < kRows; ++r) {
      level[r] = ladder.round((w[r] + f[r]) / s[r], z[r]);
      error[r] = w[r] - level[r] * s[r];
    }
    if (b.loss != nullptr)
      for (std::int64_t r = 0; r < kRows; ++r) {
        const float left = error[r] + f[r];
        b.loss[r] = std::fma(b.pivot[i] * left, left, b.loss[r]);
      }
    const float* upper = b.upper + i * b.upper_stride;
    constexpr int kVectors = static_cast<int>(kRows) / F32::kLanes;
    constexpr int kHeld = kVectors < 8 ? kVectors : 8;
    for (int part = 0; part < kVectors; part += kHeld) {
      F32 e[kHeld];
      PARE_UNROLL for (int v = 0; v < kHeld; ++v) e[v] = F32::load(error + (part + v) * F32::kLanes);
      for (std::int64_t j = i + 1; j < b.columns; ++j) {
        float* to = b.feedback + j * kRows + part * F32::kLanes;
        const F32 u = F32::set(upper[j]);
        PARE_UNROLL for (int v = 0; v < kHeld; ++v) fma(u, e[v], F32::load(to + v * F32::kLanes))
            .store(to + v * F32::kLanes);
      }
    }
  }
}

}  // namespace pare::PARE_SIMD
