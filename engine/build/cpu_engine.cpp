#include "engine/build/cpu_engine.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/plan/make_plan.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SessionOptions session_options(ThreadPool& pool) {
  SessionOptions options;
  options.pool = &pool;
  options.only_invariant = true;
  return options;
}

std::vector<Dims> dims_of(const std::vector<Tensor>& inputs) {
  std::vector<Dims> dims;
  for (const Tensor& t : inputs) dims.push_back(t.dims());
  return dims;
}

std::int64_t weight_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  walk_graphs(graph, [&](const SubgraphPath&, const Graph& g) {
    for (std::size_t i = 0; i < g.value_count(); ++i)
      if (g.is_constant(static_cast<ValueId>(i))) bytes += g.value(static_cast<ValueId>(i)).constant.bytes();
  });
  return bytes;
}

std::string label(const Graph& graph, const Session::Profile& row) {
  const Node& node = subgraph_at(graph, row.path).node(row.node);
  const std::string name =
      node.name.empty() ? subgraph_at(graph, row.path).value(node.out[0]).name : node.name;
  return row.path.empty() ? name : to_string(graph, row.path) + "/" + name;
}

class CpuRunner final : public EngineRunner {
 public:
  CpuRunner(std::shared_ptr<const Graph> graph, ShapeProfile profile, ThreadPool* pool, int threads)
      : graph_(std::move(graph)),
        profile_(std::move(profile)),
        own_(pool == nullptr ? std::make_unique<ThreadPool>(threads) : nullptr),
        pool_(pool == nullptr ? *own_ : *pool),
        session_(graph_, session_options(pool_)) {}

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override {
    sizes_of(*graph_, profile_, dims_of(inputs));
    std::vector<Tensor> outputs = session_.run(inputs);
    last_ = inputs;
    io_ = 0;
    for (const Tensor& t : inputs) io_ += t.bytes();
    for (const Tensor& t : outputs) io_ += t.bytes();
    return outputs;
  }
  std::unique_ptr<EngineRunner> context(int threads) override {
    return std::make_unique<CpuRunner>(graph_, profile_, nullptr, std::max(threads, 1));
  }
  void repeat(int count) override {
    need_inputs();
    for (int i = 0; i < count; ++i) session_.run(last_);
  }
  BenchTimes bench(int iterations, int warmup) override {
    need_inputs();
    repeat(warmup);
    BenchTimes times;
    for (int i = 0; i < iterations; ++i) {
      const auto start = Clock::now();
      session_.run(last_);
      times.milliseconds.push_back(seconds_since(start) * 1000);
    }
    std::vector<double> sorted = times.milliseconds;
    std::sort(sorted.begin(), sorted.end());
    times.with_copies_ms = sorted.empty() ? 0 : sorted[sorted.size() / 2];  // there is nothing to copy
    return times;
  }
  std::vector<LayerTime> profile(int repeats) override {
    need_inputs();
    SessionOptions options = session_options(pool_);
    options.profile = true;
    Session session(graph_, options);
    session.run(last_);  // packs weights
    const std::vector<Session::Profile> first = session.profile();
    for (int i = 0; i < repeats; ++i) session.run(last_);
    const std::vector<Session::Profile> rows = session.profile();
    std::vector<LayerTime> list;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      LayerTime time;
      time.name = label(*graph_, rows[i]);
      time.tactic = rows[i].kernel;
      time.microseconds =
          (rows[i].seconds - (i < first.size() ? first[i].seconds : 0)) * 1e6 / std::max(repeats, 1);
      list.push_back(std::move(time));
    }
    return list;
  }
  EngineMemory memory() const override {
    EngineMemory m;
    m.weights = weight_bytes(*graph_);
    m.arena = session_.buffer_bytes();
    m.io = io_;
    return m;
  }
  std::vector<double> check_layers(const std::vector<Tensor>&) override {
    throw make_error(ErrorCode::kUnsupported, "layers of a CPU engine are checked by `pare verify`")
        .hint("pare verify ENGINE --reference MODEL --data DATA");
  }

 private:
  void need_inputs() const {
    if (last_.empty() && !graph_->inputs.empty())
      throw make_error(ErrorCode::kUsage, "run the engine once before it is timed")
          .hint("run it once, then time it");
  }

  std::shared_ptr<const Graph> graph_;
  ShapeProfile profile_;
  std::unique_ptr<ThreadPool> own_;
  ThreadPool& pool_;
  Session session_;
  std::vector<Tensor> last_;
  std::int64_t io_ = 0;
};

int add_tensor(EnginePlan& plan, const Value& value, const Dims& dims, PlanRole role) {
  PlanTensor t;
  t.name = value.name;
  t.dtype = value.dtype;
  t.dims = dims;
  t.role = role;
  plan.tensors.push_back(std::move(t));
  return static_cast<int>(plan.tensors.size()) - 1;
}

}  // namespace

