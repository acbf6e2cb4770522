#include <algorithm>

#include "cli/commands.h"
#include "cli/summary.h"
#include "cli/version.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "eval/metric_table.h"
#include "eval/report_render.h"
#include "graphsurgeon/open_checkpoint.h"
#include "recipes/pipeline.h"

namespace pare {
namespace {

constexpr const char* kCheckpoint = "checkpoint";  // folder of a run with one

class RunCommand final : public Command {
 public:
  const char* name() const override { return "run"; }
  const char* what() const override {
    return "run a recipe: from a model to a quantized, judged, reported one";
  }

  void declare(Args& args) override {
    args.positional("RECIPE", recipe_, "recipe file (`pare recipe init` writes one)")
        .option("--set", "A.B=VALUE", sets_,
                "set a key of the recipe, or a ${NAME}; lists by index: gates.0.max")
        .option("--out", "DIR", options_.out, "the run's folder (default runs/NAME)", "name")
        .flag("--resume", options_.resume, "go on with an unfinished run, from the stage where it stopped")
        .flag("--force", options_.force, "start again, over what is there")
        .option("--from", "STAGE", options_.from, "run again from this stage on")
        .one_of({"load", "surgery", "calibrate", "quantize", "audit", "evaluate", "build", "report"})
        .option("--until", "STAGE", options_.until, "stop behind this stage, named as for --from")
        .one_of({"load", "surgery", "calibrate", "quantize", "audit", "evaluate", "build", "report"},
                Choices::kExplained)
        .flag("--dry-run", dry_, "check everything and say what would be done")
        .example("pare run examples/fashion/resnet-int8.yaml")
        .example("pare run resnet-int8.yaml --set quantize.activations.calibrator=mse --out runs/mse");
  }

  int run(Context& context) override {
    RecipeOptions recipe_options;
    recipe_options.sets = sets_;
    if (context.options().seed >= 0)
      recipe_options.sets.push_back(fmt::format("seed={}", context.options().seed));
    const LoadedRecipe recipe = load_recipe(recipe_, recipe_options);
    options_.pool = &context.pool();
    options_.progress = &context.progress();
    options_.message = [&](const std::string& text) { context.message(text); };
    options_.pare_version = version();
    options_.device = context.options().device;
    if (!recipe.recipe.build && options_.device != "auto" && options_.device != "cpu")
      throw make_error(ErrorCode::kUnsupported, "a run without an engine is on the CPU, not on --device {}",
                       options_.device)
          .at("--device")
          .hint("add build: {device: cuda} to the recipe for an engine of the result");
    if (recipe.recipe.build && recipe.recipe.build->device.rfind("cuda:", 0) == 0)
      setenv("PARE_CUDA_DEVICE", recipe.recipe.build->device.c_str() + 5, 1);
    if (dry_) return dry_run(context, recipe);
    const RunOutcome outcome = run_or_say_how_to_go_on(recipe);
    for (const std::string& warning : outcome.report.warnings) context.warn(warning);
    context.document() = report_to_json(outcome.report);
    context.document()["run_dir"] = outcome.run_dir;
    context.document()["reports"] = outcome.report_files;
    if (!outcome.complete) {
      context.print(fmt::format("stopped behind stage '{}'; `--resume` goes on", options_.until));
      return 0;
    }
    print_summary(context, outcome.report);
    print_files(context, outcome);
    if (!outcome.report.passed())
      print_next_steps(context, outcome);
    else
      print_uses(context, outcome);
    return outcome.report.passed() ? 0 : 1;
  }

 private:
  RunOutcome run_or_say_how_to_go_on(const LoadedRecipe& recipe) const {
    try {
      return run_recipe(recipe, options_);
    } catch (Error& error) {
      if (error.code() != ErrorCode::kInterrupted) throw;
      throw error.hint(
          fmt::format("finished stages and layers are kept in {}: the same command with --resume{} goes on",
                      run_folder_of(recipe, options_.out), options_.force ? " instead of --force" : ""));
    }
  }

