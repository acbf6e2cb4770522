#include <algorithm>
#include <chrono>
#include <future>

#include "cli/commands.h"
#include "cli/engine_report.h"
#include "cli/engine_run.h"
#include "cli/version.h"
#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/build/choose_plan.h"
#include "engine/build/cpu_engine.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/precision_choice.h"
#include "engine/build/profile.h"
#include "engine/build/refit.h"
#include "eval/report_render.h"
#include "graphsurgeon/load.h"
#include "recipes/build_stage.h"

namespace pare {
namespace {

class Build final : public Command {
 public:
  const char* name() const override { return "build"; }
  const char* what() const override {
    return "a fused engine for the GPU at hand or for the CPU, its kernels timed here";
  }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file, perhaps with Q/DQ")
        .option("-o,--output", "ENGINE", output_, "where to write the engine")
        .option("--batch", "N", batch_, "samples at a time")
        .option("--input-shape", "NAME=SIZES", shapes_,
                "shape of an input that the model leaves open: image=1x3x224x224")
        .option("--precision", "PRECISION", precision_,
                "how float values are stored: fp16, bf16, fp32, or tf32: stored as fp32, products in TF32; "
                "int8, fp8: fp16, and layers stay as the model's Q/DQ ask for also where float is faster "
                "(default: fp16 on a GPU, fp32 on the CPU)",
                "build.precision")
        .one_of({"fp16", "bf16", "fp32", "tf32", "int8", "fp8"}, Choices::kExplained)
        .option("--profile", "NAME=MINxOPTxMAX", profiles_,
                "sizes that an open dimension may have (once for each): timed at OPT, MIN and MAX prepared",
                "build.profiles")
        .flag("--weights-apart", apart_,
              "weights go to the folder `weights` beside the engine, shared by engines of one model")
        .option("--portable", "ARCHITECTURES", portable_,
                "kernels for these (sm_80,sm_90a), compiled here without a GPU; tactics are timed where the "
                "engine "
                "is first loaded")
        .flag("--fake-quant", fake_, "quantized layers as float fake quantization, not integer kernels")
        .option("--timing-cache", "FILE", cache_, "tactics timed before; new ones are added",
                "build.timing_cache")
        .flag("--require-cached-tactics", require_, "a layer that is not in the cache is an error",
              "build.require_cached_tactics")
        .words("--tactics", "GROUP", only_, "only these: mma, cublaslt, cudnn, rows and others")
        .option("--refit", "ENGINE", refit_,
                "tactics and kernels of this engine with the model's weights: the same graph, no GPU is used")
        .flag("--plan-only", plan_only_,
              "print the plan and the memory it needs; no GPU is used, nothing is written")
        .example("pare build resnet.onnx -o resnet.engine --batch 32 --timing-cache timing.json")
        .example("pare build resnet.onnx -o resnet.engine --device cpu --profile batch=1x8x32");
  }

  int run(Context& context) override {
    if (batch_ < 1)
      throw make_error(ErrorCode::kUsage, "--batch counts from 1").hint("for example --batch 8");
    if (!plan_only_ && output_.empty())
      throw make_error(ErrorCode::kUsage, "no place for the engine").hint("add -o ENGINE, or --plan-only");
    for (const std::string& text : profiles_) profile_.push_back(parse_profile(text));
    const EngineFile old = refit_.empty() ? EngineFile() : read_engine(refit_);
    if (!refit_.empty() && !old.is_cpu()) take_from(old);
    // Opening a device and its libraries takes as long as reading a model: both at once.
    std::future<Graph> reading = std::async(std::launch::async, [this] {
      Graph model = load_model(path_);
      clean_graph(model);
      return model;
    });
    const bool cpu = refit_.empty() ? for_cpu(context) : old.is_cpu();
    if (cpu && profile_.empty()) profile_ = old.profile;
    PlanOptions options = plan_options(cpu);
    InputShapes shapes;
    for (const std::string& text : shapes_) shapes.push_back(parse_input_shape(text));
    if (shapes.empty() && profile_.empty() && !refit_.empty() && !old.is_cpu())
      for (const int id : old.plan.inputs) {
        const PlanTensor& t = old.plan.tensors[static_cast<std::size_t>(id)];
        shapes.emplace_back(t.name, t.dims);
      }
    stage("device");
    Graph graph = reading.get();
    metadata_ = graph.metadata;
    Graph open = open_sizes(graph, batch_, shapes, profile_);
    clean_graph(open);  // shapes that are numbers now: what is computed from them folds
    if (cpu) return build_for_cpu(context, open, old);
    graph = open;
    if (!profile_.empty()) {
      graph = fix_sizes(open, 1, shapes_at(open, sizes_at(profile_, ProfilePoint::kOpt)));
      clean_graph(graph);
    }
    EngineFile engine;
    engine.plan = make_plan(graph, options);
    plan_memory(engine.plan);
    engine.profile = profile_;
    engine.integer = options.integer;
    engine.weights_apart = apart_;
    if (!profile_.empty()) engine.graph = std::make_shared<const Graph>(open);
    batch_ = batch_of(engine.plan);
    context.document()["batch"] = batch_;
    context.document()["fused"] = engine.plan.layers.size();
    predict(context, engine);
    if (plan_only_) {
      context.print(to_text(engine.plan));
      report_memory(context, planned_memory(engine.plan), -1);
      report_precision(context, engine);
      return 0;
    }
    if (!portable_.empty()) return write_portable(context, graph, options, engine);
    if (!refit_.empty()) return refit_engine(context, graph, options, engine);
    return tune_and_write(context, graph, options, engine);
  }

