// The only file that includes CLI11.
#include "cli/args.h"

#include <CLI/CLI.hpp>

#include "engine/base/error.h"

namespace pare {

namespace {
constexpr std::size_t kColumns = 100;    // of help text
constexpr std::size_t kHelpColumn = 28;  // where explanations begin

// "a, b or c"
std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out;
}
}  // namespace

std::vector<std::string> Argument::spellings() const {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= names.size();) {
    std::size_t comma = names.find(',', begin);
    if (comma == std::string::npos) comma = names.size();
    out.push_back(names.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return out;
}

std::string Argument::long_name() const { return spellings().back(); }

struct Args::Impl {
  std::string command, what;
  CLI::App app;
  std::vector<Argument> arguments;
  std::vector<CLI::Option*> options;  // of each of them
  std::vector<std::string> examples;
  bool common = false;

  void add(Argument argument, CLI::Option* option) {
    argument.common = common;
    arguments.push_back(std::move(argument));
    options.push_back(option);
  }
};

Args::Args(std::string command, std::string what) : impl_(std::make_unique<Impl>()) {
  impl_->command = std::move(command);
  impl_->what = std::move(what);
  impl_->app.set_help_flag();  // help is ours
  impl_->app.allow_extras(false);
}
Args::~Args() = default;

namespace {

// One value an occurrence: the parser would otherwise swallow what follows, and split at commas and brackets.
CLI::Option* one_value(CLI::Option* option) { return option->expected(1)->delimiter('\0'); }

Argument named(const char* names, const char* value, const char* help, const char* key, Argument::Type type) {
  Argument argument;
  argument.names = names;
  argument.value = value;
  argument.help = help;
  argument.key = key;
  argument.type = type;
  return argument;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text)
    if (c == ',')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

void check_choice(const std::vector<std::string>& known, const std::string& name, const std::string& where,
                  std::string (*meant)(const std::string& word), const std::string& text) {
  std::vector<const char*> words;
  for (const std::string& choice : known) {
    const std::size_t open = choice.find("(...)");
    if (choice == text || (open != std::string::npos && text.back() == ')' &&
                           text.compare(0, open + 1, choice, 0, open + 1) == 0))
      return;
    words.push_back(choice.c_str());
  }
  std::string near = meant != nullptr ? meant(text) : "";
  if (near.empty()) near = nearest_word(text, words.data(), words.size());
  throw make_error(ErrorCode::kUsage, "{} cannot be '{}'", name, text)
      .at(where)
      .hint(near.empty() ? listed(known)
                         : fmt::format("did you mean '{}'? It may be {}", near, listed(known)));
}

Argument in_place(const char* name, const char* help, bool required) {
  Argument argument = named(name, "", help, "", Argument::Type::kText);
  argument.positional = true;
  argument.required = required;
  return argument;
}

}  // namespace

Args& Args::positional(const char* name, std::string& into, const char* help, bool required) {
  impl_->add(in_place(name, help, required), impl_->app.add_option(name, into)->required(required));
  return *this;
}

Args& Args::positionals(const char* name, std::vector<std::string>& into, const char* help) {
  Argument argument = in_place(name, help, true);
  argument.many = true;
  CLI::Option* option = impl_->app.add_option_function<std::vector<std::string>>(
      name, [&into](const std::vector<std::string>& values) { into = values; });
  impl_->add(std::move(argument), option->required()->expected(1, 1 << 20));
  return *this;
}

Args& Args::option(const char* names, const char* value, std::string& into, const char* help,
                   const char* key) {
  Argument argument = named(names, value, help, key, Argument::Type::kText);
  argument.fallback = into;
  impl_->add(std::move(argument), one_value(impl_->app.add_option_function<std::string>(
                                      names, [&into](const std::string& text) { into = text; })));
  return *this;
}

// What is not above zero stands for "not given", and help says in words what happens then.
Args& Args::option(const char* names, const char* value, std::int64_t& into, const char* help,
                   const char* key) {
  Argument argument = named(names, value, help, key, Argument::Type::kInteger);
  if (into > 0) argument.fallback = fmt::format("{}", into);
  impl_->add(std::move(argument), one_value(impl_->app.add_option(names, into)));
  return *this;
}

Args& Args::option(const char* names, const char* value, double& into, const char* help, const char* key) {
  Argument argument = named(names, value, help, key, Argument::Type::kNumber);
  if (into > 0) argument.fallback = fmt::format("{}", into);
  impl_->add(std::move(argument), one_value(impl_->app.add_option(names, into)));
  return *this;
}

Args& Args::option(const char* names, const char* value, std::vector<std::string>& into, const char* help,
                   const char* key) {
  Argument argument = named(names, value, help, key, Argument::Type::kText);
  argument.many = true;
  CLI::Option* option = impl_->app.add_option_function<std::string>(
      names, [&into](const std::string& text) { into.push_back(text); });
  one_value(option)->trigger_on_parse()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  impl_->add(std::move(argument), option);
  return *this;
}

Args& Args::words(const char* names, const char* value, std::vector<std::string>& into, const char* help,
                  const char* key) {
  Argument argument = named(names, value, help, key, Argument::Type::kText);
  argument.many = argument.words = true;
  const std::string name = argument.long_name(), where = "pare " + impl_->command;
  CLI::Option* option =
      impl_->app.add_option_function<std::string>(names, [&into, name, where](const std::string& text) {
        for (std::string& word : split_words(text)) {
          if (word.empty())
            throw make_error(ErrorCode::kUsage, "{} '{}' has nothing in front of a comma or behind it", name,
                             text)
                .at(where)
                .hint("write A,B without spaces, or the option once for each");
          into.push_back(std::move(word));
        }
      });
  one_value(option)->trigger_on_parse()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  impl_->add(std::move(argument), option);
  return *this;
}

Args& Args::flag(const char* names, bool& into, const char* help, const char* key) {
  impl_->add(named(names, "", help, key, Argument::Type::kFlag),
             impl_->app.add_flag_callback(names, [&into] { into = true; }));
  return *this;
}

Args& Args::required() {
  impl_->arguments.back().required = true;
  impl_->options.back()->required();
  return *this;
}

Args& Args::one_of(std::vector<std::string> choices, Choices how,
                   std::string (*meant)(const std::string& word)) {
  Argument& argument = impl_->arguments.back();
  argument.choices = std::move(choices);
  argument.explained = how == Choices::kExplained;
  const std::vector<std::string> known = argument.choices;
  const std::string name = argument.long_name(), where = "pare " + impl_->command;
  const bool words = argument.words;
  impl_->options.back()->check([known, name, where, meant, words](const std::string& value) {
    for (const std::string& text : words ? split_words(value) : std::vector<std::string>{value})
      check_choice(known, name, where, meant, text);
    return std::string();
  });
  return *this;
}

Args& Args::common() {
  impl_->common = true;
  return *this;
}

Args& Args::example(const char* line) {
  impl_->examples.emplace_back(line);
  return *this;
}

const std::vector<Argument>& Args::arguments() const { return impl_->arguments; }
const std::vector<std::string>& Args::examples() const { return impl_->examples; }

// The parser would complain about what is missing before what is misspelt.
void Args::refuse_unknown(const std::vector<std::string>& arguments) const {
  std::vector<std::string> known;
  std::vector<bool> takes_value;
  for (const Argument& item : impl_->arguments) {
    if (item.positional) continue;
    for (std::string& name : item.spellings()) {
      known.push_back(std::move(name));
      takes_value.push_back(!item.value.empty());
    }
  }
  std::vector<const char*> words;
  for (const std::string& name : known) words.push_back(name.c_str());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") return;
    if (argument.size() < 2 || argument[0] != '-') continue;
    const std::string name = argument.substr(0, argument.find('='));
    std::size_t found = 0;
    // "-oFILE" is a short option with its value.
    while (found < known.size() && known[found] != name &&
           !(known[found].size() == 2 && name[1] != '-' && name.compare(0, 2, known[found]) == 0))
      ++found;
    if (found == known.size()) {
      const std::string near = nearest_word(name, words.data(), words.size());
      throw make_error(ErrorCode::kUsage, "unknown option {}", name)
          .at("pare " + impl_->command)
          .hint(near.empty() ? fmt::format("`pare {} --help` lists the options", impl_->command)
                             : fmt::format("did you mean {}?", near));
    }
    if (takes_value[found] && name == argument && known[found] == name) ++i;
  }
}

