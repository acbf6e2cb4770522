// Every command as data, for what is made of it: docs/reference.md (reference.h), man pages (manual.h), shell
// completion (completion.h) and the list of `pare --help`.
#pragma once

#include <string>
#include <vector>

#include "cli/args.h"

namespace pare {

// What a shell may offer for a value, beside `words`.
enum class Offer { kNothing, kFiles, kFolders };

struct DescribedArgument {
  Argument argument;
  std::string type;      // "flag", "text", "integer", "number", "path"
  std::string sentence;  // the help without its "(default ...)"
  std::string fallback;  // the default in words: "128", "the input's"; "" when there is none
  Offer offer = Offer::kNothing;
  std::vector<std::string> words;  // values that a shell offers: the choices, or names that pare knows
};

struct DescribedCommand {
  std::string name, what, usage;
  std::vector<DescribedArgument> arguments;  // without the common ones
  std::vector<std::string> examples;
};

struct Description {
  std::vector<DescribedCommand> commands;  // in the order of `pare --help`
  std::vector<DescribedArgument> common;   // options of every command
};

Description describe_program();

}  // namespace pare
