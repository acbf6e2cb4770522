// The global scales that turn_global() would give a layer, without a change of it: writers need not copy its
// codes.
#pragma once

#include "graphsurgeon/checkpoint/quantized.h"

namespace pare {

struct GlobalScales {
  float weight = 1, input = 0;
};
// False where turn_global() is. Layers with one level keep what they have.
bool turned_globals(const QuantizedLinear& layer, bool divides, GlobalScales& out);

}  // namespace pare
