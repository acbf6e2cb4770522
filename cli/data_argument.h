// The value of --data: the data itself with keys behind it, or a YAML file with a recipe's data set mapping.
#pragma once

#include <string>

#include "datasets/spec.h"

namespace pare {

extern const char* const kDataHelp;

// Text gets the tokenizer of the checkpoint `model`. Error kUsage or kBadFile.
DatasetSpec data_argument(const std::string& text, const std::string& model);

}  // namespace pare
