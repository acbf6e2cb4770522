// Attention (opset 24), RotaryEmbedding (opset 23): plain kernels in double, rounded once; Attention also by
// packed matrix products in float32 (sums in one order, so results depend on neither batch nor threads).
//
//   Attention  S = softcap(scale Q K^T) + mask + causal + padding;  Y = softmax(S) V
//              Q, K, V [batch, heads, seq, size], or [batch, seq, heads * size] with q_num_heads,
//              kv_num_heads. Fewer key heads than query heads: each serves q_heads / kv_heads neighbours
//              (grouped queries). past_key and past_value stand in front of K and V; the whole comes out as
//              present_key, present_value. mask: float (added) or bool (false is -inf), broadcast to [batch,
//              heads, q, total]; beyond its last column everything is masked. is_causal: query i sees keys up
//              to past + i. nonpad_kv_seqlen: keys at or beyond it are masked. A row that is masked
//              throughout is NaN. scale: 1 / sqrt(size); softcap c: c tanh(x / c). qk_matmul_output_mode 0,
//              1: scores after the cap; 2: with masks; 3: after the softmax.
//   RotaryEmbedding  pairs (a, b) of each head's first rotary_embedding_dim places become (a cos - b sin,
//              a sin + b cos); pairs are halves, or neighbours when interleaved. cos and sin [positions, dim
//              / 2] by position_ids, or [batch, seq, dim / 2].
//
// float32, float16, bfloat16, float64; a mask may be any number or bool. Source: ONNX Attention-24,
// RotaryEmbedding-23.
#pragma once

#include <cstdint>

namespace pare {

class Registry;
struct OpCall;

struct AttentionShape {
  std::int64_t batch = 0, past = 0, total = 0;  // total: keys with those of the past
};

// Do the sizes fit together? Error kBadFile naming what does not.
AttentionShape check_attention(const OpCall& call);

void add_attention_kernels(Registry& registry);
void add_rotary_kernels(Registry& registry);
void add_attention_references(Registry& registry);

}  // namespace pare
