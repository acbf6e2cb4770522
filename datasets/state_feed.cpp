#include "datasets/state_feed.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {

StateFeed::StateFeed(const Dataset& data, const Graph& graph) {
  std::vector<const char*> names;
  for (const ValueId id : graph.outputs) names.push_back(graph.value(id).name.c_str());
  std::vector<bool> is_state(names.size(), false);
  for (const auto& [input, output] : data.spec().feedback) {
    Pair pair{0, 0, input, {}};
    while (pair.input < data.inputs().size() && data.inputs()[pair.input].name != input) ++pair.input;
    PARE_ASSERT(pair.input < data.inputs().size());  // Dataset checked it
    while (pair.output < names.size() && output != names[pair.output]) ++pair.output;
    if (pair.output == names.size()) {
      const std::string near = nearest_word(output, names.data(), names.size());
      std::string all;
      for (const char* known : names) all += (all.empty() ? "" : ", ") + std::string(known);
      throw make_error(ErrorCode::kUsage, "feedback: the model has no output '{}'", output)
          .hint(near.empty() ? "its outputs are " + all : fmt::format("did you mean '{}'?", near));
    }
    is_state[pair.output] = true;
    pairs_.push_back(std::move(pair));
  }
  for (std::size_t i = 0; i < is_state.size(); ++i)
    if (!is_state[i]) results_.push_back(i);
  if (results_.empty() && !pairs_.empty())
    throw make_error(ErrorCode::kUsage, "feedback takes all outputs of the model: nothing is left to look at")
        .hint("leave one output out of feedback");
}

std::vector<Tensor> StateFeed::run(Session& session, const Batch& batch) {
  if (pairs_.empty()) return session.run(batch.inputs);
  std::vector<Tensor> inputs = batch.inputs;
  for (Pair& pair : pairs_)
    if (!batch.starts_stream && !pair.state.empty()) inputs[pair.input] = pair.state;
  std::vector<Tensor> outputs = session.run(inputs), kept;
  for (Pair& pair : pairs_) {
    const Tensor& next = outputs[pair.output];
    const Tensor& now = inputs[pair.input];
    if (next.dims() != now.dims() || next.dtype() != now.dtype())
      throw make_error(ErrorCode::kUsage, "feedback: '{}' went in as {} {} and comes back as {} {}",
                       pair.name, name(now.dtype()), to_string(now.dims()), name(next.dtype()),
                       to_string(next.dims()))
          .hint("name the output that the model means for this input");
    pair.state = next;
  }
  for (const std::size_t i : results_) kept.push_back(std::move(outputs[i]));
  return kept;
}

}  // namespace pare
