#include "engine/ir/slice.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {

SliceAxis resolve_slice(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t size) {
  PARE_ASSERT(step != 0 && size >= 0);
  const std::int64_t least = step > 0 ? 0 : -1;
  const std::int64_t most = step > 0 ? size : size - 1;
  const auto place = [&](std::int64_t index, std::int64_t lowest) {
    if (index < 0) index += size;  // no overflow: the signs differ
    return std::clamp(index, lowest, most);
  };
  if (size == 0) return {0, step, 0};
  start = place(start, 0);  // a start in front of the axis is its first element, whatever the direction
  end = place(end, least);
  // Distances fit: both are within [-1, size]. The step may be any number, so divide before multiplying.
  std::int64_t count = 0;
  if (step > 0 && end > start) count = (end - start - 1) / step + 1;
  if (step < 0 && start > end) count = (start - end - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1;
  return {start, step, count};
}

}  // namespace pare
