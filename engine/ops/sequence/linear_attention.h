// What language models with a state of fixed size are made of.
//
//   LinearAttention  for each token, in order, with the state S [d_k, d_v] of each key head:
//                      linear       S += k v^T
//                      gated        S = exp(g) S + k v^T
//                      delta        S += beta k (v - S^T k)^T
//                      gated_delta  S = exp(g) S, then as delta
//                    y = scale S^T q; scale 0: 1 / sqrt(d_k). Query heads share key heads in neighbouring
//                    groups. decay g: one number a head, or one a key place; beta: one a head, or one for
//                    all. past_state defaults to 0; present_state comes out.
//   CausalConvWithState
//                    depthwise convolution along the last axis that sees only the past: the k - 1 places
//                    before the first are past_state (default 0); present_state is the last k - 1 of the
//                    joined input. activation none, silu or swish.
//
// In double, rounded once. float32, float16, bfloat16, float64.
// Source: ONNX LinearAttention-27, CausalConvWithState-27.
#pragma once

namespace pare {

class Registry;
void add_linear_attention_references(Registry& registry);

}  // namespace pare
