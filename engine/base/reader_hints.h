// What a user can do about a kind of file, said once at its reader's door.
#pragma once

#include <string>

#include "engine/base/error.h"

namespace pare {

// An Error about the file (kBadFile), or about what is in it that is not known here (kUnsupported), that
// leaves `body` without a hint gains the reader's own; errors that know better keep theirs.
// tests/fuzz/blame.h asks for a hint of every error that leaves a reader.
struct ReaderHints {
  const char* damaged;      // "export the model again"
  const char* unsupported;  // "write it with ..."
};
template <typename Body>
decltype(auto) with_hints(const ReaderHints& hints, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    if (error.code() == ErrorCode::kBadFile) error.hint(hints.damaged);
    if (error.code() == ErrorCode::kUnsupported) error.hint(hints.unsupported);
    throw;
  }
}
template <typename Body>
decltype(auto) with_context(const std::string& doing, const ReaderHints& hints, Body&& body) {
  return with_hints(hints, [&]() -> decltype(auto) { return with_context(doing, body); });
}

}  // namespace pare
