#include "engine/run/graph_run.h"

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"
#include "engine/ir/fallback.h"
#include "engine/run/control_flow.h"
#include "engine/run/sequence_ops.h"

namespace pare {
namespace {

std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct GraphRun::Step {
  NodeId id = NodeId::kNone;
  const Node* node = nullptr;
  NodePlan plan;
  std::vector<Body> bodies;
  std::unique_ptr<GraphRun> fallback;  // instead of a kernel
  bool falls_back = false;             // no kernel took the node
  std::vector<ValueId> free_after;     // values whose last reader this is
  double seconds = 0;
  std::int64_t runs = 0;

  Step(const Graph& graph, NodeId self) : id(self), node(&graph.node(self)), plan(graph, *node) {}
};

// Memory for outputs whose sizes a kernel decides while it runs.
class StepOutputs final : public OutputAllocator {
 public:
  StepOutputs(GraphRun& run, const Node& node) : run_(run), node_(node) {}
  void* allocate(int i, const Dims& dims) override {
    Slot& slot = run_.slot(node_.out[static_cast<std::size_t>(i)]);
    PARE_ASSERT(slot.buffer < 0);
    slot = make_slot(slot.view.dtype, dims, run_.context_.pool);
    return slot.view.data;
  }

 private:
  GraphRun& run_;
  const Node& node_;
};

GraphRun::GraphRun(const Graph& graph, RunContext& context) : graph_(graph), context_(context) {
  const std::size_t count = graph.value_count();
  slots_.resize(count);
  std::vector<bool> returned(count, false);
  for (const ValueId id : graph.outputs) returned[index(id)] = true;
  std::vector<int> last_reader(count, -1);
  for (const NodeId id : graph.nodes()) {
    const int self = static_cast<int>(steps_.size());
    Step& step = steps_.emplace_back(graph, id);
    for (const ValueId in : step.node->in)
      if (in != ValueId::kNone) last_reader[index(in)] = self;
    for (const ValueId out : step.node->out)
      if (out != ValueId::kNone) last_reader[index(out)] = self;  // nobody reads it: freed at once
    for (const std::string& key : subgraph_attributes(*step.node))
      step.bodies.push_back({key, std::make_unique<GraphRun>(subgraph(*step.node, key), context)});
    if (has_valid_fallback(*step.node))
      step.fallback = std::make_unique<GraphRun>(*step.node->fallback, context);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<ValueId>(i);
    if (graph.is_constant(id)) {
      slots_[i].view = graph.value(id).constant.view();
    } else if (last_reader[i] >= 0 && !returned[i]) {
      steps_[static_cast<std::size_t>(last_reader[i])].free_after.push_back(id);
    } else {
      lasting_.push_back(id);
    }
  }
}

GraphRun::~GraphRun() = default;

void GraphRun::set(ValueId id, Slot value) {
  Slot& to = slot(id);
  PARE_ASSERT(to.buffer < 0 && !graph_.is_constant(id));
  to = std::move(value);
}

Slot GraphRun::output(std::size_t i) { return share(slot(graph_.outputs[i]), context_.pool); }

void GraphRun::clear() {
  for (const ValueId id : lasting_) release(slot(id), context_.pool);
}

void GraphRun::forget() {
  for (Slot& slot : slots_)
    if (slot.buffer >= 0) slot = Slot{};
  for (Step& step : steps_)
    for (Body& body : step.bodies) body.run->forget();
  for (Step& step : steps_)
    if (step.fallback != nullptr) step.fallback->forget();
}

void GraphRun::tell(ValueId id) {
  const auto it = watchers_.find(id);
  if (it != watchers_.end() && slot(id).view.present()) it->second(id, slot(id).view);
}

void GraphRun::run() {
  if (!watchers_.empty()) {
    for (const ValueId id : graph_.inputs) tell(id);
    for (const Capture& capture : graph_.captures) tell(capture.inner);
    for (const auto& [id, watcher] : watchers_)
      if (graph_.is_constant(id)) watcher(id, slot(id).view);
  }
  for (Step& step : steps_) {
    try {
      run_step(step);
    } catch (Error& error) {
      error.at(fmt::format("node '{}' ({})", step.node->name, step.node->op));
      if (error.code() == ErrorCode::kBadFile)
        error.hint("what reaches this node does not fit it: `pare inspect MODEL --layers` shows its inputs");
      if (error.code() == ErrorCode::kUnsupported)
        error.hint("`pare ops` lists what runs here; export the model without this form of the operator");
      throw;
    }
  }
}

// An input whose memory output 0 may take, or -1.
int GraphRun::reusable_input(const Step& step, const Variant& v, std::int64_t bytes) const {
  const std::vector<ValueId>& in = step.node->in;
  for (std::size_t k = 0; k < in.size() && k < 32; ++k) {
    if ((v.kernel->in_place >> k & 1) == 0 || in[k] == ValueId::kNone) continue;
    const Slot& source = slots_[index(in[k])];
    if (source.buffer < 0 || context_.pool.references(source.buffer) != 1 ||
        byte_count(source.view.dtype, source.view.dims) != bytes || source.view.dtype == DType::kString ||
        std::count(in.begin(), in.end(), in[k]) != 1 ||
        std::find(step.free_after.begin(), step.free_after.end(), in[k]) == step.free_after.end())
      continue;
    return static_cast<int>(k);
  }
  return -1;
}

void GraphRun::place_outputs(Step& step, Variant& v) {
  const Node& node = *step.node;
  for (std::size_t i = 0; i < node.out.size(); ++i) {
    if (node.out[i] == ValueId::kNone) continue;
    Slot made;
    if (i == 0 && v.kernel->alias >= 0) {
      made = share(slot(node.in[static_cast<std::size_t>(v.kernel->alias)]), context_.pool);
      v.out[i].data = static_cast<std::byte*>(made.view.data) + v.alias_offset;
    } else if (v.outputs[i].open()) {
      v.out[i].data = nullptr;  // the kernel asks for it
    } else {
      const std::int64_t bytes = byte_count(v.out[i].dtype, v.out[i].dims);
      const int reused = i == 0 ? reusable_input(step, v, bytes) : -1;
      if (reused >= 0)
        made = share(slot(node.in[static_cast<std::size_t>(reused)]), context_.pool);
      else
        made.buffer = context_.pool.acquire(v.out[i].dtype, v.out[i].dims, bytes);
      v.out[i].data = reused >= 0 ? made.view.data : context_.pool.data(made.buffer);
    }
    made.view = v.out[i];
    slot(node.out[i]) = std::move(made);
  }
}

void GraphRun::run_kernel(Step& step) {
  const Node& node = *step.node;
  Variant* found = nullptr;
  try {
    found = &step.plan.variant_for(slots_, context_);
  } catch (const Error& error) {
    if (step.fallback == nullptr || error.code() != ErrorCode::kUnsupported) throw;
    step.falls_back = true;
    return run_fallback(step);
  }
  Variant& v = *found;
  for (std::size_t i = 0; i < node.in.size(); ++i)
    if (node.in[i] != ValueId::kNone) v.in[i].data = slot(node.in[i]).view.data;
  place_outputs(step, v);
  if (v.kernel->alias >= 0) return;
  StepOutputs allocator(*this, node);
  OpCall call{&node,   v.in,      v.out, context_.options.pool, &context_.scratch, v.prepared.get(),
              nullptr, &allocator};
  call.seed = context_.options.seed;
  const double start = context_.options.profile ? now() : 0;
  v.kernel->run(call);
  if (context_.options.profile) {
    const double seconds = now() - start;
    step.seconds += seconds;
    context_.counted_seconds += seconds;
  }
  for (std::size_t i = 0; i < node.out.size(); ++i)
    if (v.out[i].present() && v.outputs[i].open()) {  // a kernel that forgot to allocate
      const Dims& dims = slot(node.out[i]).view.dims;
      PARE_ASSERT(std::none_of(dims.begin(), dims.end(), [](std::int64_t d) { return d < 0; }));
    }
}

void GraphRun::run_fallback(Step& step) {
  const Node& node = *step.node;
  GraphRun& body = *step.fallback;
  std::size_t k = 0;
  for (const ValueId in : node.in)
    if (in != ValueId::kNone) body.set(body.graph_.inputs.at(k++), share(slot(in), context_.pool));
  body.run();
  k = 0;
  for (const ValueId out : node.out)
    if (out != ValueId::kNone) slot(out) = body.output(k++);
  body.clear();
}

void GraphRun::run_step(Step& step) {
  const Node& node = *step.node;
  const bool control = is_control_flow(node), sequences = !control && is_sequence_op(node, slots_);
  if (control || sequences) {
    ControlCall call{graph_, node, slots_, step.bodies, context_};
    const double start = context_.options.profile ? now() : 0, before = context_.counted_seconds;
    control ? run_control_flow(call) : run_sequence_op(call);
    if (context_.options.profile) {  // without what the nodes inside have counted
      const double own = std::max(0.0, now() - start - (context_.counted_seconds - before));
      step.seconds += own;
      context_.counted_seconds += own;
    }
  } else if (step.falls_back) {
    run_fallback(step);
  } else {
    run_kernel(step);
  }
  ++step.runs;
  if (!watchers_.empty())
    for (const ValueId out : node.out)
      if (out != ValueId::kNone) tell(out);
  for (const ValueId dead : step.free_after) release(slot(dead), context_.pool);
}

void GraphRun::clear_watchers() {
  watchers_.clear();
  for (Step& step : steps_)
    for (Body& body : step.bodies) body.run->clear_watchers();
}

GraphRun& GraphRun::inner(const SubgraphStep& wanted) {
  for (Step& step : steps_)
    for (Body& body : step.bodies)
      if (step.id == wanted.node && body.attribute == wanted.attribute) return *body.run;
  fail(ErrorCode::kInternal, "no subgraph '{}' of node {}", wanted.attribute, static_cast<int>(wanted.node));
}

void GraphRun::profile(const SubgraphPath& path, std::vector<Session::Profile>& rows) const {
  for (const Step& step : steps_) {
    const std::string used = step.plan.kernel(), kernel = step.falls_back ? step.node->op + "/function body"
                                                          : used.empty()  ? step.node->op + "/engine"
                                                                          : used;
    if (step.runs > 0) rows.push_back({step.id, kernel, step.seconds, step.runs, path});
    for (const Body& body : step.bodies) {
      SubgraphPath inner = path;
      inner.push_back({step.id, body.attribute});
      body.run->profile(inner, rows);
    }
  }
}

std::string GraphRun::kernel_of(NodeId id) const {
  for (const Step& step : steps_)
    if (step.id == id) return step.plan.kernel();
  return "";
}

}  // namespace pare
