#include "engine/base/progress.h"

namespace pare {

void Progress::begin(const std::string&, std::int64_t) {}
void Progress::advance(std::int64_t) {}
void Progress::skip(std::int64_t count) { advance(count); }
void Progress::end() {}

Progress& no_progress() {
  static Progress nothing;
  return nothing;
}

}  // namespace pare
