#include "engine/base/error.h"

#include <algorithm>
#include <vector>

#include "engine/base/error_codes.h"

namespace pare {

const std::vector<ErrorCodeInfo>& error_codes() {
  static const std::vector<ErrorCodeInfo> kCodes = {
      {ErrorCode::kFailedGate, "failed_gate",
       "a gate, an audit, a verification or a diff failed. The work itself was done: files, reports and the "
       "whole document of --json are there"},
      {ErrorCode::kUsage, "usage",
       "the command line or the recipe asks for something that makes no sense; nothing was started"},
      {ErrorCode::kBadFile, "bad_file",
       "a file that is read is missing, damaged or not what it claims to be"},
      {ErrorCode::kUnsupported, "unsupported", "valid, but this build or this machine cannot do it"},
      {ErrorCode::kDevice, "environment", "the device, a full disk, permissions, memory"},
      {ErrorCode::kInternal, "internal", "a bug in pare"},
      {ErrorCode::kInterrupted, "interrupted", "stopped by the user; `pare run --resume` goes on"}};
  return kCodes;
}

const char* error_code_name(ErrorCode code) {
  for (const ErrorCodeInfo& known : error_codes())
    if (known.code == code) return known.name;
  return "internal";
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

void Error::add_context(const std::string& doing) { message_ = "while " + doing + ": " + message_; }

Error& Error::at(std::string where) {
  if (where_.empty()) where_ = std::move(where);
  return *this;
}

Error& Error::hint(std::string what) {
  if (hint_.empty()) hint_ = std::move(what);
  return *this;
}

void vfail(ErrorCode code, fmt::string_view format, fmt::format_args args) {
  throw Error(code, fmt::vformat(format, args));
}

Error vmake_error(ErrorCode code, fmt::string_view format, fmt::format_args args) {
  return Error(code, fmt::vformat(format, args));
}

namespace {

// Without case, and with '-' and ' ' as '_': "Per-Channel" is no other word than "per_channel".
std::string plain(const std::string& word) {
  std::string out = word;
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == ' ') c = '_';
  }
  return out;
}

// Whether `part` stands in `word` between ends and '_': "channel" in "per_channel".
bool has_part(const std::string& word, const std::string& part) {
  return part.size() >= 3 && ("_" + word + "_").find("_" + part + "_") != std::string::npos;
}

// "--grou" of "--group-size".
bool is_beginning(const std::string& begun, const std::string& word) {
  return begun.size() >= 4 && word.rfind(begun, 0) == 0;
}

// Letters added, lost, changed, or swapped with their neighbour ("scael"), each once; three rows at a time.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1), above(row), before(row);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_word(const std::string& word, const char* const* known, std::size_t count) {
  constexpr std::size_t kLongestWord = 200;  // a longer one is no typo, and the table is quadratic
  std::string best;
  if (word.empty() || word.size() > kLongestWord) return best;
  for (std::size_t i = 0; i < count; ++i)
    if (plain(word) == plain(known[i])) return known[i];
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t distance = edit_distance(word, known[i]);
    if (distance < best_distance) {
      best_distance = distance;
      best = known[i];
    }
  }
  for (std::size_t i = 0; i < count && best.empty(); ++i)
    if (has_part(plain(word), plain(known[i])) || has_part(plain(known[i]), plain(word)) ||
        is_beginning(plain(word), plain(known[i])))
      best = known[i];
  return best;
}

}  // namespace pare
