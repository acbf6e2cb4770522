#include <algorithm>
#include <chrono>

#include "cli/commands.h"
#include "cli/engine_run.h"
#include "cli/version.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "engine/build/make_plan.h"
#include "engine/build/memory_plan.h"
#include "engine/build/refit.h"
#include "eval/report_render.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

class Build final : public Command {
 public:
  const char* name() const override { return "build"; }
  const char* what() const override { return "a fused engine for the GPU at hand, its kernels timed here"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file, perhaps with Q/DQ")
        .option("-o,--output", "ENGINE", output_, "where to write the engine")
        .option("--batch", "N", batch_, "samples at a time (default 1)")
        .option("--input-shape", "NAME=1x3x224x224", shapes_, "shape of an input that the model leaves open")
        .option("--precision", "P", precision_, "how float values are stored: fp16 (default), bf16, fp32",
                "build.precision")
        .flag("--fake-quant", fake_, "quantized layers as float fake quantization, not integer kernels")
        .option("--timing-cache", "FILE", cache_, "tactics timed before; new ones are added")
        .flag("--require-cached-tactics", require_, "a layer that is not in the cache is an error")
        .option("--tactics", "GROUP", only_, "only these: mma, cublaslt, cudnn, rows ... (again for more)")
        .option("--refit", "ENGINE", refit_,
                "tactics and kernels of this engine with the model's weights: the same graph, no GPU is used")
        .flag("--plan-only", plan_only_,
              "print the plan and the memory it needs; no GPU is used, nothing is written")
        .example("pare build resnet.onnx -o resnet.engine --batch 32 --timing-cache timing.json");
  }

  int run(Context& context) override {
    if (batch_ < 1) fail(ErrorCode::kUsage, "--batch counts from 1");
    if (!plan_only_ && output_.empty())
      throw make_error(ErrorCode::kUsage, "no place for the engine").hint("add -o ENGINE, or --plan-only");
    PlanOptions options;
    options.precision = precision();
    options.integer = !fake_;
    std::vector<std::pair<std::string, Dims>> shapes;
    for (const std::string& text : shapes_) shapes.push_back(parse_input_shape(text));
    Graph graph = load_model(path_);
    SimplifyOptions simplest;
    simplest.self_check = false;
    simplify(graph, simplest);
    graph = fix_sizes(graph, batch_, shapes);
    simplify(graph, simplest);  // shapes are numbers now: what is computed from them folds
    EnginePlan plan = make_plan(graph, options);
    plan_memory(plan);
    Json& json = context.document();
    json["batch"] = batch_;
    json["fused"] = plan.layers.size();
    if (plan_only_) {
      context.print(to_text(plan));
      report_memory(context, plan, 0, nullptr);
      finish(context, plan);
      return 0;
    }
    if (!refit_.empty()) {
      EngineFile old = read_engine(refit_);
      options.fold_norms = std::any_of(old.plan.layers.begin(), old.plan.layers.end(),
                                       [](const PlanLayer& layer) { return normalizes(layer); });
      if (!options.fold_norms) plan = make_plan(graph, options);
      refit(plan, old.plan);
      plan_memory(plan);
      old.provenance.model = file_name(path_);
      old.provenance.model_sha256 = sha256_of_file(path_);
      write_engine(output_, plan, old.provenance);
      json["engine"] = output_;
      json["sha256"] = read_engine(output_).sha256;
      report_memory(context, plan, 0, nullptr);
      finish(context, plan);
      context.print(fmt::format("wrote {} with the tactics of {}", output_, refit_));
      return 0;
    }
    EngineBackend& backend = cuda_backend();
    TimingCache cache = cache_.empty() ? TimingCache() : TimingCache::read(cache_);
    TuneOptions tune;
    tune.cache = &cache;
    tune.require_cached = require_;
    tune.only = only_;
    tune.log = [&](const std::string& text) { context.message(text); };
    TuneReport report = backend.tune(plan, tune);
    const bool folded = std::any_of(plan.layers.begin(), plan.layers.end(),
                                    [](const PlanLayer& layer) { return normalizes(layer); });
    if (folded) {
      // Normalizations inside of the products around them leave these to our own kernels: which is faster is
      // measured.
      options.fold_norms = false;
      EnginePlan apart = make_plan(graph, options);
      plan_memory(apart);
      const TuneReport second = backend.tune(apart, tune);
      const double with = planned_microseconds(plan), without = planned_microseconds(apart);
      context.message(
          fmt::format("normalizations in the products: {} kernels, {:.1f} us; apart: {} kernels, {:.1f} us",
                      count_kernels(plan), with, count_kernels(apart), without));
      report.timed += second.timed, report.from_cache += second.from_cache,
          report.compiled += second.compiled;
      report.compile_seconds += second.compile_seconds, report.timing_seconds += second.timing_seconds;
      if (without < with) {
        plan = std::move(apart);
        report.declined = second.declined;
      }
    }
    const DeviceFacts facts = backend.facts();
    plan_memory(plan);
    EngineProvenance provenance;
    provenance.pare_version = version();
    provenance.model = file_name(path_);
    provenance.model_sha256 = model_sha256(path_);
    provenance.device = facts.name;
    provenance.architecture = facts.architecture;
    for (const auto& [library, text] : facts.versions) provenance.versions.emplace_back(library, text);
    provenance.batch = batch_;
    write_engine(output_, plan, provenance);
    if (!cache_.empty()) cache.write(cache_);
    const EngineFile written = read_engine(output_);  // what is written is read back
    const auto runner = backend.load(written.plan);
    runner->run(random_engine_inputs(written.plan, context.seed()));
    json["engine"] = output_;
    json["sha256"] = written.sha256;
    json["device"] = device_text(facts);
    json["tactics"] = {{"timed", report.timed},
                       {"from_cache", report.from_cache},
                       {"compiled", report.compiled},
                       {"compile_seconds", report.compile_seconds},
                       {"timing_seconds", report.timing_seconds}};
    context.print(to_text(plan));
    for (const std::string& line : report.declined) context.message(line);
    context.print(fmt::format(
        "{} layers timed, {} from the cache; {} kernels compiled in {:.1f} s, timing {:.1f} s", report.timed,
        report.from_cache, report.compiled, report.compile_seconds, report.timing_seconds));
    report_memory(context, plan, facts.memory_bytes, runner.get());
    finish(context, plan);
    context.print(fmt::format("wrote {} for {}", output_, facts.name));
    return 0;
  }

