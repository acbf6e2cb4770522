// Brings a text data set and the model together: the tokenizer comes from the checkpoint, and so does what
// its windows must fit into.
#pragma once

#include <string>

#include "datasets/spec.h"

namespace pare {

// Does nothing unless is_text(spec). The tokenizer is that of spec.tokenizer (a checkpoint folder, GGUF or
// tokenizer.json), else that of the checkpoint at `model`; a model without one leaves it out, which opening
// the data set then says. Errors: those of tokenizer_json.h and config.h.
void complete_text(DatasetSpec& spec, const std::string& model);

}  // namespace pare
