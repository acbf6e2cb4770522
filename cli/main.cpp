// The program: finds the command, parses, runs, turns what happened into text or one JSON document and an
// exit code (docs/reference.md). No work is done here.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/overview.h"
#include "cli/version.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/base/memory.h"
#include "recipes/grammar/mistakes.h"

namespace pare {

Context::Context(const CommonOptions& options)
    : options_(options), document_(std::make_unique<Json>(Json::object())) {}
Context::~Context() = default;

ThreadPool& Context::pool() {
  if (pool_ == nullptr)
    pool_ = std::make_unique<ThreadPool>(options_.threads > 0 ? static_cast<int>(options_.threads)
                                                              : available_threads());
  return *pool_;
}

// Made at the first call: options are parsed after the context is.
Progress& Context::progress() {
  if (progress_ == nullptr)
    progress_ = make_console_progress(options_.quiet || options_.log_level == "error" ||
                                      options_.log_level == "warn");
  return *progress_;
}

Json& Context::document() { return *document_; }

void write_stdout(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw make_error(ErrorCode::kDevice, "cannot write to stdout: {}", std::strerror(errno))
        .hint("is the disk full, or the reader gone?");
}

void Context::print(const std::string& text) {
  if (!options_.json) write_stdout(text + "\n");
}

void Context::message(const std::string& text) {
  if (!options_.quiet && options_.log_level != "error" && options_.log_level != "warn")
    std::fputs((text + "\n").c_str(), stderr);
}

void Context::warn(const std::string& text) {
  warnings_.push_back(text);
  if (!options_.quiet && options_.log_level != "error")
    std::fputs(("pare: warning: " + text + "\n").c_str(), stderr);
}

namespace {

using Clock = std::chrono::steady_clock;

// The index of the command's first word: the first argument that is no common option or its value.
std::size_t command_index(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].empty() || arguments[i][0] != '-') return i;
    for (const char* with_value : {"--device", "--log-level", "--threads", "--seed", "--isa"})
      if (arguments[i] == with_value) ++i;
  }
  return arguments.size();
}

// Takes the command's words out of `arguments`. nullptr: none was named.
Command* find_command(const std::vector<std::unique_ptr<Command>>& commands,
                      std::vector<std::string>& arguments) {
  const std::size_t at = command_index(arguments);
  if (at == arguments.size()) return nullptr;
  const std::string first = arguments[at];
  const bool more = at + 1 < arguments.size() && arguments[at + 1].rfind('-', 0) != 0;
  const std::string both = more ? first + " " + arguments[at + 1] : first;
  std::vector<const char*> names, seconds;
  for (const auto& command : commands) {
    const std::string name = command->name();
    names.push_back(command->name());
    const bool two = name == both && name != first;
    if (name != first && !two) {
      if (name.rfind(first + " ", 0) == 0) seconds.push_back(command->name());
      continue;
    }
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at),
                    arguments.begin() + static_cast<std::ptrdiff_t>(at + (two ? 2 : 1)));
    return command.get();
  }
  const std::vector<const char*>& known = seconds.empty() ? names : seconds;
  const std::string wanted = seconds.empty() ? first : both;
  const std::string near = nearest_word(wanted, known.data(), known.size());
  std::string hint =
      near.empty() ? "`pare --help` lists the commands" : fmt::format("did you mean `pare {}`?", near);
  if (near.empty() && !seconds.empty()) {
    hint = "there is:";
    for (const char* name : seconds) hint += fmt::format(" pare {};", name);
    hint.pop_back();
  }
  if (!seconds.empty() && wanted == first)
    throw make_error(ErrorCode::kUsage, "`pare {}` needs a second word", first).hint(hint);
  throw make_error(ErrorCode::kUsage, "there is no command `pare {}`", wanted).hint(hint);
}

void check_common(const CommonOptions& common) {
  if (common.threads < 0 || common.threads > 4096)
    throw make_error(ErrorCode::kUsage, "--threads {} makes no sense", common.threads).hint("1 to 4096");
  if (!common.isa.empty()) set_isa(isa_from_name(common.isa));
}

// A device of its own is a matter of engines; everything else runs on the CPU.
void check_device(const CommonOptions& common, const Command& command) {
  const std::string& device = common.device;
  if (device == "auto" || device == "cpu") return;
  const bool numbered = device.rfind("cuda:", 0) == 0 && device.size() > 5 && device.size() < 9 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device != "cuda" && !numbered)
    throw make_error(ErrorCode::kUsage, "'{}' is no device", device).hint("auto, cpu, cuda or cuda:N");
  const std::string name = command.name();
  for (const char* known : {"run", "build", "bench", "verify", "infer", "calibrate", "eval"})
    if (name == known) {
      if (numbered) setenv("PARE_CUDA_DEVICE", device.c_str() + 5, 1);
      return;
    }
  throw make_error(ErrorCode::kUnsupported, "`pare {}` runs on the CPU only, not on --device {}", name,
                   device)
      .hint("build an engine: pare build --device cuda");
}

