// One case an operator (op_case.h), or one a form of its kernels, for nothing_test.cpp to take elements from.
// Sizes of a case differ wherever they may, so that each can be made 0 without the others.
#pragma once

#include <ostream>
#include <vector>

#include "tests/unit/ops/op_case.h"

namespace pare::testing {

std::vector<OpCase> nothing_cases();

inline void PrintTo(const OpCase& c, std::ostream* out) { *out << text(c); }

}  // namespace pare::testing
