// What each target refuses, said before any work. Facts: NVIDIA TensorRT 11 (explicit quantization), ONNX
// Runtime 1.32 (types of its QuantizeLinear and DequantizeLinear).
//
//                        tensorrt                              onnxruntime            pare
//   weights              int8, E4M3 per tensor or channel;     integers of 2, 4, 8    all that is
//                        int4, E4M3, E2M1 in blocks along the  and 16 bits, FP8       written
//                        last or second-to-last axis
//   activations          int8, E4M3 per tensor; E2M1, E4M3 in  the same, per tensor   all that is
//                        blocks at run time                                           written
//   zero points          none                                  integers               integers
//   negative scales      none                                  any                    any
#pragma once

#include <string>

#include "engine/ir/graph.h"
#include "quant/placement/spec.h"

namespace pare::quant {

enum class Role { kWeight, kActivation };

// Why the target cannot hold a format; "" when it can or when the format is inactive.
std::string why_target_refuses(Target target, const Format& format, Role role);

// Error kUnsupported for the first format of the spec (its rules included) that its target refuses.
void check_target(const Spec& spec);

// Weight searches may choose a scale below zero (the signed extreme on the lowest code).
bool takes_negative_scales(Target target);

// Q/DQ that the model brought along and that the target refuses: zero points, scales that are not above zero,
// activations with a scale a channel. Error kUnsupported naming the node. Subgraphs included.
void check_model_for_target(const Graph& graph, Target target);

}  // namespace pare::quant
