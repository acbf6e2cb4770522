// Small graphs for the tests of this folder.
#pragma once

#include "engine/ir/graph.h"

namespace pare::quant::test {

// The block of placement_test.cpp: weights are small multiples of 1/16, shapes are inferred.
Graph residual_block();

}  // namespace pare::quant::test