 private:
  // Layers' times and what a launch costs beside its work (0.35 us between kernels of a captured graph, seen
  // on an H200).
  static double planned_microseconds(const EnginePlan& plan) {
    double sum = 0.35 * count_kernels(plan);
    for (const PlanLayer& layer : plan.layers) sum += layer.microseconds;
    return sum;
  }
  DType precision() const {
    if (precision_ == "fp16") return DType::kF16;
    if (precision_ == "bf16") return DType::kBF16;
    if (precision_ == "fp32") return DType::kF32;
    throw make_error(ErrorCode::kUsage, "'{}' is no precision", precision_)
        .at("--precision")
        .hint("fp16, bf16 or fp32");
  }

  // The peak is what we ask the device for: weights, arena, workspace, inputs and outputs.
  void report_memory(Context& context, const EnginePlan& plan, std::int64_t device_bytes,
                     EngineRunner* runner) const {
    std::int64_t io = 0;
    for (const auto* list : {&plan.inputs, &plan.outputs})
      for (const int id : *list) io += plan.tensors[static_cast<std::size_t>(id)].bytes() + 256;
    const std::int64_t peak =
        plan.weight_bytes + plan.arena_bytes + std::max<std::int64_t>(plan.workspace_bytes, 256) + io;
    Json memory = {{"weights", plan.weight_bytes},
                   {"activations", plan.arena_bytes},
                   {"workspace", plan.workspace_bytes},
                   {"io", io},
                   {"predicted_peak", peak},
                   {"measured_peak", nullptr}};
    std::string line = fmt::format(
        "memory: weights {}, activations {}, workspace {}, predicted peak {}",
        bytes_text(static_cast<double>(plan.weight_bytes)), bytes_text(static_cast<double>(plan.arena_bytes)),
        bytes_text(static_cast<double>(plan.workspace_bytes)), bytes_text(static_cast<double>(peak)));
    if (runner != nullptr) {
      memory["measured_peak"] = runner->memory().total();
      line += fmt::format(", measured {}", bytes_text(static_cast<double>(runner->memory().total())));
    }
    context.print(line);
    context.document()["memory"] = std::move(memory);
    if (device_bytes > 0) {
      // Activations, inputs and outputs grow with the batch; the rest does not.
      const std::int64_t each = std::max<std::int64_t>((plan.arena_bytes + io) / batch_, 1);
      const std::int64_t largest =
          std::max<std::int64_t>((device_bytes - plan.weight_bytes - plan.workspace_bytes) / each, 0);
      context.document()["largest_batch"] = largest;
      context.print(fmt::format("largest batch that fits: about {}", largest));
    }
  }

  static void finish(Context& context, const EnginePlan& plan) {
    Json& json = context.document();
    json["kernels"] = count_kernels(plan);
    json["layers"] = engine_layers(plan);
    json["realized"] = Json::array();
    int differ = 0;
    for (const Realized& row : plan.realized) {
      json["realized"].push_back(
          {{"node", row.node}, {"requested", row.requested}, {"realized", row.realized}, {"why", row.why}});
      if (!row.why.empty()) {
        ++differ;
        context.warn(fmt::format("{} was asked for {} and runs in {}: {}", row.node, row.requested,
                                 row.realized, row.why));
      }
    }
    context.print(fmt::format(
        "{} kernels{}", count_kernels(plan),
        plan.realized.empty()
            ? std::string()
            : fmt::format("; {} layers with Q/DQ, {} not as requested", plan.realized.size(), differ)));
  }

  std::string path_, output_, precision_ = "fp16", cache_, refit_;
  std::vector<std::string> shapes_, only_;
  std::int64_t batch_ = 1;
  bool fake_ = false, require_ = false, plan_only_ = false;
};

}  // namespace

std::unique_ptr<Command> make_build() { return std::make_unique<Build>(); }

}  // namespace pare
