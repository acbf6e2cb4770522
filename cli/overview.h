// What `pare --help` prints, and `pare surgeon --help` for commands of two words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace pare {

std::string general_help(const std::vector<std::unique_ptr<Command>>& commands);

// For arguments that are the first word of several commands and --help, in any order; "" for all others.
std::string family_help(const std::vector<std::unique_ptr<Command>>& commands,
                        const std::vector<std::string>& arguments);

}  // namespace pare