EngineFile build_cpu_engine(const Graph& open, const ShapeProfile& profile, const std::vector<Tensor>& inputs,
                            bool integer, ThreadPool& pool) {
  for (const auto* list : {&open.inputs, &open.outputs})
    for (const ValueId id : *list)
      if (open.value(id).kind != ValueKind::kTensor || open.value(id).dtype == DType::kString)
        throw make_error(ErrorCode::kUnsupported,
                         "'{}' is no tensor of numbers; engines take and give only those",
                         open.value(id).name)
            .hint("`pare infer` runs the model as it is");
  EngineFile engine;
  engine.profile = profile;
  engine.integer = integer;
  LowerOptions options;
  options.integer = integer;
  const Lowered lowered = lower_for_cpu(open, options);
  engine.graph = lowered.graph;
  engine.provenance.architecture = "cpu";
  engine.provenance.device = fmt::format("cpu {}", name(isa()));
  engine.plan.precision = "float32";
  engine.plan.realized = lowered.realized;
  const Graph& graph = *lowered.graph;
  CpuRunner runner(engine.graph, profile, &pool, 1);
  const std::vector<Tensor> outputs = runner.run(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    engine.plan.inputs.push_back(
        add_tensor(engine.plan, graph.value(graph.inputs[i]), inputs[i].dims(), PlanRole::kInput));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    engine.plan.outputs.push_back(
        add_tensor(engine.plan, graph.value(graph.outputs[i]), outputs[i].dims(), PlanRole::kOutput));
  engine.plan.weight_bytes = weight_bytes(graph);
  engine.plan.arena_bytes = runner.memory().arena;
  engine.provenance.batch = inputs.empty() || inputs[0].dims().empty() ? 1 : inputs[0].dims()[0];

  std::map<std::string, const Realized*> asked;
  for (const Realized& row : lowered.realized) asked[row.node] = &row;
  std::map<std::string, std::string> ops;
  walk_graphs(graph, [&](const SubgraphPath& path, const Graph& g) {
    for (const NodeId id : g.nodes()) {
      Session::Profile row{id, "", 0, 0, path};
      ops[label(graph, row)] = g.node(id).op;
    }
  });
  for (const LayerTime& time : runner.profile(5)) {
    EngineRow row;
    row.name = time.name;
    row.op = ops[time.name];
    row.kernel = time.tactic;
    row.microseconds = time.microseconds;
    row.requested = row.realized = "float32";
    const auto found = asked.find(row.name);
    if (found != asked.end()) {
      row.requested = found->second->requested;
      row.realized = found->second->realized;
      row.why = found->second->why;
    }
    engine.rows.push_back(std::move(row));
  }
  return engine;
}

int take_cached_times(EngineFile& engine, TimingCache& cache, int threads, bool require,
                      const std::string& where) {
  const EngineProvenance& p = engine.provenance;
  int known = 0;
  for (EngineRow& row : engine.rows) {
    const std::string key =
        fmt::format("pare {} {} model {} batch {} {} threads {} {} {}", p.pare_version, p.device,
                    p.model_sha256, p.batch, to_string(engine.profile), threads, row.name, row.kernel);
    const std::vector<TimingCache::Entry>* entries = cache.find(key);
    if (entries != nullptr && !entries->empty()) {
      row.microseconds = entries->front().microseconds;
      ++known;
    } else if (require) {
      throw make_error(ErrorCode::kUnsupported, "layer '{}' ({}) is not in the timing cache", row.name,
                       row.kernel)
          .at(where)
          .hint(
              "build once without --require-cached-tactics: the cache is of one model, batch, profile, "
              "device and number of threads");
    } else {
      cache.put(key, {TimingCache::Entry{row.kernel, row.microseconds}});
    }
  }
  return known;
}

CpuMemory predict_cpu_memory(const EngineFile& engine, const NamedSizes& sizes) {
  PARE_ASSERT(engine.graph != nullptr);
  Graph graph = *engine.graph;
  for (const auto& [input, dims] : shapes_at(*engine.graph, sizes))
    graph.value(graph.find_value(input)).shape = Shape(dims);
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    Value& value = graph.value(static_cast<ValueId>(i));
    if (!value.is_constant() && value.producer != NodeId::kNone) value.shape = Shape();
  }
  infer_shapes(graph);
  const auto bytes = [&](ValueId id) {
    const Value& value = graph.value(id);
    return value.is_constant() || !value.shape.concrete() || value.dtype == DType::kString
               ? std::int64_t{0}
               : byte_count(value.dtype, value.shape.sizes());
  };
  CpuMemory memory;
  memory.weights = weight_bytes(graph);
  for (const auto* list : {&graph.inputs, &graph.outputs})
    for (const ValueId id : *list) memory.io += bytes(id);
  const std::vector<NodeId> order = graph.nodes();
  std::vector<std::size_t> last(graph.value_count(), 0);
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const ValueId id : graph.node(order[i]).in)
      if (id != ValueId::kNone) last[static_cast<std::size_t>(id)] = i;
  std::vector<std::int64_t> freed(order.size() + 1, 0);
  std::int64_t live = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const ValueId id : graph.node(order[i]).out) {
      if (id == ValueId::kNone || graph.is_output(id)) continue;
      live += bytes(id);
      freed[std::max(i, last[static_cast<std::size_t>(id)])] += bytes(id);
    }
    memory.activations = std::max(memory.activations, live);
    live -= freed[i];
  }
  return memory;
}

std::unique_ptr<EngineRunner> load_cpu_engine(const EngineFile& engine, ThreadPool& pool) {
  if (engine.graph == nullptr) fail(ErrorCode::kBadFile, "the engine for the CPU has no graph");
  return std::make_unique<CpuRunner>(engine.graph, engine.profile, &pool, 1);
}

}  // namespace pare
