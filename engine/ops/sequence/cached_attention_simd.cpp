#include "engine/ops/sequence/cached_attention.h"

namespace pare::PARE_SIMD {
namespace {

constexpr int kLanes = F32::kLanes;
constexpr int kParts = static_cast<int>(kKeysOfBlock) / kLanes;  // vectors of a block of keys

template <int MR>
void scores_of(const float* q, std::int64_t size, const float* keys, std::int64_t past, float alpha,
               float* scores, std::int64_t stride) {
  const F32 factor = F32::set(alpha);
  for (std::int64_t first = 0; first < past; first += kKeysOfBlock) {
    for (int part = 0; part < kParts; ++part) {
      F32 sums[MR];
      PARE_UNROLL for (int r = 0; r < MR; ++r) sums[r] = F32::zero();
      const float* k = keys + part * kLanes;
      for (std::int64_t d = 0; d < size; ++d, k += kKeysOfBlock) {
        const F32 key = F32::load(k);
        PARE_UNROLL for (int r = 0; r < MR; ++r) sums[r] = fma(F32::set(q[r * size + d]), key, sums[r]);
      }
      PARE_UNROLL for (int r = 0; r < MR; ++r)(alpha != 1.0f ? factor * sums[r] : sums[r])
          .store(scores + r * stride + first + part * kLanes);
    }
    keys += size * kKeysOfBlock;
  }
}

template <int MR, int NV>
void values_of(const float* weights, std::int64_t stride, const float* values, std::int64_t past,
               const float* last, std::int64_t size, int lanes, float* y) {
  F32 sums[MR][NV];
  PARE_UNROLL for (int r = 0; r < MR; ++r) {
    PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = F32::zero();
  }
  for (std::int64_t p = 0; p <= past; ++p) {
    const float* from = p < past ? values + p * size : last;
    F32 row[NV];
    PARE_UNROLL for (int v = 0; v < NV; ++v) row[v] =
        v == NV - 1 ? F32::load(from + v * kLanes, lanes) : F32::load(from + v * kLanes);
    PARE_UNROLL for (int r = 0; r < MR; ++r) {
      const F32 weight = F32::set(weights[r * stride + p]);
      PARE_UNROLL for (int v = 0; v < NV; ++v) sums[r][v] = fma(weight, row[v], sums[r][v]);
    }
  }
  for (int r = 0; r < MR; ++r)
    for (int v = 0; v < NV; ++v) sums[r][v].store(y + r * size + v * kLanes, v == NV - 1 ? lanes : kLanes);
}

}  // namespace

void cached_scores(const float* q, std::int64_t rows, std::int64_t size, const float* keys, std::int64_t past,
                   float alpha, float* scores, std::int64_t stride) {
  switch (rows) {
    case 1:
      return scores_of<1>(q, size, keys, past, alpha, scores, stride);
    case 2:
      return scores_of<2>(q, size, keys, past, alpha, scores, stride);
    case 3:
      return scores_of<3>(q, size, keys, past, alpha, scores, stride);
    default:
      return scores_of<4>(q, size, keys, past, alpha, scores, stride);
  }
}

void cached_values(const float* weights, std::int64_t rows, std::int64_t stride, const float* values,
                   std::int64_t past, const float* last, std::int64_t size, float* y) {
  for (std::int64_t d = 0; d < size;) {
    const std::int64_t left = size - d;
    const int vectors = left >= 4 * kLanes ? 4 : 1;
    const int lanes = vectors == 4 || left >= kLanes ? kLanes : static_cast<int>(left);
    // The rows of values are `size` apart, whatever part of them is walked.
    const auto run = [&](auto function, std::int64_t r) {
      function(weights + r * stride, stride, values + d, past, last + d, size, lanes, y + r * size + d);
    };
    for (std::int64_t r = 0; r < rows;) {
      const bool two = rows - r >= 2;
      if (vectors == 4)
        two ? run(values_of<2, 4>, r) : run(values_of<1, 4>, r);
      else
        two ? run(values_of<2, 1>, r) : run(values_of<1, 1>, r);
      r += two ? 2 : 1;
    }
    d += vectors * kLanes;
  }
}

}  // namespace pare::PARE_SIMD
