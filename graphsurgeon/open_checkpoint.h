// Opens a checkpoint, a folder or a GGUF file. Headers are read, nothing of the weights.
#pragma once

#include <string>

#include "engine/base/tokenizer_spec.h"
#include "graphsurgeon/checkpoint/checkpoint.h"

namespace pare {

// A folder with config.json, or a GGUF file. Errors: those of weights.h, config.h, quantization_config.h and
// read_linear.h. An unknown family is none here: require_family() of family.h says it.
Checkpoint open_checkpoint(const std::string& path);
// That of the checkpoint: tokenizer.json of a folder, or what the GGUF file holds. Errors as tokenizer_json.h
// and gguf_model.h say.
TokenizerSpec checkpoint_tokenizer(const std::string& path);

}  // namespace pare
