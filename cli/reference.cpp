#include "cli/reference.h"

#include <map>

#include "cli/description.h"
#include "engine/base/environment.h"
#include "engine/base/error_codes.h"
#include "quant/placement/spec.h"
#include "recipes/grammar/load.h"
#include "recipes/grammar/recipe_keys.h"

namespace pare {
namespace {

// The text of a table's cell: a bar would end it, and <...> would be taken for HTML.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    if (c == '<')
      out += "&lt;";
    else
      out += c;
  }
  return out;
}

std::string code(const std::string& text) {
  if (text.empty()) return "";
  std::string out = "`";
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out + "`";
}

std::string codes(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + code(word);
  return out;
}

// As GitHub makes anchors of headings: "pare stats show" -> "pare-stats-show".
std::string anchor(const std::string& command) {
  std::string out = "pare-" + command;
  for (char& c : out)
    if (c == ' ') c = '-';
  return out;
}

std::string argument_row(const DescribedArgument& d) {
  const Argument& a = d.argument;
  std::string names = codes(a.spellings());
  if (!a.value.empty()) names += " " + code(a.value);
  std::string type = d.type;
  if (a.required) type += ", required";
  if (a.many) type += a.positional ? ", one or more" : a.words ? ", words" : ", repeatable";
  std::string meaning = cell(d.sentence);
  if (!a.choices.empty() && !a.explained) meaning += (meaning.empty() ? "" : ": ") + codes(a.choices);
  const std::string fallback = d.type == "flag" ? "off" : cell(d.fallback);
  return fmt::format("| {} | {} | {} | {} | {} |\n", names, type, fallback, meaning, code(a.key));
}

constexpr const char* kArgumentHead =
    "| argument | type | default | meaning | recipe key |\n| --- | --- | --- | --- | --- |\n";

void commands(std::string& out, const Description& program) {
  out += "## Commands\n\n| command | what it does |\n| --- | --- |\n";
  for (const DescribedCommand& c : program.commands)
    out += fmt::format("| [pare {}](#{}) | {} |\n", c.name, anchor(c.name), cell(c.what));
  out +=
      "\nAn option's value follows it or stands behind `=`. What is repeatable is given once for each value; "
      "words may be joined by commas as well. "
      "Integers and numbers are decimal.\n";
  for (const DescribedCommand& c : program.commands) {
    out += fmt::format("\n### pare {}\n\n{}.\n\n```\n{}\n```\n\n", c.name, cell(c.what), c.usage);
    if (!c.arguments.empty()) out += kArgumentHead;
    for (const DescribedArgument& d : c.arguments) out += argument_row(d);
    if (c.examples.empty()) continue;
    out += c.arguments.empty() ? "```\n" : "\n```\n";
    for (const std::string& example : c.examples) out += example + "\n";
    out += "```\n";
  }
  out += fmt::format("\n## Options of every command\n\n{}", kArgumentHead);
  for (const DescribedArgument& d : program.common) out += argument_row(d);
  out += "| `--version` | flag | off | version, build features, licence; takes the place of a command | |\n";
}

void outcomes(std::string& out) {
  out +=
      "\n## Exit codes\n\nThe second column is `error.code` of `--json`.\n\n"
      "| code | error.code | meaning |\n| --- | --- | --- |\n| 0 | | done |\n";
  for (const ErrorCodeInfo& e : error_codes())
    out += fmt::format("| {} | `{}` | {} |\n", static_cast<int>(e.code), e.name, cell(e.meaning));
  out +=
      "\nA gate or an audit that fails is not an error: the document of `--json` is complete and has no "
      "`error`; `failed_gate` stands there only when a check of pare's own stopped the work. An error says "
      "what is wrong, where (file, line and column, node, tensor) and what to do. Output files are written "
      "under a temporary name and renamed, so that an error or a kill leaves no partial file.\n"
      "\n## Environment variables\n\n| variable | meaning |\n| --- | --- |\n";
  for (const EnvironmentVariable& v : environment_variables())
    out += fmt::format("| `{}` | {} |\n", v.name, cell(v.what));
  out +=
      "\nIn a recipe `${NAME}` stands for `--set NAME=VALUE` or else for the environment variable of that "
      "name.\n\n## Keys of --json\n\n[json.md](json.md) lists every key of every command's document; a test "
      "holds the program to it in both directions.\n";
}

void recipes(std::string& out) {
  out +=
      "\n## Recipe keys\n\n`NAME` stands for a name that the recipe chooses, `[]` for an item of a list; one "
      "text, number or integer may stand for a list of one. `pare recipe schema` prints the same as a JSON "
      "schema.\n\n| key | type | values | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const RecipeKey& k : recipe_keys()) {
    std::string values = codes(k.choices);
    if (!k.limits.empty()) values += (values.empty() ? "" : "; ") + k.limits;
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", k.path, k.type, values,
                       k.required ? "required" : cell(k.fallback), cell(k.doc));
  }
  out += "\n## Built-in recipes\n\n| recipe | what it does |\n| --- | --- |\n";
  for (const BuiltinRecipe& recipe : builtin_recipes())
    out += fmt::format("| `builtin/{}` | {} |\n", recipe.name, cell(recipe.what));
  out +=
      "\n## Schemes\n\nValues of `--format` and of the recipe key `quantize.scheme`; "
      "[formats.md](formats.md) "
      "has the number formats.\n\n| scheme | meaning |\n| --- | --- |\n";
  for (const quant::Scheme& scheme : quant::schemes())
    out += fmt::format("| `{}` | {} |\n", scheme.name, cell(scheme.meaning));
}

}  // namespace

std::string reference_markdown() {
  std::string out =
      "# Reference\n\nMade by `scripts/reference` from the program (`pare reference`); change the help texts "
      "in cli/, not this file.\n\n";
  commands(out, describe_program());
  outcomes(out);
  recipes(out);
  return out;
}

}  // namespace pare
