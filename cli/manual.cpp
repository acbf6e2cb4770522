#include "cli/manual.h"

#include <fmt/core.h>

#include "cli/description.h"
#include "cli/version.h"
#include "engine/base/environment.h"
#include "engine/base/error_codes.h"

namespace pare {
namespace {

// Pages must have one. That of the day on which they are made would change their bytes every day.
constexpr const char* kDate = "2026-11-30";

// Text that stands anywhere in a line: backslashes are the formatter's, and a bare - may become a hyphen.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else
      out += c;
  }
  // A dot at the beginning would be a request.
  return !out.empty() && out[0] == '.' ? "\\&" + out : out;
}

std::string bold(const std::string& text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + escaped(text) + "\\fR"; }

// "pare stats show" -> "pare-stats-show"
std::string page_name(const std::string& command) {
  std::string out = "pare-" + command;
  for (char& c : out)
    if (c == ' ') c = '-';
  return out;
}

std::string head(const std::string& name, const std::string& what) {
  std::string title = name;
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return fmt::format(".TH {} 1 \"{}\" \"pare {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", escaped(title),
                     kDate, version(), escaped(name), escaped(what));
}

void argument(std::string& out, const DescribedArgument& d) {
  const Argument& a = d.argument;
  out += ".TP\n";
  std::string names;
  for (const std::string& spelling : a.spellings())
    names += (names.empty() ? "" : ", ") + (a.positional ? italic(spelling) : bold(spelling));
  if (!a.value.empty()) names += " " + italic(a.value);
  if (a.many) names += a.words ? ",..." : " ...";
  std::string text = d.sentence;
  if (!a.choices.empty() && !a.explained) {
    text += text.empty() ? "" : ": ";
    for (std::size_t i = 0; i < a.choices.size(); ++i) text += (i == 0 ? "" : ", ") + a.choices[i];
  }
  if (text.empty()) text = a.long_name();
  out += names + "\n" + escaped(text) + ".\n";
  if (a.required && !a.positional) out += "Required.\n";
  if (!d.fallback.empty()) out += "Default: " + escaped(d.fallback) + ".\n";
  if (!a.key.empty()) out += "Recipe key: " + bold(a.key) + ".\n";
}

void outcomes(std::string& out) {
  out += ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n";
  for (const ErrorCodeInfo& e : error_codes())
    out +=
        fmt::format(".TP\n.B {}\n{} ({}).\n", static_cast<int>(e.code), escaped(e.meaning), escaped(e.name));
}

std::string overview(const Description& program) {
  std::string out = head("pare", "make a trained network smaller and faster, and prove what it lost") +
                    ".SH SYNOPSIS\n.B pare\n.I COMMAND\n[options]\n.SH COMMANDS\n";
  for (const DescribedCommand& c : program.commands)
    out += fmt::format(".TP\n.BR {} (1)\n{}.\n", escaped(page_name(c.name)), escaped(c.what));
  out += ".SH OPTIONS OF EVERY COMMAND\n";
  for (const DescribedArgument& d : program.common) argument(out, d);
  out += ".TP\n.B \\-\\-version\nVersion, build features, licence; takes the place of a command.\n";
  outcomes(out);
  out += ".SH ENVIRONMENT\n";
  for (const EnvironmentVariable& v : environment_variables())
    out += fmt::format(".TP\n.B {}\n{}.\n", escaped(v.name), escaped(v.what));
  return out;
}

std::string page(const DescribedCommand& c) {
  std::string out = head(page_name(c.name), c.what) + ".SH SYNOPSIS\n" + escaped(c.usage) + "\n";
  if (!c.arguments.empty()) out += ".SH OPTIONS\n";
  for (const DescribedArgument& d : c.arguments) argument(out, d);
  out += ".P\nThe options of every command are in\n.BR pare (1).\n";
  if (!c.examples.empty()) {
    out += ".SH EXAMPLES\n.EX\n";
    for (const std::string& example : c.examples) out += escaped(example) + "\n";
    out += ".EE\n";
  }
  return out + ".SH SEE ALSO\n.BR pare (1)\n";
}

}  // namespace

std::vector<ManualPage> manual_pages() {
  const Description program = describe_program();
  std::vector<ManualPage> pages = {{"pare.1", overview(program)}};
  for (const DescribedCommand& c : program.commands) pages.push_back({page_name(c.name) + ".1", page(c)});
  return pages;
}

}  // namespace pare
