// What a command takes, declared once: parsing, help and "did you mean" all come from it. The argument parser
// library stays behind args.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pare {

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
  Args& flag(const char* names, bool& into, const char* help, const char* key = "");
  Args& required();                 // the option declared last must be given
  Args& common();                   // later options belong to every command: left out of its help
  Args& example(const char* line);  // shown at the end of help

  // Error kUsage: an unknown option (with the nearest one), a missing or malformed value.
  void parse(const std::vector<std::string>& arguments);
  std::string help() const;

 private:
  struct Item;
  struct Impl;
  Item& add(Item item);
  std::string usage() const;
  void refuse_unknown(const std::vector<std::string>& arguments) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pare
