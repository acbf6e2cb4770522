// Corrects the biases of a candidate by the mean errors of its layers (quant/bias_correction.h).
//
// Every mean is measured on two halves of the samples: a layer is corrected only if what one half says makes
// the error on the other smaller; then by the mean of both.
#pragma once

#include "recipes/quantize/variant.h"

namespace pare {

// Edits c.graph and counts c.biases.
void correct_biases(QuantCandidate& c, const QuantizeInput& input);

}  // namespace pare
