#include <algorithm>
#include <chrono>

#include "cli/commands.h"
#include "cli/engine_run.h"
#include "datasets/dataset.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/build/bench_contexts.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "recipes/build_stage.h"

namespace pare {
namespace {

class Bench final : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* what() const override { return "how fast a model runs here, on generated inputs"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file, or an engine that `pare build` wrote")
        .option("--batch", "N", batch_,
                "samples at a time (default 1; of an engine: the optimum of its profile)")
        .option("--input-shape", "NAME=SIZES", shapes_,
                "shape of an input that the model leaves open: image=1x3x224x224")
        .option("--iterations", "N", iterations_, "timed runs (default: as many as take 3 seconds)")
        .option("--warmup", "N", warmup_, "runs before that")
        .option("--contexts", "N", contexts_, "engines: also the throughput of N contexts at the same time")
        .flag("--profile-layers", profile_, "milliseconds of each node, slowest first")
        .flag("--fake-quant", fake_, "quantized layers as float fake quantization, not integer kernels")
        .example("pare bench resnet.onnx --batch 64 --threads 2 --profile-layers");
  }

  int run(Context& context) override {
    if (contexts_ < 1 || contexts_ > 64)
      throw make_error(ErrorCode::kUsage, "--contexts counts from 1 to 64").hint("for example --contexts 4");
    if ((batch_ < 1 && batch_ != kNotGiven) || warmup_ < 0 || iterations_ < 0)
      throw make_error(ErrorCode::kUsage,
                       "--batch, --warmup and --iterations count: batch from 1, the others from 0")
          .hint("for example --batch 1 --warmup 3 --iterations 20");
    if (model_kind(path_) == ModelKind::kEngine) return bench_engine(context);
    if (batch_ == kNotGiven) batch_ = 1;
    if (context.options().device.rfind("cuda", 0) == 0)
      throw make_error(ErrorCode::kUnsupported, "a model is timed on the CPU only, not on --device {}",
                       context.options().device)
          .at(path_)
          .hint("time an engine: pare build MODEL -o ENGINE, pare bench ENGINE");
    Graph graph = load_model(path_);
    SimplifyOptions simplest;  // as the pipeline does before it runs a model: batch normalization folded
    simplest.self_check = false;
    simplify(graph, simplest);
    std::vector<std::pair<std::string, Dims>> shapes;
    for (const std::string& text : shapes_) shapes.push_back(parse_input_shape(text));
    const std::vector<Tensor> inputs = synthetic_inputs(model_inputs(graph), batch_, shapes, context.seed());
    LowerOptions lower;
    lower.integer = !fake_;
    const Lowered lowered = lower_for_cpu(graph, lower);
    SessionOptions options;
    options.pool = &context.pool();
    options.only_invariant = false;
    Session session(lowered.graph, options);
    const double warm = timed(session, inputs);
    for (std::int64_t i = 1; i < warmup_; ++i) timed(session, inputs);
    std::int64_t count = iterations_;
    if (count == 0)
      count = std::clamp<std::int64_t>(static_cast<std::int64_t>(3.0 / std::max(warm, 1e-6)), 10, 1000);
    std::vector<double> ms;
    ProgressStep step(context.progress(), "timing", count);
    for (std::int64_t i = 0; i < count; ++i) {
      check_cancelled();
      ms.push_back(timed(session, inputs) * 1000);
      step.advance(1);
    }
    report(context, ms);
    if (profile_) layers(context, lowered, inputs);
    return 0;
  }

 private:
  // Launches of the whole captured graph, inputs and outputs on the device; with copies apart.
  int bench_engine(Context& context) {
    const std::unique_ptr<Engine> engine = open_engine(context, path_);
    const std::vector<Tensor> inputs = engine_bench_inputs(context, *engine);
    if (!inputs.empty() && !inputs[0].dims().empty()) batch_ = inputs[0].dims()[0];
    EngineRunner& runner = engine->at(inputs);
    runner.run(inputs);
    const bool cpu = engine->file().is_cpu();
    const std::int64_t count = iterations_ == 0 ? (cpu ? 50 : 200) : iterations_;
    const BenchTimes times =
        runner.bench(static_cast<int>(count), static_cast<int>(warmup_ == 3 && !cpu ? 20 : warmup_));
    device_ = device_of(context, *engine);
    report(context, times.milliseconds);
    if (contexts_ > 1) bench_together(context, runner, inputs, static_cast<int>(count));
    context.document()["with_copies_ms"] = times.with_copies_ms;
    context.print(
        fmt::format("with inputs from and outputs to the host: median {:.3f} ms", times.with_copies_ms));
    if (!profile_) return 0;
    std::vector<LayerTime> layers = runner.profile(7);
    double total = 0;
    for (const LayerTime& row : layers) total += row.microseconds;
    std::stable_sort(layers.begin(), layers.end(),
                     [](const LayerTime& a, const LayerTime& b) { return a.microseconds > b.microseconds; });
    Json list = Json::array();
    for (const LayerTime& row : layers) {
      list.push_back({{"name", row.name}, {"kernel", row.tactic}, {"ms", row.microseconds / 1000}});
      context.print(fmt::format("{:9.2f} us {:5.1f} %  {:<28} {}", row.microseconds,
                                100 * row.microseconds / total, row.tactic, row.name));
    }
    context.document()["layers"] = std::move(list);
    return 0;
  }

