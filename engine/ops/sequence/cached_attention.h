// pare.CachedAttention: causal attention over keys and values that somebody else keeps, for texts that grow
// token by token. Nothing of the past is copied, and no shape depends on how long it is.
//
//   inputs  0 q [batch, seq, heads * size]   1 k, 2 v [batch, seq, kv_heads * size]: those of the new tokens
//           3 keys    [batch, kv_heads, blocks, size, 16]: key p of the past is at block p / 16, lane p mod
//           16 4 values  [batch, kv_heads, blocks * 16, size] 5 past    int64, one element: so many keys and
//           values count, at most blocks * 16
//   output  y [batch, seq, heads * size]
//   attributes q_num_heads, kv_num_heads, scale, softcap as in Attention (attention.h); window: keys so many
//   places or more before a query are not seen (0: all are)
//
// float32. The bits are those of Attention over past and new keys (attention_cpu.cpp): products and sums run
// in the same order. The new rows k and v are for the caller to append (store_keys), once the step is done.
#pragma once

#include <cstdint>

#include "engine/ops/simd.h"

namespace pare {

inline constexpr std::int64_t kKeysOfBlock = 16;

// Rows of k [seq, kv_heads * size] and v become places past .. past + seq - 1 of the caches of one sample.
void store_keys(const float* k, std::int64_t seq, std::int64_t kv_heads, std::int64_t size,
                std::int64_t blocks, std::int64_t past, float* keys);
void store_values(const float* v, std::int64_t seq, std::int64_t kv_heads, std::int64_t size,
                  std::int64_t blocks, std::int64_t past, float* values);

// scores[r * stride + p] = alpha * (q[r] . key p) for p < past rounded up to whole blocks; at most 4 rows of
// q, `size` apart.
PARE_SIMD_DECLARE(void cached_scores(const float* q, std::int64_t rows, std::int64_t size, const float* keys,
                                     std::int64_t past, float alpha, float* scores, std::int64_t stride))
// y[r][d] = sum over p of weights[r * stride + p] * values[p][d], then the one of `last` with weight `past`.
PARE_SIMD_DECLARE(void cached_values(const float* weights, std::int64_t rows, std::int64_t stride,
                                     const float* values, std::int64_t past, const float* last,
                                     std::int64_t size, float* y))

class Registry;
void add_cached_attention_kernels(Registry& registry);

}  // namespace pare
