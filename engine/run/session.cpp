#include "engine/run/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/run/batch_axis.h"
#include "engine/run/buffer_pool.h"

namespace pare {
namespace {

std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }

// What is remembered of one node for one set of input shapes.
struct Variant {
  std::vector<std::int64_t> key;  // rank and sizes of every input
  bool reads_values = false;      // output shapes hold for these input values only
  std::vector<OutputType> outputs;
  const Kernel* kernel = nullptr;
  std::shared_ptr<const void> prepared;
  std::int64_t alias_offset = 0;
  std::vector<TensorView> in, out;  // dtype and dims filled in; data set at each run
};

struct Step {
  NodeId id = NodeId::kNone;
  const Node* node = nullptr;
  std::vector<Variant> variants;    // most recent first
  std::vector<ValueId> free_after;  // values whose last reader this is
  double seconds = 0;
  std::int64_t runs = 0;
};

// Shapes seen last are kept; a model fed with ever new shapes must not keep packed weights for each.
constexpr std::size_t kMaxVariants = 4;

// One value during a run.
struct Slot {
  TensorView view;
  int buffer = -1;  // in the pool; -1: an input or a constant
};

}  // namespace

struct Session::Impl {
  std::shared_ptr<const Graph> graph;
  SessionOptions options;
  std::vector<Step> steps;
  std::vector<Slot> slots;     // by ValueId
  std::vector<bool> returned;  // by ValueId: a graph output
  std::map<ValueId, Watcher> watchers;
  BufferPool pool;
  Scratch scratch;

  // Memory for outputs whose sizes a kernel decides while it runs.
  class StepOutputs final : public OutputAllocator {
   public:
    StepOutputs(Impl& impl, const Step& step) : impl_(impl), step_(step) {}
    void* allocate(int i, const Dims& dims) override {
      Slot& slot = impl_.slots[index(step_.node->out[static_cast<std::size_t>(i)])];
      PARE_ASSERT(slot.buffer < 0);
      slot.buffer = impl_.pool.acquire(slot.view.dtype, dims, byte_count(slot.view.dtype, dims));
      slot.view.dims = dims;
      return slot.view.data = impl_.pool.data(slot.buffer);
    }

   private:
    Impl& impl_;
    const Step& step_;
  };

  std::int64_t most_at_a_time = 0;  // samples; 0: the batch stays whole

  Impl(std::shared_ptr<const Graph> g, SessionOptions o) : graph(std::move(g)), options(o) {
    PARE_ASSERT(graph != nullptr && options.pool != nullptr);
    const std::size_t count = graph->value_count();
    slots.resize(count);
    returned.resize(count, false);
    for (const ValueId id : graph->outputs) returned[index(id)] = true;
    std::vector<int> last_reader(count, -1);
    for (const NodeId id : graph->nodes()) {
      Step step;
      step.id = id;
      step.node = &graph->node(id);
      const int self = static_cast<int>(steps.size());
      for (const ValueId in : step.node->in)
        if (in != ValueId::kNone) last_reader[index(in)] = self;
      for (const ValueId out : step.node->out)
        if (out != ValueId::kNone) last_reader[index(out)] = self;  // nobody reads it: freed at once
      steps.push_back(std::move(step));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto id = static_cast<ValueId>(i);
      if (last_reader[i] >= 0 && !returned[i])
        steps[static_cast<std::size_t>(last_reader[i])].free_after.push_back(id);
      if (graph->is_constant(id)) slots[i].view = graph->value(id).constant.view();
    }
    if (options.split_batch && samples_stay_apart(*graph).empty()) most_at_a_time = samples_of_a_part(*graph);
  }

  std::vector<Tensor> run_parts(const std::vector<Tensor>& inputs, std::int64_t part);
  std::vector<Tensor> run_whole(const std::vector<Tensor>& inputs);
  void check_inputs(const std::vector<Tensor>& inputs) const;
  Variant& variant_for(Step& step);
  Variant make_variant(Step& step, std::vector<std::int64_t> key);
  void run_step(Step& step);
  void tell(ValueId id) {
    const auto it = watchers.find(id);
    if (it != watchers.end()) it->second(id, slots[index(id)].view);
  }
};

