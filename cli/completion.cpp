#include "cli/completion.h"

#include <fmt/core.h>

#include <set>

namespace pare {
namespace {

std::string first_word(const std::string& name) { return name.substr(0, name.find(' ')); }
std::string second_word(const std::string& name) {
  const std::size_t space = name.find(' ');
  return space == std::string::npos ? "" : name.substr(space + 1);
}

// Every first word once, in the order of the commands.
std::vector<std::string> first_words(const Description& program) {
  std::vector<std::string> out;
  for (const DescribedCommand& c : program.commands)
    if (out.empty() || out.back() != first_word(c.name)) out.push_back(first_word(c.name));
  return out;
}

// The second words behind `first`; empty for a command of one word.
std::vector<std::string> second_words(const Description& program, const std::string& first) {
  std::vector<std::string> out;
  for (const DescribedCommand& c : program.commands)
    if (first_word(c.name) == first && !second_word(c.name).empty()) out.push_back(second_word(c.name));
  return out;
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// What stands between single quotes of a shell, the quotes included.
std::string quoted(const std::string& text, const char* quote = "'\\''") {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string(quote) : std::string(1, c);
  return out + "'";
}

// Of help: the first sentence is enough for a menu.
std::string brief(const DescribedArgument& d) {
  std::string text = d.sentence.empty() ? joined(d.words, ", ") : d.sentence;
  const std::size_t end = text.find(';');
  return end == std::string::npos ? text : text.substr(0, end);
}

std::vector<std::string> option_names(const std::vector<DescribedArgument>& arguments) {
  std::vector<std::string> out;
  for (const DescribedArgument& d : arguments)
    if (!d.argument.positional)
      for (const std::string& name : d.argument.spellings()) out.push_back(name);
  return out;
}

// One case of bash: patterns, and what `kind` and `words` are for them.
std::string bash_case(const std::vector<std::string>& patterns, const DescribedArgument& d) {
  const char* kind = d.offer == Offer::kFiles     ? "files"
                     : d.offer == Offer::kFolders ? "folders"
                     : d.type == "flag"           ? "flag"
                                                  : "value";
  std::string body = fmt::format("kind={}", kind);
  if (!d.words.empty()) body += " words=" + quoted(joined(d.words));
  return fmt::format("    {}) {} ;;\n", joined(patterns, " | "), body);
}

std::string bash_cases(const std::string& command, const std::vector<DescribedArgument>& arguments) {
  std::string out;
  int place = 0;
  for (const DescribedArgument& d : arguments) {
    std::vector<std::string> patterns;
    if (d.argument.positional) {
      // The last of several takes all that follow.
      patterns.push_back(quoted(fmt::format("{}:{}", command, place)));
      if (d.argument.many) patterns.back() = quoted(command + ":") + "[0-9]*";
      ++place;
    } else if (d.type == "flag") {
      continue;
    } else {
      for (const std::string& name : d.argument.spellings())
        patterns.push_back(command == "*" ? "*" + quoted(":" + name) : quoted(command + ":" + name));
    }
    out += bash_case(patterns, d);
  }
  return out;
}

}  // namespace

std::string bash_completion(const Description& program) {
  const std::string common = joined(option_names(program.common));
  std::string options, values, families;
  for (const DescribedCommand& c : program.commands) {
    options +=
        fmt::format("    {}) words={} ;;\n", quoted(c.name),
                    quoted(joined(option_names(c.arguments)) + (c.arguments.empty() ? "" : " ") + common));
    values += bash_cases(c.name, c.arguments);
  }
  values += bash_cases("*", program.common);
  for (const std::string& first : first_words(program))
    if (const std::vector<std::string> verbs = second_words(program, first); !verbs.empty())
      families += fmt::format("    {}) words={} ;;\n", first, quoted(joined(verbs)));
  return R"(# bash completion of pare, made by `pare completion bash`.

# The options of a command into `words`.
_pare_options() {
  case $1 in
)" + options +
         R"(  esac
}

# What an option's value, or the argument at a place, may be: `kind` (files, folders, value) and `words`. `kind` is
# flag when there is none.
_pare_value() {
  kind=flag words=
  case $1:$2 in
)" + values +
         R"(  esac
}

# The second words of a command of two into `words`; nothing for a whole command.
_pare_verbs() {
  words=
  case $1 in
)" + families +
         R"(  esac
}

