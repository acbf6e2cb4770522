// RNN, GRU and LSTM (opset 22), float32, plain loops with sums in double.
//
//   RNN   h = f(Wi x + Wbi + Ri h + Rbi)
//   GRU   z, r = f(...), n = g(Wh x + Wbh + (r . h) Rh + Rbh)  or, linear_before_reset, g(Wh x + Wbh + r .
//   (Rh h + Rbh))
//         h = (1 - z) . n + z . h
//   LSTM  i, o, f = f(W x + R h + P . c + b), c = f . c + i . g(...), h = o . h(c); o sees the new c
//
// Gates lie as ONNX orders them (GRU: z r h; LSTM: i o f c). Directions forward, reverse, bidirectional;
// layout 0 and 1; sequence_lens (steps beyond give zeros, the last states are those of the last step); clip;
// input_forget. Activations: Sigmoid, Tanh, Relu, Affine, LeakyRelu, ThresholdedRelu, ScaledTanh,
// HardSigmoid, Elu, Softsign, Softplus. Source: ONNX LSTM-22, GRU-22, RNN-22.
#pragma once

namespace pare {

class Registry;
void add_recurrent_references(Registry& registry);

}  // namespace pare
