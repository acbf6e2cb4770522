// The one error type of pare. Libraries throw it; nothing below cli prints, aborts or exits.
//
// An error says what is wrong (message), where (file, tensor, node, recipe line) and what to do (hint).
// `while` context is put in front by each layer that knows more than the one below.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <utility>

namespace pare {

// The numbers are the process exit codes of docs/reference (DESIGN: "Exit codes").
enum class ErrorCode {
  kFailedGate = 1,    // a gate, audit, verification or diff failed; the work itself was done
  kUsage = 2,         // the caller or the recipe asks for something that makes no sense
  kBadFile = 3,       // a file is missing, damaged, truncated or lies about its own size
  kUnsupported = 4,   // valid, but this build cannot do it
  kDevice = 5,        // the environment: device, disk full, permissions, out of memory
  kInternal = 70,     // a bug in this program
  kInterrupted = 130  // stopped by the user; resumable
};

// "usage", "bad_file", ...: the `error.code` of --json.
const char* error_code_name(ErrorCode code);

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);

  // Puts "while <doing>: " in front of the message. Called on the way up.
  void add_context(const std::string& doing);
  Error& at(std::string where);   // "model.onnx: node 'conv1'"; kept if already set
  Error& hint(std::string what);  // what the user can do; kept if already set

  ErrorCode code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& where() const noexcept { return where_; }
  const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string message_, where_, hint_;
};

[[noreturn]] void vfail(ErrorCode code, fmt::string_view format, fmt::format_args args);

// fail(ErrorCode::kBadFile, "needs {} bytes, has {}", a, b). To add where and hint:
// throw make_error(code, ...).at(file).hint("...").
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  vfail(code, format, fmt::make_format_args(args...));
}

Error vmake_error(ErrorCode code, fmt::string_view format, fmt::format_args args);
template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return vmake_error(code, format, fmt::make_format_args(args...));
}

// Runs `body`; any Error that leaves it gains the context. Other exceptions pass unchanged.
// Not for inner loops: the text is built even when nothing fails.
template <typename Body>
decltype(auto) with_context(const std::string& doing, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    error.add_context(doing);
    throw;
  }
}

// The word of `known` nearest to `word` (edits and swapped neighbours at most a third of its length; else one
// that has it as a part, or begins with it), or "".
// For "did you mean" hints.
std::string nearest_word(const std::string& word, const char* const* known, std::size_t count);

}  // namespace pare

// For promises between our own functions, never for input. Checked in every build type.
#define PARE_ASSERT(condition)                                                                 \
  do {                                                                                         \
    if (!(condition))                                                                          \
      ::pare::fail(::pare::ErrorCode::kInternal, "{}:{}: {}", __FILE__, __LINE__, #condition); \
  } while (false)
