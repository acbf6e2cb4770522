#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/open_checkpoint.h"
#include "graphsurgeon/passes/passes.h"
#include "quant/placement/activation.h"
#include "recipes/quant_spec.h"
#include "recipes/stages.h"
#include "recipes/text_data.h"

namespace pare {

std::int64_t held_out_samples(const DatasetSpec& data, std::int64_t wanted) {
  constexpr std::int64_t kWindows = 16;
  return is_text(data) ? std::min(wanted, kWindows) : wanted;
}

CalibrationSplit split_calibration(std::int64_t available, std::int64_t samples, std::int64_t holdout) {
  CalibrationSplit split;
  split.samples = samples == 0 ? available : std::min(samples, available);
  std::int64_t rest = available - split.samples;
  if (rest < std::min<std::int64_t>(holdout, 32)) {
    rest = std::min(holdout, available / 4);
    split.samples = std::min(split.samples, available - rest);
  }
  split.holdout.begin = split.samples;
  split.holdout.end = split.samples + std::min(rest, holdout);
  return split;
}

namespace {

bool is_recognition(const std::string& name) {
  const auto passes = recognize_passes();
  return std::any_of(passes.begin(), passes.end(), [&](const Pass* pass) { return name == pass->name; });
}

}  // namespace

RunState::RunState(const LoadedRecipe& recipe, const RunOptions& options, RunFolder& folder)
    : recipe_(recipe), options_(options), folder_(folder) {}

Progress& RunState::progress() const {
  return options_.progress != nullptr ? *options_.progress : no_progress();
}

const Graph& RunState::original() {
  if (!original_) original_ = load_model(recipe().resolve(recipe().model.path));
  return *original_;
}

Graph load_structure(const std::string& path) {
  const ModelKind kind = model_kind(path);
  if (kind != ModelKind::kCheckpoint && kind != ModelKind::kGguf) return load_model(path);
  BuildOptions options;
  options.views = true;
  return build_graph(open_checkpoint(path), options);
}

const Graph& RunState::structure() {
  const std::string path = recipe().resolve(recipe().model.path);
  const ModelKind kind = model_kind(path);
  if (kind != ModelKind::kCheckpoint && kind != ModelKind::kGguf) return graph();
  if (!structure_) structure_ = load_structure(path);
  return *structure_;
}

void RunState::run_surgery() {
  Graph graph = original();
  for (const std::string& pass : recipe().surgery) {
    if (pass != "simplify" && pass != "recognize")
      throw make_error(ErrorCode::kUsage, "there is no surgery '{}'", pass)
          .hint("surgery: [simplify] or [simplify, recognize]");
    SimplifyOptions simplify_options;
    simplify_options.recognize = pass == "recognize";
    for (const std::string& name : recipe().surgery_without)
      if (simplify_options.recognize || !is_recognition(name)) simplify_options.without.push_back(name);
    simplify_options.pool = &pool();
    surgery_report_ = simplify(graph, simplify_options);
  }
  graph_ = std::move(graph);
}

const Graph& RunState::graph() {
  if (!graph_) run_surgery();
  return *graph_;
}

const SimplifyReport& RunState::surgery_report() {
  graph();
  return surgery_report_;
}

const std::string& RunState::graph_hash() {
  if (graph_hash_.empty()) graph_hash_ = hex(pare::graph_hash(graph()));
  return graph_hash_;
}

DatasetSpec resolved_dataset(const Recipe& recipe, const std::string& name) {
  DatasetSpec spec = recipe.datasets.at(name).spec;
  spec.path = recipe.resolve(spec.path);
  spec.alphabet = recipe.resolve(spec.alphabet);
  spec.tokenizer = recipe.resolve(spec.tokenizer);
  for (std::string* text : {&spec.labels, &spec.width_from}) {
    const std::string path = recipe.resolve(*text);
    std::string file, key;
    if (split_file_key(path, file, key) || (!text->empty() && path_exists(path)))
      *text = path;  // else a key inside the data's own file
  }
  complete_text(spec, recipe.resolve(recipe.model.path));
  return spec;
}

std::unique_ptr<Dataset> RunState::calibration_data(std::int64_t samples) {
  DatasetSpec spec = resolved_dataset(recipe(), recipe().calibrate->data);
  spec.samples = samples;
  return std::make_unique<Dataset>(spec, model_inputs(structure()));
}

CalibrationSplit RunState::split() {
  if (split_) return *split_;
  const CalibrateSpec& c = *recipe().calibrate;
  const DatasetSpec spec = resolved_dataset(recipe(), c.data);
  const std::int64_t samples = spec.samples, holdout = held_out_samples(spec, c.holdout);
  const std::unique_ptr<Dataset> data = calibration_data(samples == 0 ? 0 : samples + holdout);
  const bool scored = recipe().quantize && (recipe().quantize->activations.calibrator.empty() ||
                                            recipe().quantize->activations.calibrator == "auto");
  if (scored && data->fixed_batch() <= 1) {
    split_ = split_calibration(data->sample_count(), samples, holdout);
  } else {
    split_.emplace();
    split_->samples = samples == 0 ? data->sample_count() : std::min(samples, data->sample_count());
  }
  return *split_;
}

const Statistics* RunState::statistics() {
  if (!recipe().calibrate || given() != nullptr) return nullptr;
  if (!statistics_) {
    const std::string& given = recipe().calibrate->stats;
    if (given.empty() && recipe().quantize && !quant::needs_statistics(quant_spec(*recipe().quantize)))
      return nullptr;
    const std::string path = given.empty() ? folder_.file("statistics.h5") : recipe().resolve(given);
    statistics_ = load_statistics(path);
    refuse_stale(*statistics_, graph_hash(), path);
  }
  return &*statistics_;
}

const TrtCache* RunState::given() {
  if (!recipe().calibrate || recipe().calibrate->stats.empty()) return nullptr;
  const std::string path = recipe().resolve(recipe().calibrate->stats);
  if (!given_ && is_trt_cache(path)) given_ = load_trt_cache(path);
  return given_ ? &*given_ : nullptr;
}

const Graph& RunState::written() {
  if (!written_) written_ = load_model(folder_.file("model.onnx"));
  return *written_;
}

}  // namespace pare
