// What every fuzz target asks of an Error that leaves a reader: it blames the input, never looks like a bug,
// and says what to do.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "engine/base/error.h"

namespace pare::fuzz {

// Aborts when the code is none of `codes`, or when there is no hint.
inline void expect_blames_input(const Error& error, std::initializer_list<ErrorCode> codes = {
                                                        ErrorCode::kBadFile, ErrorCode::kUnsupported}) {
  for (const ErrorCode code : codes)
    if (error.code() == code && !error.hint().empty()) return;
  std::fprintf(stderr, "%s: %s\nwhere: %s\nhint: %s\n", error_code_name(error.code()), error.what(),
               error.where().c_str(), error.hint().c_str());
  std::abort();
}

}  // namespace pare::fuzz
