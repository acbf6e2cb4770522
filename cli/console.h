// Progress for people: a bar with rate and time left on a terminal, plain lines in a log.
#pragma once

#include <memory>

#include "engine/base/progress.h"

namespace pare {

// quiet: one that does nothing. Otherwise by whether stderr is a terminal.
std::unique_ptr<Progress> make_console_progress(bool quiet);

}  // namespace pare
