// tokenizer.json of a checkpoint folder, as data.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/tokenizer_spec.h"

namespace pare {

// FOLDER/tokenizer.json; tokenizer_config.json beside it adds the names of the begin and end tokens and the
// chat template (or chat_template.jinja). Errors: kBadFile for what is damaged or does not fit together
// (merges of pieces that are not there, an id twice), kUnsupported for a step or model that is not known, by
// its name.
TokenizerSpec read_tokenizer(const std::string& folder);
TokenizerSpec parse_tokenizer(std::string_view json, const std::string& where);

}  // namespace pare