_pare() {
  local cur=${COMP_WORDS[COMP_CWORD]} command= option= place=0 arguments=() glue= i word last kind words
  # The shell cuts at =; here `--format=int8` and `image=x.npy` are one argument again.
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [ "$word" = = ] || [ -n "$glue" ]; then
      arguments[${#arguments[@]}-1]+=$word
    else
      arguments+=("$word")
    fi
    if [ "$word" = = ]; then glue=1; else glue=; fi
  done
  [ "$cur" = = ] && cur=
  last=$((${#arguments[@]} - 1))
  for ((i = 0; i < last; ++i)); do
    word=${arguments[i]}
    if [ -n "$option" ]; then
      option=
      continue
    fi
    case $word in
      -*=*) ;;
      -*)
        _pare_value "$command" "$word"
        [ "$kind" = flag ] || option=$word
        ;;
      *)
        _pare_verbs "$command"
        if [ -z "$command" ]; then
          command=$word
        elif [ -n "$words" ]; then
          command="$command $word"
        else
          place=$((place + 1))
        fi
        ;;
    esac
  done
  word=${arguments[last]}
  case $word in -*=*) option=${word%%=*} ;; esac
  COMPREPLY=()
  kind=value words=
  if [ -n "$option" ]; then
    _pare_value "$command" "$option"
  elif [ -z "$command" ]; then
    words=)" +
         quoted(joined(first_words(program)) + " " + common + " --version") +
         R"(
  else
    _pare_verbs "$command"
    if [ -z "$words" ]; then
      case $word in
        -*) _pare_options "$command" ;;
        *) _pare_value "$command" "$place" ;;
      esac
    fi
  fi
  [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$cur"))
  local IFS=$'\n'
  case $kind in
    files)
      compopt -o filenames 2>/dev/null
      COMPREPLY+=($(compgen -f -- "$cur"))
      ;;
    folders)
      compopt -o filenames 2>/dev/null
      COMPREPLY+=($(compgen -d -- "$cur"))
      ;;
  esac
}

complete -F _pare pare
)";
}

namespace {

// Text within a specification of zsh's _arguments: a colon ends it, brackets end the explanation.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const DescribedArgument& d) {
  std::string words;
  if (!d.words.empty()) words = "(" + joined(d.words) + ")";
  const char* files = d.offer == Offer::kFiles ? "_files" : d.offer == Offer::kFolders ? "_files -/" : "";
  if (words.empty()) return *files == 0 ? " " : files;
  if (*files == 0) return words;
  return fmt::format("{{_alternative \"words\\:value\\:{}\" \"files\\:file\\:{}\"}}", words, files);
}

std::string zsh_arguments(const std::vector<DescribedArgument>& arguments) {
  std::string out;
  int place = 0;
  for (const DescribedArgument& d : arguments) {
    const Argument& a = d.argument;
    if (a.positional) {
      const std::string where = a.many ? "*" : fmt::format("{}", ++place);
      out += " \\\n        " + quoted(fmt::format("{}:{}{}:{}", where, a.required ? "" : ":",
                                                  zsh_text(a.names), zsh_action(d)));
      continue;
    }
    const std::vector<std::string> names = a.spellings();
    for (const std::string& name : names) {
      std::string spec = a.many ? "*" : names.size() > 1 ? "(" + joined(names) + ")" : "";
      spec += name;
      if (d.type != "flag") spec += name.size() == 2 ? "+" : "=";
      spec += "[" + zsh_text(brief(d)) + "]";
      if (d.type != "flag") spec += ":" + zsh_text(a.value) + ":" + zsh_action(d);
      out += " \\\n        " + quoted(spec);
    }
  }
  return out;
}

std::string zsh_described(const std::string& name, const std::string& what) {
  return "    " + quoted(zsh_text(name) + ":" + what) + "\n";
}

}  // namespace

