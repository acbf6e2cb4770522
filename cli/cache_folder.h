// What pare and its scripts keep between runs: one folder, whose entries are known by name and by nothing
// else. What is not known is shown and never touched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pare {

struct CacheKind {
  const char* name;  // "library", "download" ...
  const char* what;  // a sentence without a full stop
};
const std::vector<CacheKind>& cache_kinds();

struct CacheEntry {
  std::string name;
  std::string kind;  // of cache_kinds(); "lock" (kept: others may wait on it), "unknown"
  std::string what;
  std::uint64_t bytes = 0;  // of all files in it
  double age_days = 0;      // since something in it was last written
};

// $XDG_CACHE_HOME/pare, else $HOME/.cache/pare. Error kDevice when neither variable is set.
std::string cache_folder();

// By name; empty when there is no folder. Symbolic links are "unknown": what they point to is not ours.
std::vector<CacheEntry> list_cache(const std::string& folder);

// Removes one entry, links in it not followed. Returns "" or why it stays: not known, or in use by a script
// that holds its lock. Error kDevice when it cannot be removed.
std::string remove_cache_entry(const std::string& folder, const CacheEntry& entry);

}  // namespace pare
