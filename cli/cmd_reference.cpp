// What is made of the program's own description: docs/reference.md, man pages, shell completion.
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/manual.h"
#include "cli/reference.h"
#include "engine/base/atomic_file.h"
#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/error_codes.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "recipes/grammar/recipe_keys.h"

namespace pare {
namespace {

void print_whole(Context& context, std::string text) {
  text.pop_back();  // print() ends the line
  context.print(text);
}

Json argument_json(const DescribedArgument& d) {
  const Argument& a = d.argument;
  return {
      {"names", a.spellings()}, {"value", a.value},      {"type", d.type},      {"default", d.fallback},
      {"choices", a.choices},   {"meaning", d.sentence}, {"recipe_key", a.key}, {"positional", a.positional},
      {"required", a.required}, {"repeatable", a.many},  {"words", a.words}};
}

class Reference final : public Command {
 public:
  const char* name() const override { return "reference"; }
  const char* what() const override { return "every command, option, exit code and recipe key as Markdown"; }
  void declare(Args& args) override {
    args.example("pare reference > docs/reference.md").example("pare reference --json");
  }

  int run(Context& context) override {
    print_whole(context, reference_markdown());
    const Description program = describe_program();
    Json commands = Json::array(), common = Json::array(), codes = Json::array(), variables = Json::array(),
         keys = Json::array();
    for (const DescribedCommand& c : program.commands) {
      Json arguments = Json::array();
      for (const DescribedArgument& d : c.arguments) arguments.push_back(argument_json(d));
      commands.push_back({{"name", c.name},
                          {"what", c.what},
                          {"usage", c.usage},
                          {"arguments", std::move(arguments)},
                          {"examples", c.examples}});
    }
    for (const DescribedArgument& d : program.common) common.push_back(argument_json(d));
    for (const ErrorCodeInfo& e : error_codes())
      codes.push_back(
          {{"exit_code", static_cast<int>(e.code)}, {"error_code", e.name}, {"meaning", e.meaning}});
    for (const EnvironmentVariable& v : environment_variables())
      variables.push_back({{"name", v.name}, {"meaning", v.what}});
    for (const RecipeKey& k : recipe_keys())
      keys.push_back({{"key", k.path},
                      {"type", k.type},
                      {"choices", k.choices},
                      {"limits", k.limits},
                      {"default", k.fallback},
                      {"meaning", k.doc},
                      {"required", k.required}});
    Json& json = context.document();
    json["commands"] = std::move(commands);
    json["common"] = std::move(common);
    json["exit_codes"] = std::move(codes);
    json["environment"] = std::move(variables);
    json["recipe_keys"] = std::move(keys);
    return 0;
  }
};

class Completion final : public Command {
 public:
  const char* name() const override { return "completion"; }
  const char* what() const override { return "a script that completes pare's command lines in a shell"; }
  void declare(Args& args) override {
    args.positional("SHELL", shell_, "what to write it for")
        .one_of({"bash", "zsh", "fish"})
        .example("source <(pare completion bash)")
        .example("pare completion zsh > ~/.zfunc/_pare")
        .example("pare completion fish > ~/.config/fish/completions/pare.fish");
  }

  int run(Context& context) override {
    const Description program = describe_program();
    const std::string script = shell_ == "bash"  ? bash_completion(program)
                               : shell_ == "zsh" ? zsh_completion(program)
                                                 : fish_completion(program);
    context.document()["script"] = script;
    print_whole(context, script);
    return 0;
  }

 private:
  std::string shell_;
};

class Man final : public Command {
 public:
  const char* name() const override { return "man"; }
  const char* what() const override { return "write man pages: pare.1 and one for each command"; }
  void declare(Args& args) override {
    args.positional("DIR", folder_, "where to write them; made if it is missing")
        .example("pare man ~/.local/share/man/man1");
  }

  int run(Context& context) override {
    make_directories(folder_);
    std::vector<std::string> files;
    for (const ManualPage& page : manual_pages()) {
      write_file_atomically(join_path(folder_, page.file), page.text);
      files.push_back(page.file);
    }
    context.document()["files"] = files;
    context.print(fmt::format("wrote {} pages to {}", files.size(), folder_));
    return 0;
  }

 private:
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> make_reference() { return std::make_unique<Reference>(); }
std::unique_ptr<Command> make_completion() { return std::make_unique<Completion>(); }
std::unique_ptr<Command> make_man() { return std::make_unique<Man>(); }

}  // namespace pare