  // Where a person looks when a gate has failed: the layers that drift most, and who says more about them.
  void print_next_steps(Context& context, const RunOutcome& outcome) const {
    std::vector<ReportLayer> layers = outcome.report.layers;
    std::stable_sort(layers.begin(), layers.end(),
                     [](const ReportLayer& a, const ReportLayer& b) { return a.sqnr_db < b.sqnr_db; });
    if (layers.empty()) return;
    std::string worst;
    for (std::size_t i = 0; i < layers.size() && i < 3; ++i)
      worst += fmt::format("{}{} ({}, {:.1f} dB)", i == 0 ? "" : ", ", layers[i].name, layers[i].op,
                           layers[i].sqnr_db);
    context.print(fmt::format("\n  least SQNR: {}", worst));
    context.print(fmt::format("  why:        pare explain {} '{}'", outcome.run_dir, layers[0].name));
    // What --set said is in the run's own recipe alone.
    context.print(fmt::format("  to blame:   pare bisect {}{}",
                              sets_.empty() ? recipe_ : join_path(outcome.run_dir, "recipe.yaml"),
                              options_to_reach(outcome.report)));
  }

  // " --metric kl --least 0.01": what the first gate that failed asks for. "" where a few samples could not
  // say it (metrics with labels), or the search is for something else.
  static std::string options_to_reach(const Report& report) {
    for (const ReportGate& gate : report.gates) {
      if (gate.passed) continue;
      const GateMetric parsed = parse_gate_metric(gate.metric);
      const bool few = parsed.metric != nullptr && (parsed.metric->needs == MetricNeeds::kNothing ||
                                                    parsed.metric->needs == MetricNeeds::kTokens);
      const bool worse_is_more = parsed.kind != GateKind::kValue || (few && !parsed.metric->higher_is_better);
      if (!few || gate.against == "baseline" || (gate.relation == "<=") != worse_is_more) continue;
      for (const ReportMetric& row : report.metrics)
        if (row.name == parsed.metric->name)
          return fmt::format(
              " --metric {} --least {:.6g}", row.name,
              metric_at_drop(*parsed.metric, parsed.kind, row.reference.value_or(0), gate.limit));
    }
    return "";
  }

  // What a language model that was written is good for. An encoder has nothing to say.
  static void print_uses(Context& context, const RunOutcome& outcome) {
    for (const ReportArtefact& artefact : outcome.report.artefacts) {
      const bool gguf = artefact.path == "model.gguf";
      if (!gguf && artefact.path != join_path(kCheckpoint, "config.json")) continue;
      const std::string path = join_path(outcome.run_dir, gguf ? artefact.path : kCheckpoint);
      if (open_checkpoint(path).config.model_type == "bert") return;
      context.print(fmt::format("\n  to try it:  pare generate {} --prompt TEXT", path));
      context.print(fmt::format("  to serve:   {} {}", gguf ? "llama-server -m" : "vllm serve", path));
      return;
    }
  }

  int dry_run(Context& context, const LoadedRecipe& recipe) {
    const std::string folder = run_folder_of(recipe, options_.out);
    Json stages = Json::array();
    const std::vector<PlannedStage> plan = plan_run(recipe, options_);
    context.print(fmt::format("would run '{}' in {}:", recipe.recipe.name, folder));
    for (const PlannedStage& stage : plan) {
      context.print(fmt::format("  {:<10} {}", stage.name, stage.what));
      stages.push_back({{"name", stage.name}, {"what", stage.what}});
    }
    context.document()["run_dir"] = folder;
    context.document()["stages"] = std::move(stages);
    return 0;
  }

  static void print_files(Context& context, const RunOutcome& outcome) {
    context.print("");
    const std::string inside = std::string(kCheckpoint) + "/";
    std::int64_t files = 0, bytes = 0;  // of the checkpoint: one line for all
    for (const ReportArtefact& artefact : outcome.report.artefacts) {
      if (artefact.path.rfind(inside, 0) == 0) {
        ++files;
        bytes += artefact.bytes;
        continue;
      }
      context.print(fmt::format("  {:<15} {} ({})", artefact.path == "model.onnx" ? "model" : artefact.path,
                                join_path(outcome.run_dir, artefact.path),
                                bytes_text(static_cast<double>(artefact.bytes))));
    }
    if (files > 0)
      context.print(fmt::format("  {:<15} {} ({} files, {})", kCheckpoint,
                                join_path(outcome.run_dir, kCheckpoint), files,
                                bytes_text(static_cast<double>(bytes))));
    for (const std::string& file : outcome.report_files)
      context.print(fmt::format("  {:<15} {}", "report", join_path(outcome.run_dir, file)));
  }

  std::string recipe_;
  std::vector<std::string> sets_;
  RunOptions options_;
  bool dry_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<RunCommand>(); }

}  // namespace pare
