// Dialogues into the text that a chat model was trained on, by the template that its checkpoint carries:
// Jinja, in the dialect of transformers' apply_chat_template, whose output this is byte for byte.
// docs/text.md says which constructs are known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_fwd.h"
#include "engine/base/tokenizer_spec.h"

namespace pare {

struct ChatOptions {
  bool generation_prompt = false;  // the text ends where the model's answer begins
  // What strftime_now tells the template: seconds from the start of 1970 by the clock on the wall. Absent:
  // there is no such function; many templates then write a date of their own, others cannot do without.
  std::optional<std::int64_t> now;
};

class ChatTemplate {
 public:
  // That of a tokenizer, with its special tokens. Errors: kUsage when it has none; kUnsupported naming a
  // construct that is not known and its line; kBadFile for what is no template.
  explicit ChatTemplate(const TokenizerSpec& spec);
  ChatTemplate(std::string source, std::string where,
               std::vector<std::pair<std::string, std::string>> tokens);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  // `messages`: [{"role": "user", "content": "..."}, ...], or an object that has such a list as "messages"
  // (or "conversation") and may have "tools", "documents" and other values for the template.
  // Errors: kUsage when messages are none, when the template refuses them or does not fit them; kUnsupported
  // for a filter, test, method or function that is not known, and when the template takes too many steps.
  std::string render(const Json& messages, const ChatOptions& options) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace pare
