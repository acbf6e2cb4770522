// The only file that includes CLI11.
#include "cli/args.h"

#include <CLI/CLI.hpp>

#include "engine/base/error.h"

namespace pare {

namespace {
constexpr std::size_t kColumns = 98;     // of help text
constexpr std::size_t kHelpColumn = 28;  // where explanations begin
}  // namespace

struct Args::Item {
  std::string names, value, help, key;
  bool positional = false, required = false, many = false, common = false;
  CLI::Option* option = nullptr;
};

struct Args::Impl {
  std::string command, what;
  CLI::App app;
  std::vector<Item> items;
  std::vector<std::string> examples;
  bool common = false;
};

Args::Args(std::string command, std::string what) : impl_(std::make_unique<Impl>()) {
  impl_->command = std::move(command);
  impl_->what = std::move(what);
  impl_->app.set_help_flag();  // help is ours
  impl_->app.allow_extras(false);
}
Args::~Args() = default;

Args::Item& Args::add(Item item) {
  item.common = impl_->common;
  impl_->items.push_back(std::move(item));
  return impl_->items.back();
}

namespace {

// One value an occurrence: the parser would otherwise swallow what follows, and split at commas and brackets.
CLI::Option* one_value(CLI::Option* option) { return option->expected(1)->delimiter('\0'); }

}  // namespace

Args& Args::positional(const char* name, std::string& into, const char* help, bool required) {
  Item item;
  item.names = name;
  item.help = help;
  item.positional = true;
  item.required = required;
  item.option = impl_->app.add_option(name, into)->required(required);
  add(item);
  return *this;
}

Args& Args::positionals(const char* name, std::vector<std::string>& into, const char* help) {
  Item item;
  item.names = name;
  item.help = help;
  item.positional = item.required = item.many = true;
  item.option = impl_->app.add_option_function<std::vector<std::string>>(
      name, [&into](const std::vector<std::string>& values) { into = values; });
  item.option->required()->expected(1, 1 << 20);
  add(item);
  return *this;
}

Args& Args::option(const char* names, const char* value, std::string& into, const char* help,
                   const char* key) {
  Item item;
  item.names = names;
  item.value = value;
  item.help = help;
  item.key = key;
  item.option = one_value(
      impl_->app.add_option_function<std::string>(names, [&into](const std::string& text) { into = text; }));
  add(item);
  return *this;
}

Args& Args::option(const char* names, const char* value, std::int64_t& into, const char* help,
                   const char* key) {
  Item item;
  item.names = names;
  item.value = value;
  item.help = help;
  item.key = key;
  item.option = one_value(impl_->app.add_option(names, into));
  add(item);
  return *this;
}

Args& Args::option(const char* names, const char* value, double& into, const char* help, const char* key) {
  Item item;
  item.names = names;
  item.value = value;
  item.help = help;
  item.key = key;
  item.option = one_value(impl_->app.add_option(names, into));
  add(item);
  return *this;
}

Args& Args::option(const char* names, const char* value, std::vector<std::string>& into, const char* help,
                   const char* key) {
  Item item;
  item.names = names;
  item.value = value;
  item.help = help;
  item.key = key;
  item.many = true;
  item.option = impl_->app.add_option_function<std::string>(
      names, [&into](const std::string& text) { into.push_back(text); });
  one_value(item.option)->trigger_on_parse();
  item.option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add(item);
  return *this;
}

Args& Args::flag(const char* names, bool& into, const char* help, const char* key) {
  Item item;
  item.names = names;
  item.help = help;
  item.key = key;
  item.option = impl_->app.add_flag_callback(names, [&into] { into = true; });
  add(item);
  return *this;
}

Args& Args::required() {
  impl_->items.back().required = true;
  impl_->items.back().option->required();
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

namespace {

// "-o,--output" -> {"-o", "--output"}
std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= names.size();) {
    std::size_t comma = names.find(',', begin);
    if (comma == std::string::npos) comma = names.size();
    out.push_back(names.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return out;
}

}  // namespace

// The parser would complain about what is missing before what is misspelt.
void Args::refuse_unknown(const std::vector<std::string>& arguments) const {
  std::vector<std::string> known;
  std::vector<bool> takes_value;
  for (const Item& item : impl_->items) {
    if (item.positional) continue;
    for (std::string& name : split_names(item.names)) {
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
    throw make_error(ErrorCode::kUsage, "unexpected argument '{}'", rest.empty() ? "" : rest[0])
        .at("pare " + impl_->command)
        .hint(usage());
  } catch (const CLI::RequiredError& error) {
    std::string name = error.what();
    name = name.substr(0, name.find(" is required"));
    throw make_error(ErrorCode::kUsage, "{} is missing", name).at("pare " + impl_->command).hint(usage());
  } catch (const CLI::ParseError& error) {
    throw make_error(ErrorCode::kUsage, "{}", error.what())
        .at("pare " + impl_->command)
        .hint(fmt::format("`pare {} --help` lists the options", impl_->command));
  }
}

std::string Args::usage() const {
  std::string line = "pare " + impl_->command;
  for (const Item& item : impl_->items) {
    if (item.common) continue;
    if (item.positional)
      line += item.required ? " " + item.names : " [" + item.names + "]";
    else if (item.required)
      line += " " + split_names(item.names).back() + " " + item.value;
    if (item.positional && item.many) line += "...";
  }
  bool more = false;
  for (const Item& item : impl_->items) more = more || (!item.positional && !item.required && !item.common);
  return line + (more ? " [options]" : "");
}

std::string Args::help() const {
  std::string out = fmt::format("pare {}: {}\n\n  {}\n\n", impl_->command, impl_->what, usage());
  for (const Item& item : impl_->items) {
    if (item.common) continue;
    std::string left = "  ";
    const std::vector<std::string> names = split_names(item.names);
    for (std::size_t i = 0; i < names.size(); ++i) left += (i == 0 ? "" : ", ") + names[i];
    if (!item.value.empty()) left += " " + item.value;
    if (item.many && !item.positional) left += " ...";
    std::string right = item.help;
    if (!item.key.empty()) right += fmt::format(" [{}]", item.key);
    if (left.size() + 2 > kHelpColumn) {
      out += left + "\n";
      left.clear();
    }
    // Words of the explanation, wrapped behind its column.
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
    out += line + "\n";
  }
  if (!impl_->examples.empty()) out += "\n";
  for (const std::string& example : impl_->examples) out += "  " + example + "\n";
  out +=
      "\n[name] is the recipe key that says the same. --json, --quiet, --threads and more work everywhere:\n"
      "`pare --help` lists them.\n";
  return out;
}

}  // namespace pare
