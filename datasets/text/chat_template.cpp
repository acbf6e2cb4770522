#include "datasets/text/chat_template.h"

#include "datasets/text/jinja/interpreter.h"
#include "engine/base/error.h"
#include "engine/base/json.h"

namespace pare {

struct ChatTemplate::State {
  std::string where;
  std::vector<std::pair<std::string, std::string>> tokens;
  jinja::Body body;
};

namespace {

const std::string& template_of(const TokenizerSpec& spec) {
  if (spec.chat_template.empty())
    throw make_error(ErrorCode::kUsage, "the tokenizer has no chat template")
        .at(spec.where)
        .hint("it is no chat model, or the file chat_template.jinja is missing");
  return spec.chat_template;
}

const Json& messages_of(const Json& json) {
  const Json* list = &json;
  if (json.is_object())
    for (const char* key : {"messages", "conversation", "conversations"})
      if (const auto found = json.find(key); found != json.end()) {
        list = &*found;
        break;
      }
  if (!list->is_array() || list->empty())
    throw make_error(ErrorCode::kUsage, "there are no messages")
        .hint(R"(a dialogue is [{"role": "user", "content": "..."}, ...], or {"messages": [...]})");
  for (const Json& message : *list)
    if (!message.is_object() || !message.contains("role"))
      throw make_error(ErrorCode::kUsage, "message {} is no object with a role", &message - &(*list)[0] + 1)
          .hint(R"(a message is {"role": "user", "content": "..."})");
  return *list;
}

// What a model thought has had several names: templates find it under two of them, as transformers has it.
Json with_reasoning(const Json& message) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(key);
    if (found == message.end() || found->is_null()) continue;
    Json aliased = {{"thinking", *found}};
    for (const auto& [name, value] : message.items()) aliased[name] = value;
    aliased["reasoning_content"] = *found;
    return aliased;
  }
  return message;
}

}  // namespace

ChatTemplate::ChatTemplate(const TokenizerSpec& spec)
    : ChatTemplate(
          template_of(spec),
          (spec.chat_template_where.empty() ? spec.where : spec.chat_template_where) + ": chat template",
          spec.special_names) {}

ChatTemplate::ChatTemplate(std::string source, std::string where,
                           std::vector<std::pair<std::string, std::string>> tokens) {
  auto state = std::make_unique<State>();
  state->where = std::move(where);
  state->tokens = std::move(tokens);
  state->body = jinja::parse(source, state->where);
  state_ = std::move(state);
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  jinja::Dict names;
  for (const auto& [name, text] : state_->tokens) names.set(name, jinja::Value::text(text));
  Json list = Json::array();
  for (const Json& message : messages_of(messages)) list.push_back(with_reasoning(message));
  names.set("messages", jinja::from_json(list));
  for (const char* key : {"tools", "documents"}) names.set(key, jinja::Value::none());
  if (messages.is_object())
    for (const auto& [key, value] : messages.items())
      if (key != "messages" && key != "conversation" && key != "conversations")
        names.set(key, jinja::from_json(value));
  names.set("add_generation_prompt", jinja::Value::boolean(options.generation_prompt));
  const jinja::Surroundings surroundings{options.now};
  return jinja::Interpreter(state_->where, surroundings).run(state_->body, names);
}

}  // namespace pare
