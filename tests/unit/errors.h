// What a body throws.
#pragma once

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace pare {

// The error; a failed test when there is none.
template <typename Body>
Error thrown_by(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

}  // namespace pare
