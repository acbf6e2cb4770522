// The environment variables that pare reads: docs/reference.md and the man pages are made of this list, and
// tests/lint holds every getenv() of the program to it.
#pragma once

#include <vector>

namespace pare {

struct EnvironmentVariable {
  const char* name;
  const char* what;  // a sentence without a full stop
};

const std::vector<EnvironmentVariable>& environment_variables();

}  // namespace pare
