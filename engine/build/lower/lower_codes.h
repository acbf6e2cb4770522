// What stands between DequantizeLinear and QuantizeLinear without a product becomes work on codes, exact:
//
//   DequantizeLinear(x) -> functions of one value (Relu, Clip, HardSwish, ...) -> QuantizeLinear
//     becomes pare.QLookup, whose table those very nodes compute for the 256 codes
//   DequantizeLinear(a) + DequantizeLinear(b) -> [activation] -> QuantizeLinear
//     becomes pare.QAdd (equal shapes)
//
// Scales are per tensor and constant, codes int8 or uint8. Values in between that are kept or read by others
// stay, and so does all else; the report has a row for each node that computes with dequantized codes.
#pragma once

#include <vector>

#include "engine/build/lower/lowering.h"
#include "engine/build/lower/realized.h"

namespace pare::lowering {

// After lower_integer, before constants are folded. Appends rows in graph order.
void lower_codes(Graph& graph, const Kept& kept, std::vector<Realized>& rows);

}  // namespace pare::lowering
