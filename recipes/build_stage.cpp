#include "recipes/build_stage.h"

#include <chrono>

#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "engine/build/choose_plan.h"
#include "engine/build/cpu_engine.h"
#include "engine/build/engine.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

constexpr const char* kFile = "model.engine";

// A build for the CPU runs the model so often: once for its shapes, six times for the times of its layers,
// once read back.
constexpr double kRunsOfABuild = 8;
// Without a cache one plan of ResNet-50 takes about 28 s: 54 products, of which 28 differ; from a cache 2 s.
// Up to three plans are compared (docs/performance-gpu.md).
constexpr double kSecondsALayer = 0.5, kPlansCompared = 2.5, kSecondsFromCache = 2;

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool names_a_product(const std::string& op) {
  return op == "Conv" || op == "ConvTranspose" || op == "MatMul" || op == "Gemm";
}

std::uint64_t seed_of(const Recipe& r) { return static_cast<std::uint64_t>(r.seed); }

std::string float_word(const BuildSpec& spec) {
  return spec.precision == "as_quantized" ? "" : spec.precision;
}

EngineProvenance provenance(const RunState& state, const Graph& model, const std::string& path) {
  EngineProvenance p;
  p.pare_version = state.options().pare_version;
  p.model = file_name(path);
  p.model_sha256 = model_sha256(path);
  const auto said = [&](const char* key) {
    const auto found = model.metadata.find(key);
    return found == model.metadata.end() ? std::string() : found->second;
  };
  p.recipe = said("pare.recipe");
  p.data = said("pare.data");
  return p;
}

void report_engine(Report& report, const EngineFile& engine, std::int64_t predicted, std::int64_t measured) {
  ReportTable table;
  table.title = "Engine";
  table.columns = {"layer", "kind", "asked for", "runs as", "kernel", "us"};
  double total = 0;
  const auto add = [&](const std::string& layer, const std::string& kind, const std::string& requested,
                       const std::string& realized, const std::string& kernel, double us) {
    table.rows.push_back({layer, kind, requested, realized, kernel, fmt::format("{:.1f}", us)});
    total += us;
  };
  for (const PlanLayer& l : engine.plan.layers)
    add(l.name, name(l.kind), l.requested, l.realized, l.tactic, l.microseconds);
  for (const EngineRow& r : engine.rows) add(r.name, r.op, r.requested, r.realized, r.kernel, r.microseconds);
  table.note = fmt::format("{} for {}: {} layers, {:.1f} us one after the other", kFile,
                           engine.provenance.device, table.rows.size(), total);
  report.tables.push_back(std::move(table));
  report.predictions.push_back(
      {"memory of the engine", "bytes", static_cast<double>(predicted), static_cast<double>(measured)});
}

class EngineBuild {
 public:
  explicit EngineBuild(RunState& state)
      : state_(state), recipe_(state.recipe()), spec_(*recipe_.build), profile_(build_profile(spec_)) {
    std::string why;
    const std::string& device = state.options().device;
    backend_ = choose_device(device == "auto" ? spec_.device : device, why);
    if (!why.empty()) say(why);
    precision_ = precision_choice(float_word(spec_), backend_ == nullptr, "build.precision");
    if (!spec_.timing_cache.empty()) cache_ = TimingCache::read(recipe_.resolve(spec_.timing_cache));
  }

  void run() {
    const bool quantized = recipe_.quantize.has_value();
    const Graph open = opened(quantized ? state_.written() : state_.graph());
    const std::string path =
        quantized ? state_.folder().file("model.onnx") : recipe_.resolve(recipe_.model.path);
    const EngineProvenance from = provenance(state_, open, path);
    const std::int64_t predicted = backend_ != nullptr ? for_device(open, from) : for_cpu(open, from);
    const std::string file = state_.folder().file(kFile);
    write_engine(file, engine_);
    if (!spec_.timing_cache.empty()) cache_.write(recipe_.resolve(spec_.timing_cache));
    EngineOptions options;
    options.backend = backend_;
    options.pool = &state_.pool();
    options.clean = clean_graph;
    Engine ready(read_engine(file), options);  // what is written is read back, and run
    ready.run(inputs_at(open, ProfilePoint::kMax));
    report_engine(state_.report, engine_, predicted, ready.main().memory().total());
  }

  BuildForecast forecast(const Graph& model) const {
    return backend_ != nullptr ? forecast_for_device(model) : forecast_for_cpu(model);
  }

 private:
  bool as_asked() const { return precision_.as_asked || spec_.precision == "as_quantized"; }

  void say(const std::string& text) const {
    if (state_.options().message) state_.options().message(text);
  }

  // The model with the sizes of the profile open, and what folds once the others are numbers.
  Graph opened(Graph model) const {
    clean_graph(model);
    Graph open = open_sizes(model, 1, {}, profile_);
    clean_graph(open);
    return open;
  }

  std::vector<Tensor> inputs_at(const Graph& open, ProfilePoint point) const {
    return random_inputs_at(open, profile_, point, 1, seed_of(recipe_));
  }

