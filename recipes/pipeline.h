// `pare run`: a recipe's stages in order, journaled, so that a run killed at any moment goes on where it was
// and ends with the same bytes.
//
//   load       model and data opened and checked; the resolved recipe written
//   forecast   time and memory, from a part of the work (forecast.h); no stage of the journal
//   surgery    graph passes; the float function is compared before and after
//   calibrate  statistics.h5
//   quantize   ranges, codes, model.onnx
//   audit      model.onnx read back and compared with what was decided
//   evaluate   model.onnx judged against the original; gates
//   report     report.json, report.html, report.md, junit.xml
//
// A stage whose section the recipe lacks is left out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/progress.h"
#include "engine/base/thread_pool.h"
#include "eval/report.h"
#include "recipes/grammar/load.h"

namespace pare {

struct RunOptions {
  std::string out;  // "": runs/NAME
  bool resume = false, force = false;
  std::string from;            // run this stage and those after it again, whatever the journal says
  std::string until;           // stop behind this stage
  ThreadPool* pool = nullptr;  // required
  Progress* progress = nullptr;
  std::function<void(const std::string&)> message;  // what is going on, for people; may be empty
  std::string pare_version;
  std::string device = "auto";  // another one takes the place of build.device
};

struct RunOutcome {
  std::string run_dir;
  Report report;
  bool complete = false;                  // false: stopped by `until`
  std::vector<std::string> report_files;  // in run_dir
};

// Errors: everything that its parts throw, with "while STAGE" in front; kUsage for the folder's state
// (run_folder.h) and unknown stage names. A gate or audit that fails is no error: outcome.report.passed().
RunOutcome run_recipe(const LoadedRecipe& recipe, const RunOptions& options);

struct PlannedStage {
  std::string name, what;
};
// What run_recipe would do. Opens and checks model, data and the run's folder, writes nothing. Errors as
// run_recipe's.
std::vector<PlannedStage> plan_run(const LoadedRecipe& recipe, const RunOptions& options);

// What can be known of a recipe without running it, beyond its text: model and data open and fit together,
// this build can do it. Returns warnings: rules that name no layer of the model. Errors as run_recipe's.
std::vector<std::string> check_run(const LoadedRecipe& recipe);

const std::vector<const char*>& stage_names();
std::string run_folder_of(const LoadedRecipe& recipe, const std::string& out);

}  // namespace pare
