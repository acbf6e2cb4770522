// A subcommand declares what it takes, calls libraries, prints. One file each; commands.cpp lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/args.h"
#include "engine/base/json_fwd.h"
#include "engine/base/progress.h"
#include "engine/base/thread_pool.h"

namespace pare {

struct CommonOptions {  // the same for every command
  std::string device = "auto", log_level = "info", isa;
  bool json = false, quiet = false, help = false;
  std::int64_t threads = 0, seed = -1;  // 0: what the machine allows; -1: the recipe's, else 0
};

// What a running command may use of the world: results go to stdout, messages to stderr.
class Context {
 public:
  explicit Context(const CommonOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const CommonOptions& options() const { return options_; }
  ThreadPool& pool();  // made at the first call
  Progress& progress();
  std::uint64_t seed() const { return options_.seed < 0 ? 0 : static_cast<std::uint64_t>(options_.seed); }

  void print(const std::string& text);    // a line of the result for people; nothing with --json
  void message(const std::string& text);  // a line about what is going on; nothing with --quiet
  void warn(const std::string& text);     // stderr, and `warnings` of the document
  const std::vector<std::string>& warnings() const { return warnings_; }

  Json& document();  // the keys of --json; main adds the common ones

 private:
  const CommonOptions& options_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Json> document_;
  std::vector<std::string> warnings_;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const char* name() const = 0;  // "quantize", "stats show"
  virtual const char* what() const = 0;  // one line for help, without a full stop
  virtual void declare(Args& args) = 0;
  virtual int run(Context& context) = 0;  // 0, or 1 when a gate or audit failed; throws Error otherwise
};

std::vector<std::unique_ptr<Command>> all_commands();  // in the order of `pare --help`

void declare_common(Args& args, CommonOptions& common);  // the options of every command

// Writes all of it or throws kDevice (a full disk behind a redirected stdout is not success).
void write_stdout(const std::string& text);

}  // namespace pare