void Args::parse(const std::vector<std::string>& arguments) {
  refuse_unknown(arguments);
  try {
    // The parser takes the arguments from the back.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    impl_->app.parse(std::move(reversed));
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> rest = impl_->app.remaining();
    const std::string extra = rest.empty() ? "" : rest[0];
    throw make_error(ErrorCode::kUsage, "unexpected argument '{}'", extra)
        .at("pare " + impl_->command)
        .hint(extra_hint(arguments, extra));
  } catch (const CLI::RequiredError& error) {
    std::string name = error.what();
    name = name.substr(0, name.find(" is required"));
    throw make_error(ErrorCode::kUsage, "{} is missing", name).at("pare " + impl_->command).hint(usage());
  } catch (const CLI::ConversionError& error) {
    // "Could not convert: --older-than = x": only numbers are converted.
    const std::string text = error.what();
    const std::size_t name = text.find(": "), value = text.find(" = ");
    if (name == std::string::npos || value == std::string::npos || value < name)
      throw make_error(ErrorCode::kUsage, "{}", text).at("pare " + impl_->command).hint(usage());
    throw make_error(ErrorCode::kUsage, "{} cannot be '{}'", text.substr(name + 2, value - name - 2),
                     text.substr(value + 3))
        .at("pare " + impl_->command)
        .hint(fmt::format("it takes a number within range; `pare {} --help` says which", impl_->command));
  } catch (const CLI::ParseError& error) {
    throw make_error(ErrorCode::kUsage, "{}", error.what())
        .at("pare " + impl_->command)
        .hint(fmt::format("`pare {} --help` lists the options", impl_->command));
  }
}

