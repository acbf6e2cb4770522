#include "calib/gradient_grams.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "calib/backward.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"

namespace pare {
namespace {

// A number in [0, 1) by sample and position (splitmix64).
double draw(std::uint64_t sample, std::uint64_t position) {
  std::uint64_t z = (sample << 32 | position) + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

// softmax - one of a token that is drawn from it, in each row.
Tensor gradient_of(const Tensor& logits, std::int64_t first_sample, ThreadPool& pool) {
  const std::int64_t positions = logits.dims()[1], tokens = logits.dims()[2];
  Tensor result = Tensor::allocate(DType::kF32, logits.dims());
  float* out = result.mut<float>();
  pool.parallel_for(logits.dims()[0] * positions, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* x = logits.as<float>() + r * tokens;
      float* p = out + r * tokens;
      const float most = *std::max_element(x, x + tokens);
      double sum = 0;
      for (std::int64_t i = 0; i < tokens; ++i) {
        p[i] = std::exp(x[i] - most);
        sum += static_cast<double>(p[i]);
      }
      const double at = draw(static_cast<std::uint64_t>(first_sample + r / positions),
                             static_cast<std::uint64_t>(r % positions)) *
                        sum;
      double passed = 0;
      std::int64_t chosen = tokens - 1;
      for (std::int64_t i = 0; i < tokens; ++i) {
        passed += static_cast<double>(p[i]);
        if (passed > at) {
          chosen = i;
          break;
        }
      }
      const auto inverse = static_cast<float>(1 / sum);
      for (std::int64_t i = 0; i < tokens; ++i) p[i] *= inverse;
      p[chosen] -= 1;
    }
  });
  return result;
}

// rows of `x`, each times its factor.
void add_rows(GramAccumulator& sum, const float* x, const std::vector<float>& factor) {
  const std::int64_t n = sum.width(), count = static_cast<std::int64_t>(factor.size());
  for (std::int64_t at = 0; at < count;) {
    std::int64_t k = count - at;
    float* to = sum.rows(k);
    for (std::int64_t r = 0; r < k; ++r)
      for (std::int64_t c = 0; c < n; ++c)
        to[r * n + c] = x[(at + r) * n + c] * factor[static_cast<std::size_t>(at + r)];
    sum.commit(k);
    at += k;
  }
}

std::vector<float> lengths(const float* x, std::int64_t rows, std::int64_t n) {
  std::vector<float> result;
  for (std::int64_t r = 0; r < rows; ++r) {
    double square = 0;
    for (std::int64_t c = 0; c < n; ++c)
      square += static_cast<double>(x[r * n + c]) * static_cast<double>(x[r * n + c]);
    result.push_back(static_cast<float>(std::sqrt(square)));
  }
  return result;
}

double trace(const Gram& gram) {
  double sum = 0;
  for (std::int64_t i = 0; i < gram.n; ++i) sum += gram.at(0, i, i);
  return sum;
}

void scale(Gram& gram, double factor) {
  if (!std::isfinite(factor)) return;
  for (double& v : gram.sums) v *= factor;
  for (double& v : gram.totals) v *= factor;
}

}  // namespace

std::vector<std::shared_ptr<const GradientGrams>> collect_gradient_grams(const Graph& graph,
                                                                         const std::vector<NodeId>& layers,
                                                                         Dataset& data,
                                                                         const GramOptions& options) {
  ThreadPool& pool = *options.pool;
  if (!data.spec().feedback.empty() || graph.outputs.empty() ||
      graph.value(graph.outputs[0]).dtype != DType::kF32 || graph.value(graph.outputs[0]).shape.rank() != 3)
    throw make_error(ErrorCode::kUnsupported,
                     "gradients are for language models: one output of logits, no states")
        .hint("take quantize.objective: layer, the default");
  const ValueId logits = graph.outputs[0];
  Backward backward(graph, logits, layers, pool);
  Graph watched = graph;
  watched.outputs = backward.needed();
  for (const ValueId id : graph.inputs)
    watched.outputs.erase(std::remove(watched.outputs.begin(), watched.outputs.end(), id),
                          watched.outputs.end());
  watched.outputs.push_back(logits);
  const Lowered lowered = lower_for_cpu(watched);
  SessionOptions session_options;
  session_options.pool = &pool;
  Session session(lowered.graph, session_options);
  std::vector<std::unique_ptr<GramAccumulator>> inputs, outputs;
  std::vector<double> weights(layers.size(), 0.0);  // sum of |g|^2
  for (const NodeId id : layers) {
    const Node& node = graph.node(id);
    const std::vector<std::int64_t>& dims = graph.value(node.in[1]).constant.dims();
    const std::string& name = graph.value(node.in[1]).name;
    inputs.push_back(std::make_unique<GramAccumulator>(name, dims.at(0), 1, pool));
    outputs.push_back(std::make_unique<GramAccumulator>(name, dims.at(1), 1, pool));
  }
  const std::int64_t end = options.end < 0 ? data.sample_count() : options.end;
  ProgressStep step(options.progress != nullptr ? *options.progress : no_progress(),
                    "second moments of gradients", end - options.begin);
  for (std::int64_t at = options.begin, to = 0; at < end; at = to) {
    check_cancelled();
    to = data.batch_end(at, end, options.batch > 0 ? options.batch : data.batch_size());
    const Batch batch = data.read(at, to, &pool);
    std::map<ValueId, Tensor> values;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) values[graph.inputs[i]] = batch.inputs[i];
    std::vector<Tensor> results = session.run(batch.inputs);
    for (std::size_t i = 0; i < results.size(); ++i) values[watched.outputs[i]] = std::move(results[i]);
    Tensor gradient = gradient_of(values.at(logits), at, pool);
    values.erase(logits);
    backward.run(values, std::move(gradient), [&](std::size_t layer, const Tensor& g) {
      const Tensor& x = values.at(graph.node(layers[layer]).in[0]);
      const std::int64_t n = x.dims().back(), m = g.dims().back(), rows = g.size() / m;
      const std::vector<float> length = lengths(g.as<float>(), rows, m);
      for (const float v : length) weights[layer] += static_cast<double>(v) * static_cast<double>(v);
      add_rows(*inputs[layer], x.as<float>(), length);
      add_rows(*outputs[layer], g.as<float>(), lengths(x.as<float>(), rows, n));
    });
    step.advance(to - at);
  }
  std::vector<std::shared_ptr<const GradientGrams>> result;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    auto one = std::make_shared<GradientGrams>();
    one->inputs = inputs[i]->finish();
    one->outputs = outputs[i]->finish();
    scale(one->inputs, static_cast<double>(one->inputs.count) / weights[i]);
    scale(one->outputs, static_cast<double>(one->outputs.count) * static_cast<double>(one->outputs.n) /
                            trace(one->outputs));
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace pare
