// The operators of a Program: which ONNX operators become steps, and what a step computes.
//
// Everything is float32; a bool is 0 or 1, an integer is converted when it is read (exact to 2^24). Steps
// follow ONNX; Max and Min keep NaN; Quantize and FakeQuant round to even and saturate:
//   Quantize   x = scale, y = zero point, z = DType: the code as a number, clamp(rint(v / x) + y)
//   Dequantize x = scale, y = zero point: (v - y) * x
//   FakeQuant  both
//   With E4M3 codes a code is the number that it stands for: v / x rounded to E4M3, saturated at 448.
//   Clip       x = low, y = high;   HardSigmoid x = alpha, y = beta;   LeakyRelu, Elu x = alpha
//   Gelu       x = 1: the tanh form
#pragma once

#include <string>
#include <vector>

#include "engine/build/plan/engine_plan.h"
#include "engine/ir/graph.h"

namespace pare {

struct StepInfo {
  const char* op;
  int args;
  const char* cuda;  // an expression in a, b, c (arguments), x, y, z (parameters)
};
const StepInfo* find_step(const std::string& op);  // nullptr: no such step

// The step that computes this node (args empty), or false with a reason when there is none.
bool step_of_node(const Graph& graph, const Node& node, ProgramStep& step, std::string& why_not);

// The value of a step, for the reference and for constants.
float evaluate_step(const ProgramStep& step, const float* args);

// The steps that apply an activation to the value of step `at`; returns the last.
int append_activation(Program& program, const Activation& activation, int at);

// Largest code of an 8 bit type by which Quantize saturates.
double code_low(DType type);
double code_high(DType type);

}  // namespace pare
