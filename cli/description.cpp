#include "cli/description.h"

#include <algorithm>

#include "cli/command.h"
#include "engine/base/error.h"
#include "eval/metric_table.h"
#include "graphsurgeon/passes/passes.h"
#include "quant/placement/spec.h"
#include "recipes/grammar/load.h"

namespace pare {
namespace {

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* known) { return word == known; });
}

// By the name of the value. FILE and what ends like it is a file that is read or written.
Offer offer_of(const Argument& a) {
  const std::string& name = a.positional ? a.names : a.value;
  if (name == "DIR") return Offer::kFolders;
  // A layer, a tensor, a shape: nothing that a shell knows.
  if (among(name, {"MODEL", "MODEL_A", "MODEL_B", "CANDIDATE", "CHECKPOINT", "ENGINE", "RECIPE", "FILE",
                   "DATA", "OUT", "REPORT", "RUN", "RUN_A", "RUN_B", "STATS.h5", "OUT.h5", "NAME=FILE.npy"}))
    return Offer::kFiles;
  return Offer::kNothing;
}

std::vector<std::string> words_of(const Argument& a) {
  const std::string& name = a.positional ? a.names : a.value;
  std::vector<std::string> out;
  for (const std::string& choice : a.choices)
    if (choice.find("(...)") == std::string::npos) out.push_back(choice);
  if (name == "SCHEME")
    for (const quant::Scheme& scheme : quant::schemes()) out.emplace_back(scheme.name);
  if (name == "METRIC")
    for (const char* metric : metric_names()) out.emplace_back(metric);
  if (name == "PASS")
    for (const Pass* pass : all_passes()) out.emplace_back(pass->name);
  if (name == "RECIPE" || name == "BASE")
    for (const BuiltinRecipe& recipe : builtin_recipes())
      out.push_back(std::string("builtin/") + recipe.name);
  if (name == "DEVICE") out = {"auto", "cpu", "cuda"};
  return out;
}

DescribedArgument described(const Argument& a) {
  DescribedArgument out;
  out.argument = a;
  out.offer = offer_of(a);
  out.words = words_of(a);
  out.sentence = a.help;
  out.fallback = a.fallback;
  const std::size_t begin = a.help.find("(default");
  if (begin != std::string::npos) {
    std::size_t end = begin, depth = 0;
    do {
      depth += a.help[end] == '(' ? 1 : 0;
      depth -= a.help[end] == ')' ? 1 : 0;
      ++end;
    } while (depth > 0 && end < a.help.size());
    out.fallback = a.help.substr(begin + 8, end - begin - 9);
    out.fallback.erase(0, out.fallback.find_first_not_of(": "));
    std::size_t from = begin;
    while (from > 0 && out.sentence[from - 1] == ' ') --from;
    out.sentence.erase(from, end - from);
  }
  switch (a.type) {
    case Argument::Type::kFlag:
      out.type = "flag";
      break;
    case Argument::Type::kInteger:
      out.type = "integer";
      break;
    case Argument::Type::kNumber:
      out.type = "number";
      break;
    case Argument::Type::kText:
      out.type = out.offer == Offer::kFiles || out.offer == Offer::kFolders ? "path" : "text";
      break;
  }
  return out;
}

}  // namespace

Description describe_program() {
  Description out;
  CommonOptions options;
  {
    Args args("", "");
    declare_common(args, options);
    for (const Argument& a : args.arguments()) out.common.push_back(described(a));
  }
  for (const auto& command : all_commands()) {
    Args args(command->name(), command->what());
    command->declare(args);
    DescribedCommand d;
    d.name = command->name();
    d.what = command->what();
    d.usage = args.usage();
    d.examples = args.examples();
    for (const Argument& a : args.arguments()) d.arguments.push_back(described(a));
    out.commands.push_back(std::move(d));
  }
  return out;
}

}  // namespace pare
