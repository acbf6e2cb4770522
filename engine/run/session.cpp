#include "engine/run/session.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/run/batch_axis.h"
#include "engine/run/graph_run.h"
#include "engine/run/run_context.h"

namespace pare {

struct Session::Impl {
  std::shared_ptr<const Graph> graph;
  RunContext context;
  GraphRun main;
  bool watched = false;
  std::int64_t most_at_a_time = 0;  // samples; 0: the batch stays whole

  Impl(std::shared_ptr<const Graph> g, SessionOptions o)
      : graph(std::move(g)), context{o, {}, {}, 0}, main(*graph, context) {
    PARE_ASSERT(o.pool != nullptr);
    if (o.split_batch && samples_stay_apart(*graph).empty()) most_at_a_time = samples_of_a_part(*graph);
  }

  GraphRun& at(const SubgraphPath& path) {
    GraphRun* run = &main;
    for (const SubgraphStep& step : path) run = &run->inner(step);
    return *run;
  }
  std::vector<Tensor> run_parts(const std::vector<Tensor>& inputs, std::int64_t part);
  std::vector<Tensor> run_whole(const std::vector<Tensor>& inputs);
  void check_inputs(const std::vector<Tensor>& inputs) const;
};

Session::Session(std::shared_ptr<const Graph> graph, SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}
Session::~Session() = default;

const Graph& Session::graph() const { return *impl_->graph; }

void Session::watch(ValueId id, Watcher watcher) { watch({}, id, std::move(watcher)); }

void Session::watch(const SubgraphPath& path, ValueId id, Watcher watcher) {
  GraphRun& run = impl_->at(path);
  PARE_ASSERT(static_cast<std::size_t>(id) < run.graph().value_count());
  run.watch(id, std::move(watcher));
  impl_->watched = true;
}

void Session::clear_watchers() {
  impl_->main.clear_watchers();
  impl_->watched = false;
}

void Session::Impl::check_inputs(const std::vector<Tensor>& inputs) const {
  if (inputs.size() != graph->inputs.size())
    fail(ErrorCode::kUsage, "the model takes {} inputs, {} were given", graph->inputs.size(), inputs.size());
  std::map<std::string, std::int64_t> symbols;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& want = graph->value(graph->inputs[i]);
    const Tensor& got = inputs[i];
    if (got.empty()) fail(ErrorCode::kUsage, "input '{}' was not given", want.name);
    if (want.dtype != got.dtype())
      throw make_error(ErrorCode::kUsage, "input '{}' is {}, the model wants {}", want.name,
                       name(got.dtype()), name(want.dtype))
          .hint(
              "save the array in that type; a data set (not `pare infer`) also converts, by its keys scale "
              "and layout");
    if (!want.shape.fits(got.dims()))
      throw make_error(ErrorCode::kUsage, "input '{}' has shape {}, the model wants {}", want.name,
                       to_string(got.dims()), to_string(want.shape));
    for (std::size_t d = 0; want.shape.ranked && d < got.dims().size(); ++d) {
      const std::string& symbol = want.shape.dims[d].symbol;
      if (symbol.empty()) continue;
      const auto [it, is_first] = symbols.emplace(symbol, got.dims()[d]);
      if (!is_first && it->second != got.dims()[d])
        fail(ErrorCode::kUsage,
             "input '{}' has shape {}: dimension '{}' is {} here and {} in an input before", want.name,
             to_string(got.dims()), symbol, got.dims()[d], it->second);
    }
  }
}

std::vector<Tensor> Session::run(const std::vector<Tensor>& inputs) {
  Impl& s = *impl_;
  s.check_inputs(inputs);
  // Watchers and profiles see whole batches.
  if (s.most_at_a_time == 0 || s.watched || s.context.options.profile) return s.run_whole(inputs);
  const std::int64_t batch = inputs[0].dims()[0], part = part_of_batch(batch, s.most_at_a_time);
  return part == batch ? s.run_whole(inputs) : s.run_parts(inputs, part);
}

// Samples [first, first + count) of a tensor whose first axis they are.
static Tensor samples_of(const Tensor& whole, std::int64_t first, std::int64_t count) {
  Dims dims = whole.dims();
  const std::int64_t bytes = whole.bytes() / dims[0];
  dims[0] = count;
  const auto* data = static_cast<const std::byte*>(whole.data()) + first * bytes;
  return Tensor::share(whole.dtype(), dims, data, nullptr);
}

std::vector<Tensor> Session::Impl::run_parts(const std::vector<Tensor>& inputs, std::int64_t part) {
  const std::int64_t batch = inputs[0].dims()[0];
  std::vector<Tensor> outputs;
  for (std::int64_t first = 0; first < batch; first += part) {
    const std::int64_t count = std::min(part, batch - first);
    std::vector<Tensor> some;
    for (const Tensor& input : inputs) some.push_back(samples_of(input, first, count));
    const std::vector<Tensor> results = run_whole(some);
    if (first == 0)
      for (const Tensor& result : results) {
        Dims dims = result.dims();
        dims[0] = batch;
        outputs.push_back(Tensor::allocate(result.dtype(), dims));
      }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::int64_t bytes = results[i].bytes() / count;  // of a sample
      std::memcpy(outputs[i].mut<std::byte>() + first * bytes, results[i].data(),
                  static_cast<std::size_t>(count * bytes));
    }
  }
  return outputs;
}

std::vector<Tensor> Session::Impl::run_whole(const std::vector<Tensor>& inputs) {
  check_cancelled();
  try {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Slot slot;
      slot.view = inputs[i].view();
      main.set(graph->inputs[i], std::move(slot));
    }
    main.run();
  } catch (...) {
    main.forget();
    context.pool.release_all();
    throw;
  }
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < graph->outputs.size(); ++i) {
    Slot slot = main.output(i);
    outputs.push_back(Tensor::share(slot.view.dtype, slot.view.dims, slot.view.data, nullptr).clone());
    release(slot, context.pool);
  }
  main.clear();
  return outputs;
}

std::vector<Session::Profile> Session::profile() const {
  std::vector<Profile> rows;
  if (impl_->context.options.profile) impl_->main.profile({}, rows);
  return rows;
}

std::string Session::kernel_of(NodeId id) const { return impl_->main.kernel_of(id); }
std::string Session::kernel_of(const SubgraphPath& path, NodeId id) const {
  return impl_->at(path).kernel_of(id);
}

std::int64_t Session::buffer_bytes() const { return impl_->context.pool.bytes(); }

}  // namespace pare