Session::Session(std::shared_ptr<const Graph> graph, SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}
Session::~Session() = default;

const Graph& Session::graph() const { return *impl_->graph; }

void Session::watch(ValueId id, Watcher watcher) {
  PARE_ASSERT(index(id) < impl_->slots.size());
  impl_->watchers[id] = std::move(watcher);
}

void Session::clear_watchers() { impl_->watchers.clear(); }

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

Variant Session::Impl::make_variant(Step& step, std::vector<std::int64_t> key) {
  const Node& node = *step.node;
  Variant v;
  v.key = std::move(key);
  for (const ValueId in : node.in)
    v.in.push_back(in == ValueId::kNone ? TensorView{} : slots[index(in)].view);
  v.outputs = infer_node(*graph, node, v.in, &v.reads_values);
  PARE_ASSERT(v.outputs.size() == node.out.size());
  for (std::size_t i = 0; i < node.out.size(); ++i)
    v.out.push_back(node.out[i] == ValueId::kNone
                        ? TensorView{}
                        : TensorView{v.outputs[i].dtype, v.outputs[i].dims, nullptr});
  // Choice and preparation may look at constants only.
  for (std::size_t i = 0; i < node.in.size(); ++i)
    if (node.in[i] == ValueId::kNone || !graph->is_constant(node.in[i])) v.in[i].data = nullptr;
  OpCall call{&node, v.in, v.out, options.pool, &scratch, nullptr, nullptr};
  v.kernel = &cpu_registry().pick(call, Backend::kCpu, options.only_invariant);
  if (v.kernel->prepare != nullptr) v.prepared = v.kernel->prepare(call);
  if (v.kernel->alias_offset != nullptr) v.alias_offset = v.kernel->alias_offset(call);
  return v;
}

