// docs/reference.md: every command, option, exit code, environment variable and recipe key, from the program
// itself. scripts/reference writes the file, tests/cli/reference.py holds it to what this gives.
#pragma once

#include <string>

namespace pare {

std::string reference_markdown();  // ended by a newline; the same on every machine

}  // namespace pare
