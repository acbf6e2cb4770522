#include "cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "recipes/generate.h"

namespace pare {
namespace {

class Generate final : public Command {
 public:
  const char* name() const override { return "generate"; }
  const char* what() const override { return "let a language model go on with a text"; }

  void declare(Args& args) override {
    args.positional("CHECKPOINT", path_, "checkpoint folder or GGUF file", true)
        .option("--prompt", "TEXT", prompt_, "what it goes on with; with --chat what the user says")
        .flag("--chat", chat_, "a dialogue, by the checkpoint's chat template; prints the answer")
        .option("--system", "TEXT", system_, "with --chat: how the model should behave")
        .option(
            "--messages", "FILE", messages_,
            "with --chat: a .json with [{\"role\", \"content\"}, ...], or {\"messages\": [...]} and more for "
            "the template; --prompt comes behind them")
        .option("--max-tokens", "N", most_, "new tokens at most")
        .option("--temperature", "T", temperature_,
                "0: always the likeliest token; above: a draw by --seed (default 0)")
        .option("--top-k", "K", top_k_, "draw among the K likeliest (default: all)")
        .option("--top-p", "P", top_p_, "draw among the likeliest that have the share P together")
        .option("--stop", "TEXT", stop_, "end before this text")
        .flag("--ignore-end", ignore_end_, "go on behind an end token")
        .example("pare generate prose-llama --prompt \"It was a\" --max-tokens 40")
        .example("pare generate model.gguf --chat --system \"Be brief.\" --prompt \"What is a tensor?\"");
  }

  int run(Context& context) override {
    GenerateOptions options;
    options.most = most_;
    options.sampling.temperature = temperature_;
    options.sampling.top_k = top_k_;
    options.sampling.top_p = top_p_;
    options.sampling.seed = context.seed();
    options.stop = stop_;
    options.to_the_end = ignore_end_;
    options.pool = &context.pool();
    TokenSampler check(options.sampling);  // before the model is opened
    const Json messages = dialogue();
    Generator generator(path_, options.pool);
    const std::string prompt = chat_ ? generator.dialogue(messages) : prompt_;
    options.special = !chat_;
    const Generated result = generator.run(prompt, options);
    const auto rate = [](std::size_t count, double seconds) {
      return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
    };
    const double prefill = rate(result.prompt.size(), result.prefill_seconds);
    const double decode =
        rate(result.tokens.size() <= 1 ? 0 : result.tokens.size() - 1, result.decode_seconds);
    Json& json = context.document();
    json["prompt"] = prompt;
    json["prompt_tokens"] = result.prompt;
    json["tokens"] = result.tokens;
    json["text"] = result.text;
    json["finish"] = result.finish;
    json["prefill_tokens_per_second"] = json_number(prefill);
    json["decode_tokens_per_second"] = json_number(decode);
    context.print(chat_ ? result.text : prompt_ + result.text);
    context.message(fmt::format("{} tokens behind {} ({}); {:.1f} tokens/s of the prompt, {:.1f} new ones",
                                result.tokens.size(), result.prompt.size(), result.finish, prefill, decode));
    return 0;
  }

 private:
  // The messages of --chat; null without it.
  Json dialogue() const {
    if (!chat_) {
      if (!system_.empty() || !messages_.empty())
        throw make_error(ErrorCode::kUsage, "--system and --messages are for a dialogue").hint("add --chat");
      if (prompt_.empty())
        throw make_error(ErrorCode::kUsage, "there is nothing to go on with").hint("add --prompt TEXT");
      return {};
    }
    Json json = messages_.empty() ? Json::array() : read_json_file(messages_);
    if (json.is_object() && !json.contains("messages"))
      throw make_error(ErrorCode::kUsage, "it has no \"messages\"")
          .at(messages_)
          .hint("a list of {\"role\": \"user\", \"content\": \"...\"}, or {\"messages\": [...]}");
    Json& list = json.is_object() ? json["messages"] : json;
    if (!list.is_array())
      throw make_error(ErrorCode::kUsage, "the messages are no list")
          .at(messages_)
          .hint("a list of {\"role\": \"user\", \"content\": \"...\"}, or {\"messages\": [...]}");
    if (!system_.empty()) list.insert(list.begin(), Json{{"role", "system"}, {"content", system_}});
    if (!prompt_.empty()) list.push_back(Json{{"role", "user"}, {"content", prompt_}});
    if (list.empty())
      throw make_error(ErrorCode::kUsage, "the dialogue has no messages")
          .hint("add --prompt TEXT or --messages FILE");
    return json;
  }

  std::string path_, prompt_, system_, messages_;
  bool chat_ = false;
  std::int64_t most_ = 128, top_k_ = 0;
  double temperature_ = 0, top_p_ = 1;
  std::vector<std::string> stop_;
  bool ignore_end_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate() { return std::make_unique<Generate>(); }

}  // namespace pare
