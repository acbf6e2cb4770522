// com.microsoft.GroupQueryAttention: attention of decoders with a cache of keys and values.
//
//   0 query [B, S, N * h], or all three packed [B, S, (N + 2 M) * h]   1 key, 2 value [B, S, M * h]
//   3 past_key, 4 past_value [B, M, P, h]      5 seqlens_k [B]: keys in all, less one    6
//   total_sequence_length 7 cos, 8 sin [positions, pairs]            9 position_ids [B, S]   10
//   attention_bias [B|1, N|1, S, T] 11 head_sink [N] y [B, S, N * h], present_key, present_value [B, M,
//   max(total_sequence_length, P), h]
//
// N = num_heads, M = kv_num_heads: a key head serves N / M neighbouring query heads. A sample's new keys
// stand behind its seqlens_k + 1 - S old ones (behind none when total_sequence_length is S: the prompt), and
// what lies behind them in the cache is 0. Query s sees keys up to its own place, `local_window_size` of them
// at most. do_rotary turns queries and new keys as RotaryEmbedding does, by their place in the cache unless
// position_ids are given. Scores: softcap, then attention_bias. head_sink (or 0 with smooth_softmax) is one
// more score, whose share is dropped. What padded queries of a prompt give is not specified; here they see
// every key of their sample.
//
// float32, float16, bfloat16; sums in double. Caches of codes and normalized heads are declined.
// Source: onnxruntime docs/ContribOperators.md, version 1.32.
#pragma once

namespace pare {

class Registry;
void add_group_query_attention(Registry& registry);

}  // namespace pare