Variant& Session::Impl::variant_for(Step& step) {
  std::vector<std::int64_t> key;
  key.reserve(16);
  for (const ValueId in : step.node->in) {
    if (in == ValueId::kNone) continue;
    const Dims& dims = slots[index(in)].view.dims;
    key.push_back(static_cast<std::int64_t>(dims.size()));
    key.insert(key.end(), dims.begin(), dims.end());
  }
  for (std::size_t i = 0; i < step.variants.size(); ++i) {
    Variant& v = step.variants[i];
    if (v.key != key) continue;
    if (v.reads_values) {
      std::vector<TensorView> in;
      for (const ValueId id : step.node->in)
        in.push_back(id == ValueId::kNone ? TensorView{} : slots[index(id)].view);
      bool read = false;
      const std::vector<OutputType> outputs = infer_node(*graph, *step.node, in, &read);
      bool same = true;
      for (std::size_t k = 0; k < outputs.size(); ++k) same = same && outputs[k].dims == v.outputs[k].dims;
      if (!same) continue;
    }
    if (i != 0)
      std::rotate(step.variants.begin(), step.variants.begin() + static_cast<std::ptrdiff_t>(i),
                  step.variants.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return step.variants.front();
  }
  Variant fresh = make_variant(step, std::move(key));
  if (step.variants.size() == kMaxVariants) step.variants.pop_back();
  step.variants.insert(step.variants.begin(), std::move(fresh));
  return step.variants.front();
}

void Session::Impl::run_step(Step& step) {
  const Node& node = *step.node;
  Variant& v = variant_for(step);
  for (std::size_t i = 0; i < node.in.size(); ++i)
    if (node.in[i] != ValueId::kNone) v.in[i].data = slots[index(node.in[i])].view.data;

  const auto dies_here = [&](ValueId id) {
    return std::find(step.free_after.begin(), step.free_after.end(), id) != step.free_after.end();
  };
  for (std::size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] == ValueId::kNone) continue;
    Slot& slot = slots[index(node.out[i])];
    if (v.outputs[i].open()) {  // the kernel asks for its memory
      slot.buffer = -1;
      slot.view = v.out[i];
      continue;
    }
    const std::int64_t bytes = byte_count(v.out[i].dtype, v.out[i].dims);
    slot.buffer = -1;
    if (i == 0 && v.kernel->alias >= 0) {
      const Slot& source = slots[index(node.in[static_cast<std::size_t>(v.kernel->alias)])];
      slot.buffer = source.buffer;
      if (slot.buffer >= 0) pool.add_reference(slot.buffer);
      v.out[i].data = static_cast<std::byte*>(source.view.data) + v.alias_offset;
    } else {
      for (std::size_t k = 0; i == 0 && slot.buffer < 0 && k < node.in.size() && k < 32; ++k) {
        if ((v.kernel->in_place >> k & 1) == 0 || node.in[k] == ValueId::kNone) continue;
        const Slot& source = slots[index(node.in[k])];
        if (source.buffer < 0 || pool.references(source.buffer) != 1 || !dies_here(node.in[k]) ||
            byte_count(source.view.dtype, source.view.dims) != bytes || source.view.dtype == DType::kString ||
            std::count(node.in.begin(), node.in.end(), node.in[k]) != 1)
          continue;
        slot.buffer = source.buffer;
        pool.add_reference(slot.buffer);
        v.out[i].data = source.view.data;
      }
      if (slot.buffer < 0) {
        slot.buffer = pool.acquire(v.out[i].dtype, v.out[i].dims, bytes);
        v.out[i].data = pool.data(slot.buffer);
      }
    }
    slot.view = v.out[i];
  }
  if (v.kernel->alias < 0) {
    StepOutputs allocator(*this, step);
    OpCall call{&node, v.in, v.out, options.pool, &scratch, v.prepared.get(), nullptr, &allocator};
    if (options.profile) {
      const auto start = std::chrono::steady_clock::now();
      v.kernel->run(call);
      step.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    } else {
      v.kernel->run(call);
    }
  }
  for (std::size_t i = 0; i < node.out.size(); ++i)  // a kernel that forgot to allocate
    PARE_ASSERT(node.out[i] == ValueId::kNone || slots[index(node.out[i])].view.data != nullptr);
  ++step.runs;
  if (!watchers.empty())
    for (const ValueId out : node.out)
      if (out != ValueId::kNone) tell(out);
  for (const ValueId dead : step.free_after)
    if (slots[index(dead)].buffer >= 0) {
      pool.release(slots[index(dead)].buffer);
      slots[index(dead)].buffer = -1;
    }
}

std::vector<Tensor> Session::run(const std::vector<Tensor>& inputs) {
  Impl& s = *impl_;
  s.check_inputs(inputs);
  // Watchers and profiles see whole batches.
  if (s.most_at_a_time == 0 || !s.watchers.empty() || s.options.profile) return s.run_whole(inputs);
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
  pool.release_all();  // an earlier run may have ended in an exception
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Slot& slot = slots[index(graph->inputs[i])];
    slot.view = inputs[i].view();
    slot.buffer = -1;
    tell(graph->inputs[i]);
  }
  for (const auto& [id, watcher] : watchers)
    if (graph->is_constant(id)) watcher(id, slots[index(id)].view);
  for (Step& step : steps) {
    try {
      run_step(step);
    } catch (Error& error) {
      error.at(fmt::format("node '{}' ({})", step.node->name, step.node->op));
      throw;
    }
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : graph->outputs) {
    const Slot& slot = slots[index(id)];
    outputs.push_back(Tensor::share(slot.view.dtype, slot.view.dims, slot.view.data, nullptr).clone());
  }
  pool.release_all();
  return outputs;
}

std::vector<Session::Profile> Session::profile() const {
  std::vector<Profile> rows;
  if (!impl_->options.profile) return rows;
  for (const Step& step : impl_->steps)
    if (!step.variants.empty())
      rows.push_back({step.id, std::string(step.variants.front().kernel->name), step.seconds, step.runs});
  return rows;
}

std::string Session::kernel_of(NodeId id) const {
  for (const Step& step : impl_->steps)
    if (step.id == id) return step.variants.empty() ? "" : std::string(step.variants.front().kernel->name);
  return "";
}

std::int64_t Session::buffer_bytes() const { return impl_->pool.bytes(); }

}  // namespace pare
