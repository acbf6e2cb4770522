#include "engine/run/session.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/run/batch_axis.h"
#include "engine/run/graph_run.h"
#include "engine/run/run_context.h"
#include "engine/run/session_device.h"

namespace pare {
namespace {

SessionDevice*& the_device() {
  static SessionDevice* device = nullptr;
  return device;
}

}  // namespace

void set_session_device(SessionDevice* device) { the_device() = device; }
SessionDevice* session_device() { return the_device(); }

struct Session::Impl {
  std::shared_ptr<const Graph> graph;
  RunContext context;
  GraphRun main;
  bool watched = false;
  SessionDevice* device = session_device();  // nullptr: here
  std::map<ValueId, Watcher> device_watchers;
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
  void run_main(std::vector<Slot> inputs);
  bool run_on_device(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  void check_inputs(const std::vector<Tensor>& inputs) const;
  void refuse_other_kinds() const;
};

Session::Session(std::shared_ptr<const Graph> graph, SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}
Session::~Session() = default;

const Graph& Session::graph() const { return *impl_->graph; }

void Session::watch(ValueId id, Watcher watcher) { watch({}, id, std::move(watcher)); }

void Session::watch(const SubgraphPath& path, ValueId id, Watcher watcher) {
  GraphRun& run = impl_->at(path);
  PARE_ASSERT(static_cast<std::size_t>(id) < run.graph().value_count());
  if (path.empty())
    impl_->device_watchers[id] = watcher;
  else
    impl_->device = nullptr;  // a device sees main graphs only
  run.watch(id, std::move(watcher));
  impl_->watched = true;
}

void Session::clear_watchers() {
  impl_->main.clear_watchers();
  impl_->device_watchers.clear();
  impl_->watched = false;
}

void Session::Impl::refuse_other_kinds() const {
  for (const auto* list : {&graph->inputs, &graph->outputs})
    for (const ValueId id : *list)
      if (graph->value(id).kind != ValueKind::kTensor)
        fail(ErrorCode::kUnsupported,
             "'{}' of the model is of the kind '{}'; only tensors go in and out here", graph->value(id).name,
             name(graph->value(id).kind));
}

void Session::Impl::check_inputs(const std::vector<Tensor>& inputs) const {
  if (inputs.size() != graph->inputs.size())
    throw make_error(ErrorCode::kUsage, "the model takes {} inputs, {} were given", graph->inputs.size(),
                     inputs.size())
        .hint("`pare inspect MODEL` lists its inputs");
  std::map<std::string, std::int64_t> symbols;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& want = graph->value(graph->inputs[i]);
    const Tensor& got = inputs[i];
    if (got.empty())
      throw make_error(ErrorCode::kUsage, "input '{}' was not given", want.name)
          .hint("`pare inspect MODEL` lists its inputs");
    if (want.dtype != got.dtype())
      throw make_error(ErrorCode::kUsage, "input '{}' is {}, the model wants {}", want.name,
                       name(got.dtype()), name(want.dtype))
          .hint(
              "save the array in that type; a data set (not `pare infer`) also converts, by its keys scale "
              "and layout");
    if (!want.shape.fits(got.dims()))
      throw make_error(ErrorCode::kUsage, "input '{}' has shape {}, the model wants {}", want.name,
                       to_string(got.dims()), to_string(want.shape))
          .hint("give the array that shape, or change the model: `pare surgeon set-shape`");
    for (std::size_t d = 0; want.shape.ranked && d < got.dims().size(); ++d) {
      const std::string& symbol = want.shape.dims[d].symbol;
      if (symbol.empty()) continue;
      const auto [it, is_first] = symbols.emplace(symbol, got.dims()[d]);
      if (!is_first && it->second != got.dims()[d])
        throw make_error(ErrorCode::kUsage,
                         "input '{}' has shape {}: dimension '{}' is {} here and {} in an input before",
                         want.name, to_string(got.dims()), symbol, got.dims()[d], it->second)
            .hint("dimensions of one name are of one size: cut or pad one of the inputs");
    }
  }
}

std::vector<Tensor> Session::run(const std::vector<Tensor>& inputs) {
  Impl& s = *impl_;
  s.refuse_other_kinds();
  s.check_inputs(inputs);
  if (s.device != nullptr && !s.context.options.profile) {
    std::vector<Tensor> outputs;
    if (s.run_on_device(inputs, outputs)) return outputs;
    s.device = nullptr;
  }
  // Watchers and profiles see whole batches.
  if (s.most_at_a_time == 0 || s.watched || s.context.options.profile) return s.run_whole(inputs);
  const std::int64_t batch = inputs[0].dims()[0], part = part_of_batch(batch, s.most_at_a_time);
  return part == batch ? s.run_whole(inputs) : s.run_parts(inputs, part);
}

bool Session::Impl::run_on_device(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  std::vector<ValueId> ids;
  for (const auto& [id, watcher] : device_watchers) ids.push_back(id);
  SessionDevice::Results results;
  if (!device->run(graph, inputs, ids, results)) return false;
  for (std::size_t i = 0; i < ids.size(); ++i) device_watchers.at(ids[i])(ids[i], results.watched[i].view());
  outputs = std::move(results.outputs);
  return true;
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

void Session::Impl::run_main(std::vector<Slot> inputs) {
  check_cancelled();
  try {
    for (std::size_t i = 0; i < inputs.size(); ++i) main.set(graph->inputs[i], std::move(inputs[i]));
    main.run();
  } catch (...) {
    main.forget();
    context.pool.release_all();
    throw;
  }
}

static Tensor copy_of(const TensorView& view) {
  return Tensor::share(view.dtype, view.dims, view.data, nullptr).clone();
}

std::vector<Tensor> Session::Impl::run_whole(const std::vector<Tensor>& inputs) {
  std::vector<Slot> slots(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) slots[i].view = inputs[i].view();
  run_main(std::move(slots));
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < graph->outputs.size(); ++i) {
    Slot slot = main.output(i);
    outputs.push_back(copy_of(slot.view));
    release(slot, context.pool);
  }
  main.clear();
  return outputs;
}

std::vector<RunValue> Session::run_values(const std::vector<RunValue>& inputs) {
  Impl& s = *impl_;
  if (inputs.size() != s.graph->inputs.size())
    throw make_error(ErrorCode::kUsage, "the model takes {} inputs, {} were given", s.graph->inputs.size(),
                     inputs.size())
        .hint("`pare inspect MODEL` lists its inputs");
  std::vector<Slot> slots(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& want = s.graph->value(s.graph->inputs[i]);
    const bool many = want.kind == ValueKind::kSequence || want.kind == ValueKind::kOptionalSequence;
    const bool optional = want.kind == ValueKind::kOptional || want.kind == ValueKind::kOptionalSequence;
    if (!inputs[i].present || (!many && inputs[i].tensor.empty())) {
      if (!optional)
        throw make_error(ErrorCode::kUsage, "input '{}' was not given", want.name)
            .hint("`pare inspect MODEL` lists its inputs");
      continue;
    }
    if (many)
      slots[i].sequence =
          std::make_shared<const TensorSequence>(TensorSequence{want.dtype, inputs[i].sequence});
    else
      slots[i].view = inputs[i].tensor.view();
    for (const Tensor& tensor : many ? inputs[i].sequence : std::vector<Tensor>{inputs[i].tensor})
      if (tensor.dtype() != want.dtype || !want.shape.fits(tensor.dims()))
        throw make_error(ErrorCode::kUsage, "input '{}' holds {} {}, the model wants {} {}", want.name,
                         name(tensor.dtype()), to_string(tensor.dims()), name(want.dtype),
                         to_string(want.shape))
            .hint("save the array in that type and shape");
  }
  s.run_main(std::move(slots));
  std::vector<RunValue> outputs;
  for (std::size_t i = 0; i < s.graph->outputs.size(); ++i) {
    Slot slot = s.main.output(i);
    RunValue value;
    value.present = slot.has_value();
    if (slot.view.present()) value.tensor = copy_of(slot.view);
    if (slot.sequence != nullptr)
      for (const Tensor& tensor : slot.sequence->tensors) value.sequence.push_back(tensor.clone());
    outputs.push_back(std::move(value));
    release(slot, s.context.pool);
  }
  s.main.clear();
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