 private:
  bool for_cpu(Context& context) const {
    const bool no_device = plan_only_ || !portable_.empty();
    if (no_device && context.options().device != "cpu") return false;
    return device_for(context) == EngineDevice::kCpu;
  }

  // A refit is at the shapes and in the precision of the engine, unless others are asked for, which it then
  // refuses.
  void take_from(const EngineFile& old) {
    if (profile_.empty()) profile_ = old.profile;
    if (precision_.empty())
      for (const auto& [word, type] : {std::pair<const char*, const char*>{"fp16", "float16"},
                                       {"bf16", "bfloat16"},
                                       {"fp32", "float32"},
                                       {"tf32", "tf32"}})
        if (old.plan.precision == type) precision_ = word;
    fake_ = fake_ || !old.integer;
  }

  PlanOptions plan_options(bool cpu) const {
    PlanOptions options;
    options.integer = !fake_;
    set_precision(options, precision_choice(precision_, cpu, "--precision").stored);
    return options;
  }

  // Before anything is timed: what each end of the profile needs, workspace of kernels not counted.
  void predict(Context& context, const EngineFile& engine) const {
    if (profile_.empty()) return;
    context.document()["profile"] = Json::array();
    const std::pair<const char*, ProfilePoint> points[] = {
        {"min", ProfilePoint::kMin}, {"opt", ProfilePoint::kOpt}, {"max", ProfilePoint::kMax}};
    for (const auto& [word, point] : points) {
      const NamedSizes sizes = sizes_at(profile_, point);
      const PlannedMemory m = planned_memory(plan_at(engine, sizes, clean_graph));
      Json row = {{"point", word}, {"predicted_peak", m.peak()}, {"sizes", Json::object()}};
      std::string text;
      for (const auto& [dim, size] : sizes) {
        row["sizes"][dim] = size;
        text += fmt::format(" {}={}", dim, size);
      }
      context.document()["profile"].push_back(std::move(row));
      context.print(fmt::format("profile {}{}: {} of the device", word, text,
                                bytes_text(static_cast<double>(m.peak()))));
    }
  }

  EngineProvenance provenance(const std::string& device, const std::string& architecture) const {
    EngineProvenance p;
    p.pare_version = version();
    p.model = file_name(path_);
    p.model_sha256 = model_sha256(path_);
    p.recipe = said("pare.recipe");
    p.data = said("pare.data");
    p.device = device;
    p.architecture = architecture;
    p.batch = batch_;
    return p;
  }

  // What the model's metadata_props say under this key.
  std::string said(const char* key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? "" : found->second;
  }

  // Kernels for the CPU are not chosen by time, but their times stand in the engine: with those of the cache
  // it is the same file, byte for byte.
  void use_cpu_times(Context& context, EngineFile& engine) const {
    if (cache_.empty() && require_)
      throw make_error(ErrorCode::kUsage, "--require-cached-tactics without a cache")
          .hint("add --timing-cache FILE");
    if (cache_.empty()) return;
    TimingCache cache = TimingCache::read(cache_);
    const int known = take_cached_times(engine, cache, context.pool().threads(), require_, cache_);
    const int timed = static_cast<int>(engine.rows.size()) - known;
    if (!plan_only_ && timed > 0) cache.write(cache_);
    context.document()["tactics"] = {{"timed", timed}, {"from_cache", known}};
    context.print(fmt::format("{} layers timed, {} from the cache", timed, known));
  }

