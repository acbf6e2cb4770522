// Which decisions must be one: activations whose codes flow into each other, layers that are fused.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "quant/placement/placement.h"

namespace pare::quant {

// Gives sites of one graph a common `group` where codes pass from one to the other through operators that
// only move values: x quantized -> MaxPool -> y quantized, and quantized inputs of a Concat with its
// quantized output. With one scale such an operator runs on codes, and the second pair changes nothing.
// Numbers start at `first_group`; returns the next free one.
int group_moved_values(const Graph& graph, std::vector<ActivationSite>& sites, int first_group);

// For runtimes that run an operator on codes only when a pair stands on both sides (onnxruntime): every
// output of MaxPool, Reshape, Transpose ... whose input has a site gets one, to be grouped with it. A Concat
// gets one when all its inputs have. Exact: the values lie on the input's grid.
void carry_codes_on(const Graph& graph, std::vector<ActivationSite>& sites);

// Fills `fused` for the kinds asked for, among MatMul and Gemm nodes that read one activation and have
// constant weights: three are "qkv", two are "gate_up". Weights of another format or axis than the first
// one's make no group; a sentence in `notes` says so.
void group_fused_layers(const Graph& graph, const std::vector<std::string>& kinds, Placement& placement);

// "qkv", "gate_up".
const std::vector<std::string>& fused_kinds();

}  // namespace pare::quant
