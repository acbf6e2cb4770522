#include "recipes/build_stage.h"

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/build/choose_plan.h"
#include "engine/build/cpu_engine.h"
#include "engine/build/engine.h"
#include "engine/build/plan/memory_plan.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

constexpr const char* kFile = "model.engine";

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
    Graph model = quantized ? state_.written() : state_.graph();
    const std::string path =
        quantized ? state_.folder().file("model.onnx") : recipe_.resolve(recipe_.model.path);
    clean_graph(model);
    Graph open = open_sizes(model, 1, {}, profile_);
    clean_graph(open);  // shapes that are numbers now: what is computed from them folds
    const EngineProvenance from = provenance(state_, model, path);
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

 private:
  void say(const std::string& text) const {
    if (state_.options().message) state_.options().message(text);
  }

  std::vector<Tensor> inputs_at(const Graph& open, ProfilePoint point) const {
    return synthetic_inputs(model_inputs(open), 1, shapes_at(open, sizes_at(profile_, point)),
                            seed_of(recipe_));
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
    choose.as_asked = precision_.as_asked || spec_.precision == "as_quantized";
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
