// Runs code that may crash over a damaged file (libraries that are not hardened) in a child process.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace pare {

// Forks; the child calls `body`, whose text is returned here. An Error in the child becomes the same Error
// here. A child that crashes, answers with more than `limit` bytes or takes longer than `seconds` of
// processor time is Error kBadFile "reading WHAT failed: ...". The child has no core dump, writes nothing,
// and dies with this process. Memory is shared copy-on-write, so `body` may read whatever the caller has;
// what it changes stays in the child, except in memory that was mapped shared.
std::string run_isolated(const std::string& what, std::size_t limit, int seconds,
                         const std::function<std::string()>& body);

}  // namespace pare