  // `old`: the engine of --refit, whose graph this must be.
  int build_for_cpu(Context& context, const Graph& open, const EngineFile& old) {
    const auto inputs = random_inputs_at(open, profile_, ProfilePoint::kOpt, batch_, context.seed());
    EngineFile engine = build_cpu_engine(open, profile_, inputs, !fake_, context.pool());
    const auto same = [](const EngineRow& a, const EngineRow& b) { return a.name == b.name && a.op == b.op; };
    if (!refit_.empty() &&
        !std::equal(engine.rows.begin(), engine.rows.end(), old.rows.begin(), old.rows.end(), same))
      throw make_error(ErrorCode::kUnsupported, "'{}' is an engine of another graph: {} nodes, the model {}",
                       refit_, old.rows.size(), engine.rows.size())
          .at(refit_)
          .hint("build an engine of this model");
    const std::string device = engine.provenance.device;
    batch_ = engine.provenance.batch;
    engine.provenance = provenance(device, "cpu");
    engine.weights_apart = apart_;
    Json& json = context.document();
    json["batch"] = batch_;
    json["fused"] = engine.rows.size();
    use_cpu_times(context, engine);
    json["device"] = device;
    const CpuMemory m = predict_cpu_memory(engine, sizes_at(profile_, ProfilePoint::kMax));
    PlannedMemory predicted;
    predicted.weights = m.weights, predicted.activations = m.activations, predicted.io = m.io;
    std::int64_t measured = -1;
    if (!plan_only_) {
      write_engine(output_, engine);
      EngineFile written = read_engine(output_);  // what is written is read back, and run
      json["engine"] = output_;
      json["sha256"] = written.sha256;
      EngineOptions options;
      options.pool = &context.pool();
      Engine ready(std::move(written), options);
      ready.run(random_inputs_at(open, profile_, ProfilePoint::kMax, batch_, context.seed()));
      measured = ready.main().memory().total();
    }
    print_layers(context, engine);
    if (!profile_.empty()) context.print("profile: " + to_string(profile_));
    report_memory(context, predicted, measured);
    report_precision(context, engine);
    if (!plan_only_) context.print(fmt::format("wrote {} for the CPU ({})", output_, device));
    return 0;
  }

  int refit_engine(Context& context, const Graph& graph, PlanOptions options, EngineFile& engine) {
    const EngineFile old = read_engine(refit_);
    options.fold_norms = std::any_of(old.plan.layers.begin(), old.plan.layers.end(),
                                     [](const PlanLayer& layer) { return normalizes(layer); });
    options.shortcuts = std::any_of(old.plan.layers.begin(), old.plan.layers.end(), has_shortcut);
    Graph same = graph;
    const std::set<std::string> as_float = left_float(old.plan);
    if (drop_quantization(same, as_float) > 0 || !options.fold_norms || options.shortcuts)
      engine.plan = make_plan(same, options);
    if (!as_float.empty()) engine.plan.realized = old.plan.realized;
    refit(engine.plan, old.plan);
    plan_memory(engine.plan);
    for (const EnginePlan& tuned : old.more) {
      std::vector<Dims> dims;
      for (const int id : tuned.inputs) dims.push_back(tuned.tensors[static_cast<std::size_t>(id)].dims);
      EnginePlan plan = plan_at(engine, sizes_of(*engine.graph, profile_, dims), clean_graph);
      refit(plan, tuned);
      plan_memory(plan);
      engine.more.push_back(std::move(plan));
    }
    engine.provenance = old.provenance;
    engine.provenance.model = file_name(path_);
    engine.provenance.model_sha256 = model_sha256(path_);
    engine.provenance.recipe = said("pare.recipe");
    engine.provenance.data = said("pare.data");
    write_engine(output_, engine);
    context.document()["engine"] = output_;
    context.document()["sha256"] = read_engine(output_).sha256;
    report_memory(context, planned_memory(engine.plan), -1);
    report_precision(context, engine);
    context.print(fmt::format("wrote {} with the tactics of {}", output_, refit_));
    return 0;
  }

  std::vector<std::string> architectures() const {
    std::vector<std::string> list;
    for (std::size_t begin = 0; begin <= portable_.size();) {
      std::size_t end = portable_.find(',', begin);
      if (end == std::string::npos) end = portable_.size();
      const std::string word = portable_.substr(begin, end - begin);
      const std::size_t digits = word.find_first_not_of("0123456789", 3);
      const std::size_t letters = word.size() - std::min(digits, word.size());
      if (word.rfind("sm_", 0) != 0 || word.size() < 5 || word.size() > 7 || digits == 3 || letters > 1)
        throw make_error(ErrorCode::kUsage, "'{}' is no architecture", word)
            .at("--portable")
            .hint("--portable sm_80,sm_89,sm_90a");
      list.push_back(word);
      begin = end + 1;
    }
    return list;
  }