  // --batch and --input-shape choose another shape of the engine's profile.
  std::vector<Tensor> engine_bench_inputs(Context& context, const Engine& engine) const {
    const EngineFile& file = engine.file();
    if (batch_ == kNotGiven && shapes_.empty()) return random_engine_inputs(file.plan, context.seed());
    std::vector<std::pair<std::string, Dims>> shapes;
    for (const int id : file.plan.inputs) {
      const PlanTensor& t = file.plan.tensors[static_cast<std::size_t>(id)];
      shapes.emplace_back(t.name, t.dims);
      if (batch_ != kNotGiven && !t.dims.empty()) shapes.back().second[0] = batch_;
      for (const std::string& text : shapes_) {
        const auto given = parse_input_shape(text);
        if (given.first == t.name) shapes.back().second = given.second;
      }
      if (file.graph == nullptr && shapes.back().second != t.dims)
        throw make_error(ErrorCode::kUsage,
                         "input '{}' of {} was asked for, the engine was built for {} alone", t.name,
                         to_string(shapes.back().second), to_string(t.dims))
            .at(path_)
            .hint("build it with --batch, or with --profile for several");
    }
    if (file.graph == nullptr) return random_engine_inputs(file.plan, context.seed());
    return synthetic_inputs(model_inputs(*file.graph), 1, shapes, context.seed());
  }

  void bench_together(Context& context, EngineRunner& first, const std::vector<Tensor>& inputs, int repeats) {
    const int threads = std::max(1, context.pool().threads() / static_cast<int>(contexts_));
    std::vector<std::unique_ptr<EngineRunner>> owned;
    std::vector<EngineRunner*> all = {&first};
    for (std::int64_t i = 1; i < contexts_; ++i) {
      owned.push_back(first.context(threads));
      all.push_back(owned.back().get());
    }
    const ContextTimes times = bench_contexts(all, inputs, repeats);
    const double one = times.one_per_second * static_cast<double>(batch_),
                 together = times.all_per_second * static_cast<double>(batch_);
    context.document()["contexts"] = {{"count", contexts_},
                                      {"one_per_second", one},
                                      {"all_per_second", together},
                                      {"same_bits", times.same_bits}};
    context.print(fmt::format("{} contexts: {:.1f} samples a second, {:.2f} times one ({:.1f}); {}",
                              contexts_, together, together / one, one,
                              times.same_bits ? "the same bits" : "OUTPUTS DIFFER"));
    if (!times.same_bits) fail(ErrorCode::kInternal, "contexts of one engine gave different outputs");
  }

  static double timed(Session& session, const std::vector<Tensor>& inputs) {
    const auto start = std::chrono::steady_clock::now();
    session.run(inputs);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void report(Context& context, std::vector<double> ms) {
    std::sort(ms.begin(), ms.end());
    const auto at = [&](double share) {
      return ms[static_cast<std::size_t>(share * static_cast<double>(ms.size() - 1))];
    };
    const double median = at(0.5), per_second = static_cast<double>(batch_) * 1000 / median;
    Json& json = context.document();
    if (device_.empty())
      device_ = fmt::format("cpu ({}, {} threads)", pare::name(isa()), context.pool().threads());
    json["device"] = device_;
    json["batch"] = batch_;
    json["iterations"] = ms.size();
    json["warmup"] = warmup_;
    json["latency_ms"] = {
        {"min", ms.front()}, {"median", median}, {"p90", at(0.9)}, {"p99", at(0.99)}, {"max", ms.back()}};
    json["per_second"] = per_second;
    json["layers"] = Json::array();
    context.print(fmt::format("{} on {}, batch {}, {} runs", path_, device_, batch_, ms.size()));
    context.print(fmt::format("latency ms: median {:.4f}  min {:.4f}  p90 {:.4f}  p99 {:.4f}  max {:.4f}",
                              median, ms.front(), at(0.9), at(0.99), ms.back()));
    context.print(fmt::format("{:.1f} samples a second", per_second));
  }

  // In a session of its own: taking times costs time.
  static void layers(Context& context, const Lowered& lowered, const std::vector<Tensor>& inputs) {
    SessionOptions options;
    options.pool = &context.pool();
    options.only_invariant = false;
    options.profile = true;
    Session session(lowered.graph, options);
    constexpr int kRuns = 10;
    for (int i = 0; i < kRuns; ++i) session.run(inputs);
    std::vector<Session::Profile> profile = session.profile();
    std::stable_sort(profile.begin(), profile.end(),
                     [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    double total = 0;
    for (const Session::Profile& row : profile) total += row.seconds;
    Json list = Json::array();
    for (const Session::Profile& row : profile) {
      const Node& node = subgraph_at(*lowered.graph, row.path).node(row.node);
      const std::string name =
          row.path.empty() ? node.name : to_string(*lowered.graph, row.path) + "/" + node.name;
      const double ms = row.seconds * 1000 / kRuns;  // all iterations of one run
      list.push_back({{"name", name}, {"op", node.op}, {"kernel", row.kernel}, {"ms", ms}});
      context.print(fmt::format("{:9.3f} ms {:5.1f} %  {:<28} {}", ms,
                                total > 0 ? 100 * row.seconds / total : 0, row.kernel, name));
    }
    context.document()["layers"] = std::move(list);
  }

  std::string path_, device_;
  std::vector<std::string> shapes_;
  static constexpr std::int64_t kNotGiven = -1;
  std::int64_t batch_ = kNotGiven, iterations_ = 0, warmup_ = 3, contexts_ = 1;
  bool profile_ = false, fake_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench() { return std::make_unique<Bench>(); }

}  // namespace pare
