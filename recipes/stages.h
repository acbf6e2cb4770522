// What the stages of a run share: the recipe, the folder, and what is in memory by now. Each thing is made
// when it is first asked for, from the folder where an earlier stage (or process) left it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calib/statistics.h"
#include "datasets/dataset.h"
#include "engine/ir/graph.h"
#include "eval/report.h"
#include "graphsurgeon/simplify.h"
#include "recipes/pipeline.h"
#include "recipes/quantize/quantize_model.h"
#include "recipes/run_folder.h"

namespace pare {

// What of the calibration data is calibrated on and what is held out: the first `samples`, then up to
// `holdout` more. A set too small for that gives its last quarter (at most `holdout`) to the held-out part.
struct CalibrationSplit {
  std::int64_t samples = 0;
  SampleRange holdout;
};
// Of a text at most 16 windows: their logits are held for every candidate's score.
std::int64_t held_out_samples(const DatasetSpec& data, std::int64_t wanted);
CalibrationSplit split_calibration(std::int64_t available, std::int64_t samples, std::int64_t holdout);

// Relative paths of a data set resolved against the recipe's folder.
DatasetSpec resolved_dataset(const Recipe& recipe, const std::string& name);
// What the recipe's quantization is, fitted to what the files of its export hold (a head that stays float).
QuantizeChoices fitted_choices(const Recipe& recipe);
// The model as structure() has it; not simplified.
Graph load_structure(const std::string& path);
// Opens the model and the data sets that are used, and closes them; groups must divide, and the export's
// files hold what the layers become. All errors at once, with their place in the recipe, before work starts.
void check_inputs(const LoadedRecipe& recipe);
void check_inputs(const LoadedRecipe& recipe, const Graph& structure);  // of its model

class RunState {
 public:
  RunState(const LoadedRecipe& recipe, const RunOptions& options, RunFolder& folder);

  const Recipe& recipe() const { return recipe_.recipe; }
  const LoadedRecipe& loaded() const { return recipe_; }
  const RunOptions& options() const { return options_; }
  RunFolder& folder() { return folder_; }
  Progress& progress() const;
  ThreadPool& pool() const { return *options_.pool; }

  const Graph& original();  // as the file has it
  // What blocks are cut out of: weights of a checkpoint are views that nobody has read; another model is as
  // graph() has it.
  const Graph& structure();
  const Graph& graph();  // after surgery
  const SimplifyReport& surgery_report();
  const std::string& graph_hash();
  const Statistics* statistics();  // nullptr: nothing calibrates, or given() does
  const TrtCache* given();         // calibrate.stats is a TensorRT calibration cache; else nullptr
  CalibrationSplit split();
  std::unique_ptr<Dataset> calibration_data(std::int64_t samples);
  const QuantizeOutcome& outcome() const { return *outcome_; }  // of stage quantize, in this process
  void set_outcome(QuantizeOutcome outcome) { outcome_ = std::move(outcome); }
  void drop_outcome() { outcome_.reset(); }  // nobody after the audit asks for it
  const Graph& written();                    // model.onnx, read back

  Report report;  // what is known so far; saved after every stage

 private:
  void run_surgery();

  const LoadedRecipe& recipe_;
  const RunOptions& options_;
  RunFolder& folder_;
  std::optional<Graph> original_, structure_, graph_, written_;
  SimplifyReport surgery_report_;
  std::string graph_hash_;
  std::optional<Statistics> statistics_;
  std::optional<TrtCache> given_;
  std::optional<QuantizeOutcome> outcome_;
  std::optional<CalibrationSplit> split_;
};

struct Stage {
  const char* name;
  const char* what;
  bool (*wanted)(const Recipe& recipe);
  // Does the work and returns the files that it left in the run folder.
  std::vector<std::string> (*run)(RunState& state);
};
const std::vector<Stage>& all_stages();  // without "report"

}  // namespace pare
