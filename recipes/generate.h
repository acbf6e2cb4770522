// Text out of a checkpoint: the prompt in one call, then a token at a time with the keys and values so far.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/json_fwd.h"
#include "engine/base/thread_pool.h"
#include "engine/run/token_sampler.h"

namespace pare {

struct GenerateOptions {
  std::int64_t most = 128;  // new tokens
  SamplingOptions sampling;
  std::vector<std::string> stop;  // the text ends before the first of these
  bool to_the_end = false;        // end tokens do not stop it
  bool special = true;            // the tokenizer's own tokens stand around the prompt; a dialogue has them
  ThreadPool* pool = nullptr;     // required
};

struct Generated {
  std::vector<std::int64_t> prompt, tokens;  // tokens: new ones, an end token among them
  std::string text;                          // of the new tokens
  std::string finish;                        // "end" (an end token), "stop", "length", "context"
  double prefill_seconds = 0, decode_seconds = 0;
};

class Generator {
 public:
  // Opens and builds the model. Errors: those of checkpoint.h; kUnsupported for encoders.
  Generator(const std::string& checkpoint, ThreadPool* pool);
  ~Generator();

  // Error kUsage: an empty prompt, or one that does not fit into the model's context with one token more.
  Generated run(const std::string& prompt, const GenerateOptions& options);
  // The text of a dialogue up to where the model's answer begins, with today's date where the template wants
  // one. To be run without `special`. Errors: those of datasets/text/chat_template.h.
  std::string dialogue(const Json& messages) const;
  // Logits of the last position of a prompt, [vocabulary].
  std::vector<float> logits(const std::string& prompt);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pare
