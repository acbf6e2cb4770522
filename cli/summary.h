// The short form of a report for the terminal.
#pragma once

#include <string>

#include "cli/command.h"
#include "eval/report.h"

namespace pare {

void print_summary(Context& context, const Report& report);

}  // namespace pare
