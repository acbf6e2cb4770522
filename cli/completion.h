// Scripts that complete `pare ...` on a command line, from the same description as help. They are complete in
// themselves: no program is run while the user types.
#pragma once

#include <string>

#include "cli/description.h"

namespace pare {

std::string bash_completion(const Description& program);
std::string zsh_completion(const Description& program);
std::string fish_completion(const Description& program);

}  // namespace pare