void print_error(const Error& error) {
  std::string text = "pare: ";
  if (!error.where().empty()) text += error.where() + ": ";
  text += error.what();
  if (!error.hint().empty()) text += "\n  " + error.hint();
  std::fputs((text + "\n").c_str(), stderr);
}

Json error_json(const Error& error) {
  return {{"code", error_code_name(error.code())},
          {"message", error.what()},
          {"where", error.where()},
          {"hint", error.hint()}};
}

// The document around what the command filled in.
std::string document_text(const std::string& command, const Json& keys,
                          const std::vector<std::string>& warnings, Clock::time_point start) {
  Json document = {{"pare", version()}, {"command", command}};
  for (auto item = keys.begin(); item != keys.end(); ++item) document[item.key()] = item.value();
  document["warnings"] = warnings;
  document["seconds"] = std::chrono::duration<double>(Clock::now() - start).count();
  document["peak_rss_bytes"] = peak_rss_bytes();
  document["peak_anonymous_bytes"] = peak_anonymous_bytes();
  return dump(document, 2) + "\n";
}

// Runs `body`; whatever it throws becomes an Error, with others that were found with it. True when it
// returned.
template <typename Body>
bool guarded(Body&& body, Error& error, std::vector<Error>& others) {
  try {
    body();
    return true;
  } catch (const ManyErrors& caught) {
    error = caught;
    others = caught.others();
  } catch (const Error& caught) {
    error = caught;
  } catch (const std::bad_alloc&) {
    error = make_error(ErrorCode::kDevice, "out of memory").hint("a smaller batch needs less memory");
  } catch (const std::exception& caught) {
    error =
        make_error(ErrorCode::kInternal, "{}", caught.what()).hint("this is a bug in pare: please report it");
  } catch (...) {
    error = make_error(ErrorCode::kInternal, "an unknown exception")
                .hint("this is a bug in pare: please report it");
  }
  return false;
}

int run(std::vector<std::string> arguments) {
  const Clock::time_point start = Clock::now();
  CommonOptions common;
  for (const std::string& argument : arguments) common.json = common.json || argument == "--json";
  Context context(common);
  std::string name;
  int code = 0;
  Error error(ErrorCode::kInternal, "");
  std::vector<Error> others;
  const bool done = guarded(
      [&] {
        const std::vector<std::unique_ptr<Command>> commands = all_commands();
        for (const std::string& argument : arguments)
          if (argument == "--version" && command_index(arguments) == arguments.size()) {
            context.print(version_text());
            if (common.json) write_stdout(document_text("version", {{"version", version_text()}}, {}, start));
            return;
          }
        // `pare help`, `pare help quantize`: people ask so too.
        const std::size_t first = command_index(arguments);
        if (first < arguments.size() && arguments[first] == "help") {
          arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(first));
          arguments.emplace_back("--help");
        }
        const std::string family = family_help(commands, arguments);
        if (!family.empty()) {
          common.json = false;
          return context.print(family);
        }
        Command* command = find_command(commands, arguments);
        if (command == nullptr) {
          common.json = false;
          for (const std::string& argument : arguments)
            if (argument == "-h" || argument == "--help") return context.print(general_help(commands));
          std::fputs(general_help(commands).c_str(), stderr);
          code = static_cast<int>(ErrorCode::kUsage);
          return;
        }
        name = command->name();
        Args args(command->name(), command->what());
        command->declare(args);
        declare_common(args, common);
        for (const std::string& argument : arguments)
          if (argument == "-h" || argument == "--help") {
            common.json = false;
            return context.print(args.help());
          }
        args.parse(arguments);
        check_common(common);
        check_device(common, *command);
        install_cancel_signals();
        start_memory_sampling();
        code = command->run(context);
        if (common.json) write_stdout(document_text(name, context.document(), context.warnings(), start));
      },
      error, others);
  if (done) return code;
  if (error.code() == ErrorCode::kInterrupted) error.hint("nothing was written");
  print_error(error);
  for (const Error& other : others) print_error(other);
  if (common.json) {
    Error ignored(ErrorCode::kInternal, "");  // stdout may be what failed
    guarded(
        [&] {
          Json keys = {{"error", error_json(error)}};
          for (const Error& other : others) keys["error"]["others"].push_back(error_json(other));
          write_stdout(document_text(name, keys, context.warnings(), start));
        },
        ignored, others);
  }
  return static_cast<int>(error.code());
}

}  // namespace
}  // namespace pare

int main(int argc, char** argv) {
  return pare::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