std::string zsh_completion(const Description& program) {
  std::string firsts, families, cases;
  for (const std::string& first : first_words(program)) {
    const std::vector<std::string> verbs = second_words(program, first);
    for (const DescribedCommand& c : program.commands)
      if (c.name == first) firsts += zsh_described(first, c.what);
    if (verbs.empty()) continue;
    firsts += zsh_described(first, joined(verbs, ", "));
    families += fmt::format("    {})\n      verbs=(\n", first);
    for (const DescribedCommand& c : program.commands)
      if (first_word(c.name) == first) families += "    " + zsh_described(second_word(c.name), c.what);
    families += "      )\n      ;;\n";
  }
  for (const DescribedCommand& c : program.commands)
    cases += fmt::format("    {})\n      _arguments -s -S $common{}\n      ;;\n", quoted(c.name),
                         zsh_arguments(c.arguments));
  return R"(#compdef pare
# zsh completion of pare, made by `pare completion zsh`.

_pare() {
  local -a commands verbs common
  commands=(
)" + firsts +
         "  )\n  common=(" + zsh_arguments(program.common) + R"(
  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    _arguments -s -S $common '--version[version, build features, licence]'
    return
  fi
  local command=$words[2]
  case $command in
)" + families +
         R"(  esac
  if (( $#verbs )); then
    if (( CURRENT == 3 )); then
      _describe 'command' verbs
      return
    fi
    command="$command $words[3]"
    shift words
    (( CURRENT-- ))
  fi
  shift words
  (( CURRENT-- ))
  case $command in
)" + cases +
         R"(  esac
}

_pare "$@"
)";
}

namespace {

std::string fish_option(const std::string& condition, const DescribedArgument& d) {
  std::string line = "complete -c pare" + condition;
  for (const std::string& name : d.argument.spellings())
    line += name.size() == 2 ? " -s " + name.substr(1) : " -l " + name.substr(2);
  if (d.type != "flag") {
    line += d.offer == Offer::kNothing ? " -x" : " -r";
    std::string values = joined(d.words);
    if (d.offer == Offer::kFolders) values = "(__fish_complete_directories)";
    if (d.offer == Offer::kFiles) line += " -F";
    if (!values.empty()) line += " -a " + quoted(values, "\\'");
  }
  return line + " -d " + quoted(brief(d), "\\'") + "\n";
}

}  // namespace

std::string fish_completion(const Description& program) {
  // Options that take a value in one command and none in another count as the latter.
  std::set<std::string> valued, flags;
  const auto sort = [&](const std::vector<DescribedArgument>& arguments) {
    for (const DescribedArgument& d : arguments)
      if (!d.argument.positional)
        for (const std::string& name : d.argument.spellings())
          (d.type == "flag" ? flags : valued).insert(name);
  };
  sort(program.common);
  for (const DescribedCommand& c : program.commands) sort(c.arguments);
  std::string with_value;
  for (const std::string& name : valued)
    if (flags.count(name) == 0) with_value += " " + name;
  std::string out = R"(# fish completion of pare, made by `pare completion fish`.

# The words of the command line that are neither options nor their values, without `pare` itself.
function __pare_words
    set -l words (commandline -opc)
    set -e words[1]
    set -l skip
    for word in $words
        if test -n "$skip"
            set skip
            continue
        end
        switch $word
            case)" + with_value +
                    R"(
                set skip 1
            case '-*'
            case '*'
                echo $word
        end
    end
end

# Whether the command is this one.
function __pare_is
    set -l words (__pare_words)
    set -l count (count $argv)
    test (count $words) -ge $count; and test "$words[1..$count]" = "$argv"
end

# Whether exactly these words stand there, and the next is asked for.
function __pare_after
    set -l words (__pare_words)
    test "$words" = "$argv"
end

complete -c pare -f
complete -c pare -n '__pare_after' -l version -d 'version, build features, licence'
)";
  for (const DescribedArgument& d : program.common) out += fish_option("", d);
  for (const std::string& first : first_words(program)) {
    std::vector<std::string> verbs = second_words(program, first);
    std::string what = joined(verbs, ", ");
    for (const DescribedCommand& c : program.commands)
      if (c.name == first) what = c.what;
    out += fmt::format("complete -c pare -n '__pare_after' -a {} -d {}\n", first, quoted(what, "\\'"));
    for (const DescribedCommand& c : program.commands)
      if (first_word(c.name) == first && !second_word(c.name).empty())
        out += fmt::format("complete -c pare -n '__pare_after {}' -a {} -d {}\n", first, second_word(c.name),
                           quoted(c.what, "\\'"));
  }
  for (const DescribedCommand& c : program.commands) {
    const std::string condition = fmt::format(" -n '__pare_is {}'", c.name);
    for (const DescribedArgument& d : c.arguments) {
      if (!d.argument.positional) {
        out += fish_option(condition, d);
        continue;
      }
      if (d.offer != Offer::kNothing) out += "complete -c pare" + condition + " -F\n";
      if (!d.words.empty())
        out += "complete -c pare" + condition + " -a " + quoted(joined(d.words), "\\'") + "\n";
    }
  }
  return out;
}

}  // namespace pare