  BuildForecast forecast_for_cpu(const Graph& model) const {
    restart_recent_peak();
    const auto before = static_cast<double>(current_anonymous_bytes());
    Clock::time_point start = Clock::now();
    const Graph open = opened(model);
    LowerOptions lower;
    lower.integer = true;
    const Lowered lowered = lower_for_cpu(open, lower);
    const double lowering = since(start);
    SessionOptions options;
    options.pool = &state_.pool();
    options.only_invariant = true;
    Session session(lowered.graph, options);
    const std::vector<Tensor> inputs = inputs_at(open, ProfilePoint::kOpt);
    session.run(inputs);  // packs weights
    start = Clock::now();
    session.run(inputs);
    double weights = 0;
    for (std::size_t i = 0; i < lowered.graph->value_count(); ++i)
      weights += static_cast<double>(lowered.graph->value(static_cast<ValueId>(i)).constant.bytes());
    BuildForecast forecast;
    forecast.seconds = lowering + kRunsOfABuild * since(start);
    // Layers are timed in a session of their own, which packs weights, too.
    forecast.bytes = static_cast<double>(recent_peak_anonymous_bytes()) - before + 2 * weights;
    return forecast;
  }

  BuildForecast forecast_for_device(const Graph& model) const {
    BuildForecast forecast;
    std::size_t layers = 0;
    for (const NodeId id : model.nodes()) layers += names_a_product(model.node(id).op) ? 1 : 0;
    const bool cached = !spec_.timing_cache.empty() && path_exists(recipe_.resolve(spec_.timing_cache));
    forecast.seconds = cached ? kSecondsFromCache
                              : kSecondsFromCache + kSecondsALayer * static_cast<double>(layers) *
                                                        (as_asked() ? 1 : kPlansCompared);
    return forecast;
  }

  std::int64_t for_cpu(const Graph& open, const EngineProvenance& from) {
    engine_ = build_cpu_engine(open, profile_, inputs_at(open, ProfilePoint::kOpt), true, state_.pool());
    const EngineProvenance own = engine_.provenance;
    engine_.provenance = from;
    engine_.provenance.device = own.device;
    engine_.provenance.architecture = own.architecture;
    engine_.provenance.batch = own.batch;
    take_cached_times(engine_, cache_, state_.pool().threads(), spec_.require_cached_tactics,
                      recipe_.resolve(spec_.timing_cache));
    const CpuMemory m = predict_cpu_memory(engine_, sizes_at(profile_, ProfilePoint::kMax));
    return m.weights + m.activations + m.io;
  }

  std::int64_t for_device(const Graph& open, const EngineProvenance& from) {
    ChooseOptions choose;
    set_precision(choose.plan, precision_.stored);
    choose.tune.cache = &cache_;
    choose.tune.require_cached = spec_.require_cached_tactics;
    choose.tune.log = [this](const std::string& text) { say(text); };
    choose.as_asked = as_asked();
    choose.inputs = [this](const EnginePlan& plan) { return random_engine_inputs(plan, seed_of(recipe_)); };
    choose.say = choose.tune.log;
    Graph graph = open;
    if (!profile_.empty()) {
      graph = fix_sizes(open, 1, shapes_at(open, sizes_at(profile_, ProfilePoint::kOpt)));
      clean_graph(graph);
      engine_.graph = std::make_shared<const Graph>(open);
    }
    engine_.plan = make_plan(graph, choose.plan);
    plan_memory(engine_.plan);
    engine_.profile = profile_;
    tune_engine(*backend_, graph, choose, clean_graph, engine_);
    const DeviceFacts facts = backend_->facts();
    engine_.provenance = from;
    engine_.provenance.device = facts.name;
    engine_.provenance.architecture = facts.architecture;
    engine_.provenance.batch = batch_of(engine_.plan);
    engine_.provenance.versions.assign(facts.versions.begin(), facts.versions.end());
    return planned_memory(engine_.plan).peak();
  }

  RunState& state_;
  const Recipe& recipe_;
  const BuildSpec& spec_;
  ShapeProfile profile_;
  EngineBackend* backend_ = nullptr;
  PrecisionChoice precision_;
  TimingCache cache_;
  EngineFile engine_;
};

}  // namespace

std::vector<std::string> run_build(RunState& state) {
  EngineBuild(state).run();
  return {kFile};
}

BuildForecast forecast_build(RunState& state, const Graph& model) {
  return EngineBuild(state).forecast(model);
}

std::vector<Tensor> random_inputs_at(const Graph& open, const ShapeProfile& profile, ProfilePoint point,
                                     std::int64_t batch, std::uint64_t seed) {
  return synthetic_inputs(model_inputs(open), batch, shapes_at(open, sizes_at(profile, point)), seed);
}

void clean_graph(Graph& graph) {
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
}

ShapeProfile build_profile(const BuildSpec& spec) {
  ShapeProfile profile;
  for (const auto& [name, sizes] : spec.profiles) profile.push_back(parse_profile(name + "=" + sizes));
  return profile;
}

std::vector<Tensor> random_engine_inputs(const EnginePlan& plan, std::uint64_t seed) {
  std::vector<InputSpec> specs;
  for (const int id : plan.inputs) {
    const PlanTensor& t = plan.tensors[static_cast<std::size_t>(id)];
    InputSpec spec;
    spec.name = t.name;
    spec.dtype = t.dtype;
    spec.shape = Shape(t.dims);
    specs.push_back(std::move(spec));
  }
  return synthetic_inputs(specs, batch_of(plan), {}, seed);
}

}  // namespace pare