  // Nothing is timed, no device is used: the first load does that (open_engine).
  int write_portable(Context& context, const Graph& graph, PlanOptions options, EngineFile& engine) {
    if (!profile_.empty() || !refit_.empty())
      throw make_error(ErrorCode::kUnsupported, "--portable goes with neither --profile nor --refit")
          .hint("build an engine for each shape; with --weights-apart they share their weights");
    const std::vector<std::string> names = architectures();
    options.fold_norms = false;  // whether folding pays is measured, and here nothing is
    engine.plan = make_plan(graph, options);
    plan_memory(engine.plan);
    const CompileReport report = cuda_backend().compile(engine.plan, names, 0);
    for (const std::string& line : report.failed) context.message(line);
    std::string device = "any of";
    for (const std::string& name : portable_architectures(engine.plan)) device += " " + name;
    if (report.kernels == 0)
      throw make_error(ErrorCode::kUnsupported, "no kernel compiles for {}", portable_)
          .hint(report.failed.empty() ? "" : report.failed[0].substr(0, 300));
    engine.provenance = provenance(device, "portable");
    write_engine(output_, engine);
    Json& json = context.document();
    json["engine"] = output_;
    json["sha256"] = read_engine(output_).sha256;
    json["tactics"] = {{"timed", 0},
                       {"from_cache", 0},
                       {"compiled", report.kernels},
                       {"compile_seconds", report.seconds},
                       {"timing_seconds", 0}};
    context.print(fmt::format("{} layers, {} kernels compiled in {:.1f} s, {} failed",
                              engine.plan.layers.size(), report.kernels, report.seconds,
                              report.failed.size()));
    report_memory(context, planned_memory(engine.plan), -1);
    report_precision(context, engine);
    context.print(fmt::format("wrote {} for {}", output_, device));
    return 0;
  }

  int tune_and_write(Context& context, const Graph& graph, const PlanOptions& options, EngineFile& engine) {
    EngineBackend& backend = cuda_backend();
    TimingCache cache = cache_.empty() ? TimingCache() : TimingCache::read(cache_);
    TuneOptions how;
    how.cache = &cache;
    how.require_cached = require_;
    how.only = only_;
    how.log = [&](const std::string& text) { context.message(text); };
    const DeviceFacts facts = backend.facts();
    stage("model and plan");
    ChooseOptions choose;
    choose.plan = options;
    choose.tune = how;
    choose.as_asked = precision_choice(precision_, false, "--precision").as_asked;
    choose.open_sizes = !profile_.empty();
    choose.inputs = [&](const EnginePlan& plan) { return random_engine_inputs(plan, context.seed()); };
    choose.say = [&](const std::string& text) { context.print(text); };
    const TuneReport report = tune_engine(backend, graph, choose, clean_graph, engine);
    stage("tactics");
    engine.provenance = provenance(facts.name, facts.architecture);
    for (const auto& [library, text] : facts.versions) engine.provenance.versions.emplace_back(library, text);
    write_engine(output_, engine);
    if (!cache_.empty()) cache.write(cache_);
    EngineFile written = read_engine(output_);  // what is written is read back
    stage("engine file");
    Json& json = context.document();
    json["engine"] = output_;
    json["sha256"] = written.sha256;
    const auto inputs = random_engine_inputs(written.plan, context.seed());
    EngineOptions ready_options;
    ready_options.backend = &backend;
    Engine ready(std::move(written), ready_options);
    ready.run(inputs);
    stage("first run");
    context.message("seconds:" + stages_);
    json["device"] = device_text(facts);
    json["tactics"] = {{"timed", report.timed},
                       {"from_cache", report.from_cache},
                       {"compiled", report.compiled},
                       {"compile_seconds", report.compile_seconds},
                       {"timing_seconds", report.timing_seconds}};
    context.print(to_text(engine.plan));
    for (const std::string& line : report.declined) context.message(line);
    context.print(fmt::format(
        "{} layers timed, {} from the cache; {} kernels compiled in {:.1f} s, timing {:.1f} s", report.timed,
        report.from_cache, report.compiled, report.compile_seconds, report.timing_seconds));
    report_memory(context, planned_memory(engine.plan), ready.main().memory().total());
    const std::int64_t largest = largest_batch(engine.plan, batch_, facts.memory_bytes);
    json["largest_batch"] = largest;
    context.print(fmt::format("largest batch that fits: about {}", largest));
    report_precision(context, engine);
    context.print(fmt::format("wrote {} for {}", output_, facts.name));
    return 0;
  }

  // Seconds since the stage before, for the messages of a build.
  void stage(const char* what) {
    const auto now = std::chrono::steady_clock::now();
    stages_ += fmt::format("{} {} {:.2f}", stages_.empty() ? "" : ",", what,
                           std::chrono::duration<double>(now - last_).count());
    last_ = now;
  }

  std::string path_, output_, precision_, cache_, refit_, portable_, stages_;
  std::map<std::string, std::string> metadata_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<std::string> shapes_, only_, profiles_;
  ShapeProfile profile_;
  std::int64_t batch_ = 1;
  bool fake_ = false, require_ = false, plan_only_ = false, apart_ = false;
};

}  // namespace

std::unique_ptr<Command> make_build() { return std::make_unique<Build>(); }

}  // namespace pare
