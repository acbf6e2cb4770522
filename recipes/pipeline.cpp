#include "recipes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "engine/base/atomic_file.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "eval/report_render.h"
#include "graphsurgeon/load.h"
#include "quant/placement/rules.h"
#include "recipes/forecast.h"
#include "recipes/quant_spec.h"
#include "recipes/report_files.h"
#include "recipes/stages.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

const char* const kPeakMemory = "most memory allocated";
const char* const kTime = "time of the run";
const char* const kForecast = "forecast";  // as a row of the report's stages

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string snapshot_name(const std::string& stage) { return "stages/" + stage + ".json"; }

void check_stage(const std::string& name, const char* option) {
  if (name.empty()) return;
  const std::vector<const char*>& known = stage_names();
  for (const char* stage : known)
    if (name == stage) return;
  const std::string near = nearest_word(name, known.data(), known.size());
  std::string hint = "stages:";
  for (const char* stage : known) hint += fmt::format(" {}", stage);
  throw make_error(ErrorCode::kUsage, "there is no stage '{}'", name)
      .at(option)
      .hint(near.empty() ? hint : fmt::format("did you mean '{}'?", near));
}

// Everything that decides the bytes of the result, but the data, whose hash is in the statistics.
std::string fingerprint(const LoadedRecipe& recipe, const RunOptions& options) {
  Sha256 hash;
  const std::string model = recipe.recipe.resolve(recipe.recipe.model.path);
  for (const std::string& part : {options.pare_version, recipe.text, model_sha256(model)}) {
    hash.update_number(part.size());
    hash.update(part);
  }
  return hex(hash.finish());
}

// The keys under which two resolved recipes differ: "evaluate.gates.0.max (0.1, now 0.2)".
void list_changes(const TreeNode& before, const TreeNode& now, const std::string& path,
                  std::vector<std::string>& out) {
  const auto shown = [](const TreeNode& node) {
    return node.kind == TreeNode::Kind::kScalar ? node.text : std::string(kind_name(node));
  };
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (before.kind == TreeNode::Kind::kMap && now.kind == TreeNode::Kind::kMap) {
    for (const TreeMember& member : before.members) {
      const TreeNode* other = now.find(member.key);
      if (other == nullptr)
        out.push_back(fmt::format("{} ({}, now nothing)", below(member.key), shown(member.value)));
      else
        list_changes(member.value, *other, below(member.key), out);
    }
    for (const TreeMember& member : now.members)
      if (before.find(member.key) == nullptr)
        out.push_back(fmt::format("{} (nothing, now {})", below(member.key), shown(member.value)));
  } else if (before.kind == TreeNode::Kind::kList && now.kind == TreeNode::Kind::kList &&
             before.items.size() == now.items.size()) {
    for (std::size_t i = 0; i < now.items.size(); ++i)
      list_changes(before.items[i], now.items[i], below(std::to_string(i)), out);
  } else if (emit_yaml(before) != emit_yaml(now)) {
    out.push_back(fmt::format("{} ({}, now {})", path, shown(before), shown(now)));
  }
}

// ": KEY (OLD, now NEW), ..." of the recipe that a run was begun with; "" when the text is the same, or gone.
std::string what_changed(const std::string& file, const std::string& text) {
  std::vector<std::string> changes;
  try {
    auto source = std::make_shared<TreeSource>();
    list_changes(parse_yaml(read_text_file(file, limits::kMaxRecipeBytes), source), parse_yaml(text, source),
                 "", changes);
  } catch (const Error&) {
    return "";
  }
  constexpr std::size_t kShown = 4;
  std::string out;
  for (std::size_t i = 0; i < changes.size() && i < kShown; ++i) out += (i == 0 ? ": " : ", ") + changes[i];
  return changes.size() > kShown ? out + fmt::format(" and {} more", changes.size() - kShown) : out;
}

class Run {
 public:
  Run(const LoadedRecipe& recipe, const RunOptions& options, RunFolder& folder)
      : options_(options), folder_(folder), state_(recipe, options, folder), start_(Clock::now()) {
    state_.report.title = recipe.recipe.name;
    state_.report.command = "run";
  }

