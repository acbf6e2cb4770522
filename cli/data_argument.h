// The value of --data: the data itself with keys behind it, or a YAML file with a recipe's data set mapping.
#pragma once

#include <string>

#include "datasets/spec.h"

namespace pare {

extern const char* const kDataHelp;

// Error kUsage or kBadFile. Keys that no reader of this build takes (text, audio) are kUnsupported.
DatasetSpec data_argument(const std::string& text);

}  // namespace pare
