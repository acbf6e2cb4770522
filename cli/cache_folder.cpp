#include "cli/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/build/backend.h"

namespace pare {
namespace {

enum class Form { kFile, kFolder };

// How the scripts name what they keep. `*` stands for the rest; the first that fits counts. `lock` is held
// while an entry is made or used.
struct Pattern {
  const char *begin, *end, *kind;
  Form form;
  const char* lock;
};
constexpr Pattern kPatterns[] = {
    {"onnx-work.", "", "unfinished", Form::kFolder, "onnx.lock"},
    {"onnx-suite-", "", "suite", Form::kFolder, ""},
    {"onnx-", ".tar.gz", "download", Form::kFile, "onnx.lock"},
    {"onnx-", ".log", "log", Form::kFile, "onnx.lock"},
    {"apt", ".log", "log", Form::kFile, ""},
    {"onnx-", "", "library", Form::kFolder, "onnx.lock"},
    {"venv-interop-", "", "python", Form::kFolder, "venv-interop.lock"},
    {"venv-", "", "python", Form::kFolder, "venv.lock"},
    {"cuda-", "", "toolkit", Form::kFolder, ""},
    {"timing", ".json", "timing", Form::kFile, ""},
    {"", ".lock", "lock", Form::kFile, ""},
};

const Pattern* pattern_of(const std::string& name, const struct stat& facts) {
  for (const Pattern& p : kPatterns) {
    const std::string begin = p.begin, end = p.end;
    const bool form = p.form == Form::kFile ? S_ISREG(facts.st_mode) : S_ISDIR(facts.st_mode);
    if (form && name.size() >= begin.size() + end.size() && name.rfind(begin, 0) == 0 &&
        name.compare(name.size() - end.size(), end.size(), end) == 0)
      return &p;
  }
  return nullptr;
}

// Bytes and the newest time of a tree; links count as themselves.
void measure(const std::string& path, std::uint64_t& bytes, std::time_t& newest, int depth = 0) {
  struct stat facts = {};
  if (lstat(path.c_str(), &facts) != 0) return;  // gone meanwhile
  newest = std::max(newest, facts.st_mtime);
  if (!S_ISDIR(facts.st_mode)) {
    bytes += static_cast<std::uint64_t>(facts.st_size);
    return;
  }
  if (depth < 64)
    for (const std::string& name : list_directory(path))
      measure(join_path(path, name), bytes, newest, depth + 1);
}

bool is_timing_cache(const std::string& path) {
  try {
    TimingCache::read(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const std::vector<CacheKind>& cache_kinds() {
  static const std::vector<CacheKind> kKinds = {
      {"library", "the onnx C++ library that pare is built with (scripts/build-onnx)"},
      {"download", "archives that were fetched"},
      {"python", "Python packages of tests (scripts/test-venv, scripts/interop-quantized)"},
      {"toolkit", "headers and libraries of CUDA (scripts/cuda-toolchain)"},
      {"suite", "node tests of onnx (scripts/conformance)"},
      {"timing", "timing caches of `pare build --timing-cache`"},
      {"log", "what builds and installations printed"},
      {"unfinished", "left by a build that was killed"}};
  return kKinds;
}

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    return join_path(cache, "pare");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    return join_path(home, ".cache/pare");
  throw make_error(ErrorCode::kDevice, "there is no cache: neither XDG_CACHE_HOME nor HOME is set")
      .hint("set XDG_CACHE_HOME to the folder that holds the folder `pare`");
}

std::vector<CacheEntry> list_cache(const std::string& folder) {
  std::vector<CacheEntry> entries;
  if (!path_exists(folder)) return entries;
  const std::time_t now = std::time(nullptr);
  for (const std::string& name : list_directory(folder)) {
    const std::string path = join_path(folder, name);
    struct stat facts = {};
    if (lstat(path.c_str(), &facts) != 0) continue;
    CacheEntry entry;
    entry.name = name;
    std::time_t newest = facts.st_mtime;
    measure(path, entry.bytes, newest);
    entry.age_days = std::max(0.0, std::difftime(now, newest)) / 86400;
    const Pattern* pattern = pattern_of(name, facts);
    entry.kind = pattern == nullptr ? "unknown" : pattern->kind;
    if (entry.kind == "timing" && !is_timing_cache(path)) entry.kind = "unknown";
    for (const CacheKind& kind : cache_kinds())
      if (entry.kind == kind.name) entry.what = kind.what;
    if (entry.kind == "lock") entry.what = "held while another entry is made";
    if (entry.kind == "unknown") entry.what = "not of pare, or of another version: left alone";
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string remove_cache_entry(const std::string& folder, const CacheEntry& entry) {
  const std::string path = join_path(folder, entry.name);
  struct stat facts = {};
  if (lstat(path.c_str(), &facts) != 0) return "it is gone";
  const Pattern* pattern = pattern_of(entry.name, facts);
  if (pattern == nullptr || entry.kind == "unknown") return "not known";
  if (entry.kind == "lock") return "others may wait on it";
  int lock = -1;
  if (*pattern->lock != 0) {
    // Made if it is missing: a script that begins now waits for us.
    lock = open(join_path(folder, pattern->lock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
      if (lock >= 0) close(lock);
      return "in use";
    }
  }
  try {
    remove_tree(path);
  } catch (...) {
    if (lock >= 0) close(lock);
    throw;
  }
  if (lock >= 0) close(lock);
  return "";
}

}  // namespace pare