  RunOutcome go() {
    RunOutcome outcome;
    outcome.run_dir = folder_.path();
    if (!options_.from.empty()) {
      folder_.forget(options_.from);
      folder_.drop_layers();
    }
    if (folder_.finished()) return finished(std::move(outcome));
    // The audit compares with what `quantize` decided, which is not kept: the two are done in one process.
    if (folder_.find("audit") == nullptr) folder_.forget("quantize");
    std::string current = "load";
    try {
      bool resuming = true;
      for (const Stage& stage : all_stages()) {
        if (!stage.wanted(state_.recipe())) continue;
        current = stage.name;
        resuming = resuming && restore(stage);
        if (!resuming) {
          if (current != "load") {
            current = kForecast;
            with_context("forecasting the run", [&] { forecast(); });
            current = stage.name;
          }
          run(stage);
        }
        if (options_.until == stage.name) {
          outcome.report = state_.report;
          return outcome;
        }
      }
      current = "report";
      report(outcome);
    } catch (const Error& error) {
      folder_.log(fmt::format("{}: {}", current, error.what()));
      if (error.code() != ErrorCode::kInterrupted) leave_junit(current, error);
      throw;
    }
    return outcome;
  }

 private:
  // Once a run, when the model is open and before anything that takes long.
  void forecast() {
    std::vector<ReportPrediction>& predictions = state_.report.predictions;
    for (const ReportPrediction& p : predictions)
      if (p.what == kPeakMemory) return;
    if (options_.message) options_.message("forecast: a part of the work, for its time and memory");
    const Clock::time_point start = Clock::now();
    const Forecast expected = forecast_run(state_);
    ReportStage row;
    row.name = kForecast;
    row.seconds = since(start);
    state_.report.stages.push_back(row);
    predictions.push_back({kPeakMemory, "bytes", expected.anonymous_bytes, 0});
    predictions.push_back({kTime, "s", expected.seconds, 0});
    if (options_.message) options_.message("expected: " + to_string(expected));
    folder_.log("expected: " + to_string(expected));
  }

  // A finished run is shown again, nothing is computed.
  RunOutcome finished(RunOutcome outcome) {
    outcome.report = read_report(folder_.path());
    outcome.report.command = "run";
    for (ReportStage& stage : outcome.report.stages) stage.resumed = true;
    outcome.complete = true;
    for (const char* name : {"junit.xml", "report.html", "report.json", "report.md"})
      if (path_exists(folder_.file(name))) outcome.report_files.emplace_back(name);
    return outcome;
  }

  // Takes over what an earlier process finished. False: this stage and all after it must run.
  bool restore(const Stage& stage) {
    const JournalEntry* entry = folder_.find(stage.name);
    if (entry == nullptr) {
      folder_.forget(stage.name);
      return false;
    }
    const std::string path = folder_.file(snapshot_name(stage.name));
    Report saved = report_from_json(read_json_file(path), path);
    for (ReportStage& row : saved.stages) row.resumed = true;
    saved.command = "run";
    state_.report = std::move(saved);
    return true;
  }

  void run(const Stage& stage) {
    check_cancelled();
    if (options_.message) options_.message(fmt::format("{}: {}", stage.name, stage.what));
    folder_.log(fmt::format("{}: begins", stage.name));
    const Clock::time_point start = Clock::now();
    std::vector<std::string> files =
        with_context(fmt::format("running stage '{}'", stage.name), [&] { return stage.run(state_); });
    ReportStage row;
    row.name = stage.name;
    row.seconds = since(start);
    state_.report.stages.push_back(row);
    for (const std::string& file : files)
      if (file.rfind("stages/", 0) != 0) state_.report.artefacts.push_back(folder_.describe(file));
    const std::string snapshot = snapshot_name(stage.name);
    write_file_atomically(folder_.file(snapshot), dump(report_to_json(state_.report), 1) + "\n");
    JournalEntry entry;
    entry.stage = stage.name;
    entry.seconds = row.seconds;
    files.push_back(snapshot);
    for (const std::string& file : files) entry.outputs.push_back(folder_.describe(file));
    folder_.record(entry);
    folder_.log(fmt::format("{}: done in {:.2f} s; most memory so far {}", stage.name, row.seconds,
                            bytes_text(static_cast<double>(peak_anonymous_bytes()))));
  }

  // A CI job looks for junit.xml also behind a run that an error ended.
  void leave_junit(const std::string& stage, const Error& error) {
    const std::vector<std::string>& kinds = state_.recipe().report;
    if (std::find(kinds.begin(), kinds.end(), "junit") == kinds.end()) return;
    try {
      write_file_atomically(folder_.file("junit.xml"), render_junit_error(state_.report, stage, error));
    } catch (const Error& second) {  // a full disk, say: what came first is what the user must hear
      folder_.log(second.what());
    }
  }

