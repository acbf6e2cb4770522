// Man pages from the same description as help: pare(1) and one page a command, pare-stats-show(1).
#pragma once

#include <string>
#include <vector>

namespace pare {

struct ManualPage {
  std::string file;  // "pare-stats-show.1"
  std::string text;  // roff with the macros of man(7)
};

std::vector<ManualPage> manual_pages();  // the same on every machine and day

}  // namespace pare
