// RNN, GRU and LSTM (opset 22). Plain loops in double (rounded once at the end), float32, float16, bfloat16
// and float64; and a float32 kernel on packed weights.
//
//   RNN   h = f(Wi x + Wbi + Ri h + Rbi)
//   GRU   z, r = f(...), n = g(Wh x + Wbh + (r . h) Rh + Rbh), or with linear_before_reset
//         n = g(Wh x + Wbh + r . (Rh h + Rbh));  h = (1 - z) . n + z . h
//   LSTM  i, o, f = f(W x + R h + P . c + b), c = f . c + i . g(...), h = o . h(c); o sees the new c
//
// Gates lie as ONNX orders them (GRU: z r h; LSTM: i o f c). Directions forward, reverse, bidirectional;
// layout 0 and 1; sequence_lens (steps beyond give zeros, the last states are those of the last step); clip;
// input_forget. Activations: Sigmoid, Tanh, Relu, Affine, LeakyRelu, ThresholdedRelu, ScaledTanh,
// HardSigmoid, Elu, Softsign, Softplus. Source: ONNX LSTM-22, GRU-22, RNN-22.
//
// cpu:packed: constant weights, the usual activations (Sigmoid and Tanh; RNN also Relu), no sequence_lens,
// peepholes, clip or input_forget. W x of all steps is one matrix product, R h one a step, each a sum in one
// order (gemm_f32.h), so results depend on neither batch nor threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pare {

class Registry;
struct OpCall;

struct RecurrentFunction {
  std::string name;
  double alpha = 0, beta = 0;
  double operator()(double x) const;
};

struct RecurrentLayer {
  std::string op;
  std::int64_t seq = 0, batch = 0, in = 0, hidden = 0, directions = 1, gates = 1;
  bool batch_first = false, linear_before_reset = false, input_forget = false;
  double clip = 0;                           // 0: none
  std::vector<RecurrentFunction> functions;  // for each direction
};

// Sizes and attributes of a call. "" or what is wrong with it.
std::string resolve_recurrent(const OpCall& call, RecurrentLayer& layer);

void add_recurrent_kernels(Registry& registry);
void add_recurrent_references(Registry& registry);

}  // namespace pare