  void report(RunOutcome& outcome) {
    const Clock::time_point start = Clock::now();
    Report& r = state_.report;
    r.run_dir = folder_.path();
    r.verdict = verdict_text(r);
    if (folder_.other_isa_class())
      r.warnings.push_back("parts of this run were made on a processor of another instruction class");
    ReportStage row;
    row.name = "report";
    row.seconds = since(start);
    r.stages.push_back(row);
    double seconds = 0, foreseen = 0;  // the forecast is of what comes behind it
    for (const ReportStage& stage : r.stages) {
      seconds += stage.seconds;
      if (stage.name != kForecast) foreseen += stage.seconds;
    }
    for (ReportPrediction& p : r.predictions) {
      if (p.what == kPeakMemory) p.measured = static_cast<double>(peak_anonymous_bytes());
      if (p.what == kTime) p.measured = foreseen;
    }
    outcome.report_files =
        write_reports(r, folder_.path(), state_.recipe().report, options_.pare_version, seconds);
    folder_.drop_layers();
    folder_.finish();
    folder_.log(fmt::format("finished: {}", r.verdict));
    outcome.report = r;
    outcome.complete = true;
  }

  const RunOptions& options_;
  RunFolder& folder_;
  RunState state_;
  Clock::time_point start_;
};

}  // namespace

const std::vector<const char*>& stage_names() {
  static const std::vector<const char*> kNames = [] {
    std::vector<const char*> names;
    for (const Stage& stage : all_stages()) names.push_back(stage.name);
    return names;
  }();
  return kNames;
}

std::string run_folder_of(const LoadedRecipe& recipe, const std::string& out) {
  return out.empty() ? join_path("runs", recipe.recipe.name) : out;
}

namespace {

// What both a run and its plan look at first.
RunFolder::Mode checked_mode(const LoadedRecipe& recipe, const RunOptions& options) {
  if (options.resume && options.force)
    throw make_error(ErrorCode::kUsage, "--resume and --force contradict each other")
        .hint("--resume goes on with what is there, --force replaces it");
  check_stage(options.from, "--from");
  check_stage(options.until, "--until");
  check_supported(recipe.recipe);
  // --from on its own speaks of a run that is there.
  const bool resume = options.resume || (!options.from.empty() && !options.force);
  return options.force ? RunFolder::Mode::kForce
         : resume      ? RunFolder::Mode::kResume
                       : RunFolder::Mode::kFresh;
}

// `open` with the keys that differ, when the folder's run is one of another recipe.
template <typename Open>
auto open_run(const LoadedRecipe& recipe, const std::string& path, Open&& open) {
  try {
    return open();
  } catch (const Error& error) {
    if (std::string(error.what()) != kBegunOtherwise) throw;
    const std::string now = recipe_text_in(recipe.recipe, path);
    throw Error(error.code(), kBegunOtherwise + what_changed(join_path(path, "recipe.yaml"), now))
        .at(error.where())
        .hint(error.hint());
  }
}

}  // namespace

RunOutcome run_recipe(const LoadedRecipe& recipe, const RunOptions& options) {
  const RunFolder::Mode mode = checked_mode(recipe, options);
  const std::string path = run_folder_of(recipe, options.out);
  const std::unique_ptr<RunFolder> folder = open_run(recipe, path, [&] {
    return std::make_unique<RunFolder>(path, mode, fingerprint(recipe, options),
                                       reproducibility_class(isa()));
  });
  return Run(recipe, options, *folder).go();
}

std::vector<PlannedStage> plan_run(const LoadedRecipe& recipe, const RunOptions& options) {
  const RunFolder::Mode mode = checked_mode(recipe, options);
  check_inputs(recipe);
  const std::string path = run_folder_of(recipe, options.out);
  open_run(recipe, path, [&] {
    RunFolder::check(path, mode, mode == RunFolder::Mode::kResume ? fingerprint(recipe, options) : "");
    return 0;
  });
  std::vector<PlannedStage> plan;
  for (const Stage& stage : all_stages()) {
    if (!stage.wanted(recipe.recipe)) continue;
    plan.push_back({stage.name, stage.what});
    if (options.until == stage.name) return plan;
  }
  plan.push_back({"report", "write the reports"});
  return plan;
}

std::vector<std::string> check_run(const LoadedRecipe& recipe) {
  check_supported(recipe.recipe);
  const Graph graph = load_structure(recipe.recipe.resolve(recipe.recipe.model.path));
  check_inputs(recipe, graph);
  if (!recipe.recipe.quantize) return {};
  return quant::RuleBook(quant_spec(*recipe.recipe.quantize)).unmatched(graph);
}

}  // namespace pare