// What stands behind the value of an option that may be repeated is meant as another one.
std::string Args::extra_hint(const std::vector<std::string>& arguments, const std::string& extra) const {
  const auto at = std::find(arguments.begin(), arguments.end(), extra);
  if (at - arguments.begin() < 2) return usage();
  for (const Argument& item : impl_->arguments)
    for (const std::string& name : item.spellings())
      if (item.many && !item.positional && *(at - 2) == name)
        return item.words ? fmt::format("{0} {1},{2}, or {0} {1} {0} {2}", name, *(at - 1), extra)
                          : fmt::format("once for each: {0} {1} {0} {2}", name, *(at - 1), extra);
  return usage();
}

std::string Args::usage() const {
  std::string line = "pare " + impl_->command;
  for (const Argument& item : impl_->arguments) {
    if (item.common) continue;
    if (item.positional)
      line += item.required ? " " + item.names : " [" + item.names + "]";
    else if (item.required)
      line += " " + item.long_name() + " " + item.value;
    if (item.positional && item.many) line += "...";
  }
  bool more = false;
  for (const Argument& item : impl_->arguments)
    more = more || (!item.positional && !item.required && !item.common);
  return line + (more ? " [options]" : "");
}

namespace {

// "  --threads N               threads (results do not depend on it)", wrapped behind its column.
std::string help_lines(const Argument& item) {
  std::string out, left = "  ";
  const std::vector<std::string> names = item.spellings();
  for (std::size_t i = 0; i < names.size(); ++i) left += (i == 0 ? "" : ", ") + names[i];
  if (!item.value.empty()) left += " " + item.value;
  if (item.many && !item.positional) left += item.words ? ",..." : " ...";
  // The sentence, the choices, the default.
  std::string right = item.help, fallback;
  if (const std::size_t at = right.find("(default"); at != std::string::npos) {
    fallback = right.substr(at);
    right.erase(at > 0 ? at - 1 : 0);
  } else if (!item.fallback.empty()) {
    fallback = fmt::format("(default {})", item.fallback);
  }
  if (!item.choices.empty() && !item.explained) right += (right.empty() ? "" : ": ") + listed(item.choices);
  if (!fallback.empty()) right += " " + fallback;
  if (!item.key.empty()) right += fmt::format(" [{}]", item.key);
  if (left.size() + 2 > kHelpColumn) {
    out += left + "\n";
    left.clear();
  }
  std::string line = left + std::string(kHelpColumn - left.size(), ' ');
  for (std::size_t begin = 0; begin < right.size();) {
    std::size_t space = right.find(' ', begin);
    if (space == std::string::npos) space = right.size();
    const std::string word = right.substr(begin, space - begin);
    if (line.size() + word.size() + 1 > kColumns && line.size() > kHelpColumn) {
      out += line + "\n";
      line = std::string(kHelpColumn, ' ');
    }
    if (line.size() > kHelpColumn) line += " ";
    line += word;
    begin = space + 1;
  }
  return out + line + "\n";
}

}  // namespace

std::string Args::common_help() const {
  std::string out;
  for (const Argument& item : impl_->arguments)
    if (item.common) out += help_lines(item);
  return out;
}

std::string Args::help() const {
  std::string out = fmt::format("pare {}: {}\n\n  {}\n\n", impl_->command, impl_->what, usage());
  bool some = false;
  for (const Argument& item : impl_->arguments) {
    if (item.common) continue;
    out += help_lines(item);
    some = true;
  }
  if (some && !impl_->examples.empty()) out += "\n";
  for (const std::string& example : impl_->examples) out += "  " + example + "\n";
  out += "\n[name] is the recipe key that says the same; `pare --help` has the options of every command.\n";
  return out;
}

}  // namespace pare
