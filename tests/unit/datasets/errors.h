// What an expression throws, as text to search in: "code: message | where | hint".
#pragma once

#include <string>

#include "engine/base/error.h"

namespace pare {

template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what() + " | " + error.where() + " | " +
           error.hint();
  }
  return "nothing was thrown";
}

}  // namespace pare

// Every one of the texts stands in the error.
#define EXPECT_ERROR(body, ...)                                                         \
  do {                                                                                  \
    const std::string thrown = ::pare::error_of([&] { body; });                         \
    for (const char* text : {__VA_ARGS__})                                              \
      EXPECT_NE(thrown.find(text), std::string::npos) << thrown << "\nlacks: " << text; \
  } while (false)
