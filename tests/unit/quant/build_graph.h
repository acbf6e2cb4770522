// Small graphs for the tests of this folder.
#pragma once

#include "engine/ir/graph.h"
#include "quant/placement/placement.h"

namespace pare::quant::test {

// The block of placement_test.cpp: weights are small multiples of 1/16, shapes are inferred.
Graph residual_block();

// The places of INT8 with the formats of a scheme: FP8 by itself would leave so small a graph float.
Placement placement_in(const Graph& graph, Target target, const char* scheme);

}  // namespace pare::quant::test
