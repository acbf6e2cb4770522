// From the recipe's `quantize` to what the quant library takes.
#pragma once

#include "quant/placement/spec.h"
#include "recipes/grammar/recipe.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

// Scheme first, then what `weights`, `activations`, `rules`, `ops`, `ignore` add. Errors: kUsage for unknown
// schemes and combinations, kUnsupported for what this build cannot do (both before any work).
quant::Spec quant_spec(const QuantizeSpec& recipe);

// That and everything else of a recipe's `quantize` that making one quantized graph asks for.
QuantizeChoices quantize_choices(const QuantizeSpec& recipe);

// Error kUnsupported for what the grammar knows and this build does not do (formats, exports, kinds of data).
void check_supported(const Recipe& recipe);

}  // namespace pare
