// How many units of a loop make a piece that is worth waking a thread for (ThreadPool::parallel_for's grain).
#pragma once

#include <algorithm>
#include <cstdint>

namespace pare {

// `worth` is the least work of a piece and `each` the work of one unit, in the same measure (elements,
// products, bytes). The result is a multiple of `multiple` (>= 1), rounded down, and at least that. Units
// without work, as those of an empty axis or a window over an empty plane, count as 1: no caller divides by a
// size by itself.
constexpr std::int64_t grain_for(std::int64_t worth, std::int64_t each, std::int64_t multiple = 1) {
  return std::max(multiple, worth / std::max<std::int64_t>(each, 1) / multiple * multiple);
}

}  // namespace pare
