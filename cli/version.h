// What `pare --version` says.
#pragma once

#include <string>

namespace pare {

std::string version();       // "0.2.0"
std::string version_text();  // with build features, over several lines, without the last newline

}  // namespace pare
