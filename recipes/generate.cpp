#include "recipes/generate.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <span>

#include "datasets/text/chat_template.h"
#include "datasets/text/tokenizer.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/ops/sequence/cached_attention.h"
#include "engine/run/session.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Graph stepwise_graph(const Checkpoint& checkpoint) {
  BuildOptions options;
  options.stepwise = true;
  return build_graph(checkpoint, options);
}

}  // namespace

struct Generator::State {
  State(const std::string& path, ThreadPool* pool)
      : checkpoint(open_checkpoint(path)),
        tokenizer(checkpoint_tokenizer(path)),
        session(lower_for_cpu(stepwise_graph(checkpoint)).graph, session_options(pool)) {
    ends = checkpoint.config.eos;
    if (tokenizer.spec().eos >= 0) ends.push_back(tokenizer.spec().eos);
  }

  static SessionOptions session_options(ThreadPool* pool) {
    SessionOptions options;
    options.pool = pool;
    return options;
  }

  std::vector<std::int64_t> encode(const std::string& prompt, bool special) const {
    std::vector<std::int64_t> ids = tokenizer.encode(prompt, special);
    if (ids.empty())
      throw make_error(ErrorCode::kUsage, "the prompt has no tokens").hint("give a text to go on with");
    const std::int64_t context = checkpoint.config.context;
    if (static_cast<std::int64_t>(ids.size()) >= context)
      throw make_error(ErrorCode::kUsage, "the prompt has {} tokens, and the model's context {}", ids.size(),
                       context)
          .hint("shorten the prompt");
    for (const std::int64_t id : ids)
      if (id >= checkpoint.config.vocabulary)
        throw make_error(ErrorCode::kBadFile,
                         "the tokenizer gives token {} ('{}'), and the model's embedding has {} rows", id,
                         tokenizer.piece(id), checkpoint.config.vocabulary)
            .at(tokenizer.spec().where)
            .hint("are the tokenizer and the weights of one model?");
    return ids;
  }

  // Room for so many tokens.
  void begin(std::int64_t tokens) {
    const ModelConfig& c = checkpoint.config;
    blocks = (tokens + kKeysOfBlock - 1) / kKeysOfBlock;
    past = 0;
    feed.clear();
    for (const ValueId id : session.graph().inputs) {
      const std::string& name = session.graph().value(id).name;
      if (name == "input_ids" || name == "past") {
        (name == "past" ? past_at : ids_at) = feed.size();
        feed.emplace_back();
        continue;
      }
      const bool keys = name.size() > 4 && name.compare(name.size() - 4, 4, ".key") == 0;
      feed.push_back(
          Tensor::allocate(DType::kF32, keys ? Dims{1, c.kv_heads, blocks, c.head_size, kKeysOfBlock}
                                             : Dims{1, c.kv_heads, blocks * kKeysOfBlock, c.head_size}));
      std::memset(feed.back().mut<float>(), 0, static_cast<std::size_t>(feed.back().bytes()));
    }
  }

  // The logits behind the last of these tokens.
  std::span<const float> step(const std::vector<std::int64_t>& ids) {
    const ModelConfig& c = checkpoint.config;
    const auto count = static_cast<std::int64_t>(ids.size());
    feed[ids_at] = Tensor::from(DType::kI64, {1, count}, ids);
    feed[past_at] = Tensor::from<std::int64_t>(DType::kI64, {}, {past});
    out = session.run(feed);
    std::size_t i = 1;
    for (Tensor& cache : feed) {
      if (cache.dtype() != DType::kF32) continue;
      const auto* rows = out[i++].as<float>();
      (cache.dims().size() == 5 ? store_keys : store_values)(rows, count, c.kv_heads, c.head_size, blocks,
                                                             past, cache.mut<float>());
    }
    past += count;
    const auto n = static_cast<std::size_t>(out[0].dims()[2]);
    return {out[0].as<float>() + static_cast<std::size_t>(out[0].size()) - n, n};
  }

  Checkpoint checkpoint;
  Tokenizer tokenizer;
  Session session;
  std::vector<std::int64_t> ends;
  std::vector<Tensor> feed, out;  // feed: in the order of the graph's inputs, the caches among them
  std::size_t ids_at = 0, past_at = 0;
  std::int64_t blocks = 0, past = 0;  // of the caches, and tokens in them
};

Generator::Generator(const std::string& checkpoint, ThreadPool* pool)
    : state_(std::make_unique<State>(checkpoint, pool)) {}
Generator::~Generator() = default;

std::string Generator::dialogue(const Json& messages) const {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  ChatOptions options;
  options.generation_prompt = true;
  options.now = static_cast<std::int64_t>(now) + local.tm_gmtoff;
  return ChatTemplate(state_->tokenizer.spec()).render(messages, options);
}

std::vector<float> Generator::logits(const std::string& prompt) {
  const std::vector<std::int64_t> ids = state_->encode(prompt, true);
  state_->begin(static_cast<std::int64_t>(ids.size()));
  const std::span<const float> row = state_->step(ids);
  return {row.begin(), row.end()};
}

Generated Generator::run(const std::string& prompt, const GenerateOptions& options) {
  State& s = *state_;
  Generated result;
  result.prompt = s.encode(prompt, options.special);
  TokenSampler sampler(options.sampling);
  const auto room = s.checkpoint.config.context - static_cast<std::int64_t>(result.prompt.size());
  s.begin(static_cast<std::int64_t>(result.prompt.size()) + std::min(room, options.most));
  const Clock::time_point start = Clock::now();
  std::span<const float> logits = s.step(result.prompt);
  result.prefill_seconds = seconds_since(start);
  const Clock::time_point first = Clock::now();
  result.finish = room < options.most ? "context" : "length";
  for (std::int64_t i = 0; i < std::min(room, options.most); ++i) {
    check_cancelled();
    const std::int64_t token = sampler.next(logits);
    result.tokens.push_back(token);
    if (!options.to_the_end && std::find(s.ends.begin(), s.ends.end(), token) != s.ends.end()) {
      result.finish = "end";
      break;
    }
    result.text = s.tokenizer.decode(result.tokens);
    std::size_t cut = std::string::npos;
    for (const std::string& stop : options.stop) cut = std::min(cut, result.text.find(stop));
    if (!options.stop.empty() && cut != std::string::npos) {
      result.text.resize(cut);
      result.finish = "stop";
      break;
    }
    if (i + 1 < std::min(room, options.most)) logits = s.step({token});
  }
  if (result.finish != "stop") result.text = s.tokenizer.decode(result.tokens);
  result.decode_seconds = seconds_since(first);
  return result;
}

}  // namespace pare
