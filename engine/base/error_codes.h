// Every ErrorCode in words: the names of `error.code`, and the rows of docs/reference.md. Apart from error.h,
// which every file includes.
#pragma once

#include <vector>

#include "engine/base/error.h"

namespace pare {

struct ErrorCodeInfo {
  ErrorCode code;
  const char* name;     // error_code_name()
  const char* meaning;  // a sentence without a full stop
};

const std::vector<ErrorCodeInfo>& error_codes();  // by number

}  // namespace pare
