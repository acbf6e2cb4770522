// What a command takes, declared once: parsing, help, "did you mean", docs/reference.md, man pages and shell
// completion all come from it. The argument parser library stays behind args.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pare {

// A positional argument or an option, as help and everything that is made of it (cli/description.h) see it.
struct Argument {
  enum class Type { kText, kInteger, kNumber, kFlag };
  std::string names;                 // "-o,--output"; of a positional argument "MODEL"
  std::string value, help, key;      // as they were declared
  std::string fallback;              // what holds when it is not given; "" when the help says it in words
  std::vector<std::string> choices;  // every value that it may have; empty: any, or those of the recipe key
  Type type = Type::kText;
  bool explained = false;  // the help has the choices in its own words
  bool positional = false, required = false, many = false, common = false;
  bool words = false;  // many, and several may stand in one value with commas between them

  std::vector<std::string> spellings() const;  // {"-o", "--output"}
  std::string long_name() const;               // "--output", "MODEL"
};

enum class Choices { kListed, kExplained };  // whether help lists them behind its sentence

class Args {
 public:
  Args(std::string command, std::string what);
  ~Args();
  Args(const Args&) = delete;
  Args& operator=(const Args&) = delete;

  // In the order in which they stand on the command line. Optional ones last.
  Args& positional(const char* name, std::string& into, const char* help, bool required = true);
  Args& positionals(const char* name, std::vector<std::string>& into, const char* help);  // one or more

  // `names` is "--output" or "-o,--output"; `value` how help calls the value; `key` the recipe key that says
  // the same, "" when there is none.
  Args& option(const char* names, const char* value, std::string& into, const char* help,
               const char* key = "");
  Args& option(const char* names, const char* value, std::int64_t& into, const char* help,
               const char* key = "");
  Args& option(const char* names, const char* value, double& into, const char* help, const char* key = "");
  // May be given again and again.
  Args& option(const char* names, const char* value, std::vector<std::string>& into, const char* help,
               const char* key = "");
  // The same of words that have no comma in them: "--ops MatMul,Gemm" is "--ops MatMul --ops Gemm".
  Args& words(const char* names, const char* value, std::vector<std::string>& into, const char* help,
              const char* key = "");
  Args& flag(const char* names, bool& into, const char* help, const char* key = "");
  Args& required();  // the option declared last must be given
  // What the argument declared last may be: help lists it, parse() refuses anything else. "percentile(...)"
  // stands for anything between the brackets. `meant` knows what else people call a choice: the choice, or
  // "".
  Args& one_of(std::vector<std::string> choices, Choices how = Choices::kListed,
               std::string (*meant)(const std::string& word) = nullptr);
  Args& common();                   // later options belong to every command: left out of its help
  Args& example(const char* line);  // shown at the end of help

  // Error kUsage: an unknown option (with the nearest one), a missing or malformed value.
  void parse(const std::vector<std::string>& arguments);
  std::string help() const;
  std::string common_help() const;  // the lines of the common options alone
  std::string usage() const;        // "pare convert MODEL --output OUT --to FORMAT [options]"

  const std::vector<Argument>& arguments() const;
  const std::vector<std::string>& examples() const;

 private:
  struct Impl;
  void refuse_unknown(const std::vector<std::string>& arguments) const;
  std::string extra_hint(const std::vector<std::string>& arguments, const std::string& extra) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pare
