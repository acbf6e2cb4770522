#include "cli/overview.h"

#include <fmt/core.h>

namespace pare {
namespace {

constexpr std::size_t kWidth = 98;

std::string first_word(const std::string& name) { return name.substr(0, name.find(' ')); }

// The second words of the commands that begin with `word`.
std::vector<std::string> second_words(const std::vector<std::unique_ptr<Command>>& commands,
                                      const std::string& word) {
  std::vector<std::string> out;
  for (const auto& command : commands) {
    const std::string name = command->name();
    if (name.rfind(word + " ", 0) == 0) out.push_back(name.substr(word.size() + 1));
  }
  return out;
}

}  // namespace

std::string general_help(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string out =
      "pare makes a trained network smaller and faster without losing what it knows, and proves it.\n\n"
      "  pare COMMAND [options]   `pare COMMAND --help` explains one, docs/reference.md all\n\n";
  std::string last;
  for (const auto& command : commands) {
    const std::string word = first_word(command->name());
    if (word == last) continue;
    last = word;
    const std::vector<std::string> verbs = second_words(commands, word);
    if (verbs.empty()) {
      out += fmt::format("  {:<12} {}\n", word, command->what());
      continue;
    }
    std::string line = fmt::format("  {:<12}", word);
    for (std::size_t i = 0; i < verbs.size(); ++i) {
      const std::string verb = verbs[i] + (i + 1 < verbs.size() ? "," : "");
      if (line.size() + 1 + verb.size() > kWidth) {
        out += line + "\n";
        line = std::string(14, ' ');
      }
      line += " " + verb;
    }
    out += line + "\n";
  }
  CommonOptions options;
  Args args("", "");
  declare_common(args, options);
  out += "\nOptions of every command:\n" + args.common_help() +
         "  --version                 version, build features, licence\n\n"
         "  pare run examples/fashion/resnet-int8.yaml\n"
         "  pare inspect model.onnx --json\n\n"
         "Exit codes: 0 done, 1 a gate or audit failed, 2 usage or recipe, 3 bad or missing file,\n"
         "4 unsupported, 5 device, disk or memory, 70 a bug, 130 interrupted (--resume goes on).\n";
  return out;
}

std::string family_help(const std::vector<std::unique_ptr<Command>>& commands,
                        const std::vector<std::string>& arguments) {
  std::string word;
  bool help = false;
  for (const std::string& argument : arguments) {
    const bool asks = argument == "-h" || argument == "--help";
    if (!asks && !word.empty()) return "";
    help = help || asks;
    if (!asks) word = argument;
  }
  const std::vector<std::string> verbs = second_words(commands, word);
  if (!help || word.empty() || verbs.empty()) return "";
  std::string out = fmt::format("pare {} is several commands:\n\n", word);
  for (const auto& command : commands)
    if (std::string(command->name()).rfind(word + " ", 0) == 0)
      out += fmt::format("  pare {:<26} {}\n", command->name(), command->what());
  return out + fmt::format("\n`pare {} {} --help` explains one.\n", word, verbs.front());
}

}  // namespace pare
