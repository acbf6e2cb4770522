#include "recipes/stages.h"

#include <algorithm>
#include <optional>

#include "calib/calibrate.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "eval/evaluate.h"
#include "eval/report_render.h"
#include "graphsurgeon/inspect.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/open_checkpoint.h"
#include "quant/audit.h"
#include "quant/placement/activation.h"
#include "recipes/blocks/quantize_blocks.h"
#include "recipes/build_stage.h"
#include "recipes/checkpoint/export_checkpoint.h"
#include "recipes/export_model.h"
#include "recipes/plan_report.h"
#include "recipes/quant_spec.h"
#include "recipes/quantize/given_scales.h"
#include "recipes/quantize/layer_journal.h"
#include "recipes/quantize/values_to_watch.h"
#include "recipes/report_files.h"

namespace pare {
namespace {

using Files = std::vector<std::string>;

bool always(const Recipe&) { return true; }
bool wants_surgery(const Recipe& r) { return !r.surgery.empty(); }
bool wants_calibration(const Recipe& r) {
  if (r.quantize && r.quantize->blocks) return false;  // each block's own are collected there
  return r.calibrate && r.calibrate->stats.empty() &&
         (!r.quantize || quant::needs_statistics(quant_spec(*r.quantize)));
}
bool wants_quantization(const Recipe& r) { return r.quantize.has_value(); }
bool wants_build(const Recipe& r) { return r.build.has_value(); }
bool wants_evaluation(const Recipe& r) { return r.quantize && r.evaluate; }

// Opens everything once, so that what is missing or does not fit is said before hours of work.
Files run_load(RunState& state) {
  const Recipe& r = state.recipe();
  const std::string model = r.resolve(r.model.path);
  Report& report = state.report;
  report.provenance.push_back({"pare", state.options().pare_version});
  report.provenance.push_back({"instruction class", reproducibility_class(isa())});
  report.provenance.push_back({"recipe sha256", hex(sha256(state.loaded().text))});
  report.provenance.push_back({"recipe hash in the model", model_recipe_hash(r)});
  report.provenance.push_back({"model", file_name(r.model.path)});
  report.provenance.push_back({"model sha256", model_sha256(model)});
  check_inputs(state.loaded());
  if (r.evaluate && !r.evaluate->baseline.empty()) read_baseline(r.resolve(r.evaluate->baseline));
  write_file_atomically(state.folder().file("recipe.yaml"), recipe_text_in(r, state.folder().path()));
  return {"recipe.yaml"};
}

Files run_surgery(RunState& state) {
  const SimplifyReport& s = state.surgery_report();
  ReportTable table;
  table.title = "Surgery";
  table.note = fmt::format("{} nodes became {}", s.nodes_before, s.nodes_after);
  if (s.check.done)
    table.note += fmt::format("; outputs on generated inputs differ by at most {:.3g}", s.check.max_abs_diff);
  else
    table.note += "; outputs were not compared: " + s.check.why_not;
  table.columns = {"pass", "changes"};
  for (const PassReport& pass : s.passes)
    if (pass.changes > 0) table.rows.push_back({pass.name, std::to_string(pass.changes)});
  state.report.tables.push_back(std::move(table));
  return {};
}

// What the result was calibrated with. `graph_hash` may be empty: it would take reading all weights.
void say_data(Report& report, const std::string& graph_hash, const std::string& data_hash,
              std::int64_t samples) {
  if (!graph_hash.empty()) report.provenance.push_back({"graph hash", graph_hash});
  report.provenance.push_back({"calibration data hash", data_hash});
  report.provenance.push_back({"calibration samples", std::to_string(samples)});
}

Files run_calibrate(RunState& state) {
  const CalibrationSplit split = state.split();
  const std::unique_ptr<Dataset> data = state.calibration_data(split.samples);
  CalibrateOptions options;
  options.pool = &state.pool();
  options.graph_hash = state.graph_hash();
  options.progress = &state.progress();
  std::optional<quant::Spec> spec;
  if (state.recipe().quantize) spec = quant_spec(*state.recipe().quantize);
  // Methods for weights alone look at the data themselves.
  if (spec && !quant::needs_statistics(*spec)) return {};
  const std::vector<CalibratedValue> values = calibrated_values(state.graph(), spec ? &*spec : nullptr);
  const CalibrateResult result = calibrate(state.graph(), values, *data, options);
  const Statistics& statistics = result.statistics;
  for (const TensorStats& tensor : statistics.tensors) {
    const auto bad = static_cast<double>(tensor.nan + tensor.positive_inf + tensor.negative_inf);
    const double share = tensor.total == 0 ? 0 : bad / static_cast<double>(tensor.total);
    if (share > state.recipe().calibrate->max_nonfinite)
      throw make_error(ErrorCode::kBadFile,
                       "tensor '{}' held {} NaN and {} infinite values of {} in calibration", tensor.name,
                       tensor.nan, tensor.positive_inf + tensor.negative_inf, tensor.total)
          .at(data->spec().path)
          .hint("calibrate.max_nonfinite is the share that is let pass");
  }
  save_statistics(statistics, state.folder().file("statistics.h5"));
  say_data(state.report, statistics.graph_hash, statistics.data_hash.hex(), statistics.samples);
  state.report.timings.push_back({"calibrate: counting values", result.collect_seconds});
  state.report.timings.push_back({"calibrate: reading and hashing data", result.data_seconds});
  state.report.predictions.push_back({"memory of calibration", "bytes",
                                      static_cast<double>(result.predicted_rss_bytes),
                                      static_cast<double>(result.measured_rss_bytes)});
  return {"statistics.h5"};
}

// Beside model.onnx, which is judged: the same values. What does not read back so is an error.
ExportedCheckpoint write_checkpoint(RunState& state, const Checkpoint& checkpoint, Dialect dialect,
                                    QuantizeOutcome& outcome, const Graph* original) {
  const ExportSpec& spec = state.recipe().export_as;
  WriteQuantizedOptions options;
  if (spec.shard_size > 0) options.shard_bytes = spec.shard_size;
  const std::string name = dialect == Dialect::kGguf ? "model.gguf" : "checkpoint";
  const std::string path = state.folder().file(name);
  remove_tree(path);  // of a run that was killed here
  ExportedCheckpoint exported =
      export_plan(checkpoint, outcome, dialect, path, options, state.pool(), original);
  if (!exported.audit.passed())
    fail(ErrorCode::kInternal, "the checkpoint does not hold what was decided: {} {}",
         exported.audit.mismatches[0].tensor, exported.audit.mismatches[0].what);
  if (dialect == Dialect::kGguf)
    exported.written.files = {name};
  else
    for (std::string& file : exported.written.files) file = join_path(name, file);
  return exported;
}

// A checkpoint's form, if that is written.
struct Target {
  std::optional<Checkpoint> checkpoint;
  Dialect dialect = Dialect::kGguf;
  const Graph* original = nullptr;  // that blocks were cut out of
};

// Fits the choices to what its files can hold.
Target target_of(const Recipe& r, QuantizeChoices& choices) {
  Target target;
  if (!dialect_from_name(r.export_as.model, target.dialect)) return target;
  target.checkpoint = open_checkpoint(r.resolve(r.model.path));
  choose_for_checkpoint(*target.checkpoint, target.dialect, r.export_as.head, choices);
  return target;
}

}  // namespace

QuantizeChoices fitted_choices(const Recipe& recipe) {
  QuantizeChoices choices = quantize_choices(*recipe.quantize);
  target_of(recipe, choices);
  return choices;
}

namespace {

// What the last stages need of a quantization, whichever way it went.
Files write_outcome(RunState& state, QuantizeOutcome outcome, const Target& target,
                    const std::string& data_hash, const TrtCache* given);

Files run_quantize_blocks(RunState& state) {
  const Recipe& r = state.recipe();
  const BlocksSpec& spec = *r.quantize->blocks;
  BlockOptions options;
  options.inputs = spec.inputs;
  options.activations = spec.activations == "bfloat16" ? DType::kBF16 : DType::kF32;
  options.memory_bytes = spec.memory << 20;
  const CalibrationSplit split = state.split();
  const std::unique_ptr<Dataset> data = state.calibration_data(std::max(split.samples, split.holdout.end));
  BlocksInput input;
  input.graph = &state.structure();
  input.data = data.get();
  input.samples = split.samples;
  input.held_out = split.holdout;
  input.pool = &state.pool();
  input.progress = &state.progress();
  input.folder = state.folder().file("layers");
  if (is_checkpoint_form(r.export_as.model)) input.models = 2;
  make_directories(input.folder);
  remove_stale_temporaries(input.folder);
  input.message = [&](const std::string& line) {
    if (state.options().message) state.options().message(line);
    state.folder().log(line);
  };
  QuantizeChoices choices = quantize_choices(*r.quantize);
  Target target = target_of(r, choices);
  target.original = input.graph;
  BlocksOutcome blocks = quantize_blocks(input, choices, options);
  report_blocks(state.report, blocks);
  say_data(state.report, "", blocks.data_hash.hex(), blocks.samples);
  return write_outcome(state, std::move(blocks.whole), target, blocks.data_hash.hex(), nullptr);
}

Files run_quantize(RunState& state) {
  const Recipe& r = state.recipe();
  if (r.quantize->blocks) return run_quantize_blocks(state);
  QuantizeInput input;
  input.graph = &state.graph();
  input.pool = &state.pool();
  input.progress = &state.progress();
  const bool needs_statistics = quant::needs_statistics(quant_spec(*r.quantize));
  const Statistics* statistics = needs_statistics ? state.statistics() : nullptr;
  if (needs_statistics) input.given = state.given();
  if (statistics != nullptr) input.stats = statistics->tensors;
  std::unique_ptr<Dataset> calibration, held_out;
  if (r.calibrate && !r.calibrate->data.empty()) {
    const CalibrationSplit split = state.split();
    calibration = state.calibration_data(split.samples);
    input.calibration = calibration.get();
    if (split.holdout.end > split.holdout.begin) {
      held_out = state.calibration_data(split.holdout.end);
      input.held_out = held_out.get();
      input.held_out_range = split.holdout;
    }
  }
  const JournalEntry* calibrated = state.folder().find("calibrate");
  std::string base;
  if (calibrated != nullptr)
    for (const ReportArtefact& output : calibrated->outputs) base += output.sha256;
  if (r.calibrate && !r.calibrate->stats.empty()) base += sha256_of_file(r.resolve(r.calibrate->stats));
  LayerJournal journal(state.folder().file("layers"), base);
  input.journal = &journal;
  QuantizeChoices choices = quantize_choices(*r.quantize);
  const Target target = target_of(state.recipe(), choices);
  QuantizeOutcome outcome = quantize_model(input, choices);
  std::string data_hash;
  if (statistics != nullptr) {
    data_hash = statistics->data_hash.hex();
  } else if (calibration != nullptr) {  // methods that look at the data themselves
    data_hash = calibration->hash_sum(&state.pool()).hex();
    say_data(state.report, state.graph_hash(), data_hash, calibration->sample_count());
  }
  return write_outcome(state, std::move(outcome), target, data_hash, input.given);
}

Files write_outcome(RunState& state, QuantizeOutcome outcome, const Target& target,
                    const std::string& data_hash, const TrtCache* given) {
  const Recipe& r = state.recipe();
  Files files;
  std::optional<ExportedCheckpoint> checkpoint;
  if (target.checkpoint) {
    checkpoint = write_checkpoint(state, *target.checkpoint, target.dialect, outcome, target.original);
    files = checkpoint->written.files;
  }
  outcome.quantized.metadata["pare.recipe"] = model_recipe_hash(r);
  if (!data_hash.empty()) outcome.quantized.metadata["pare.data"] = data_hash;
  WriteOptions write;
  write.opset = static_cast<int>(r.export_as.opset);
  write.inline_limit = kStreamedWeights;
  // A cache, or a checkpoint, goes beside the model that it was made with.
  const bool cache = r.export_as.model == "trt_cache";
  const Exported exported = export_model(outcome, cache || target.checkpoint ? "qdq_onnx" : r.export_as.model,
                                         state.folder().file("model.onnx"), write);
  if (cache) export_model(outcome, "trt_cache", state.folder().file("calibration.cache"), write);
  const WriteReport& written = exported.written;

  Report& report = state.report;
  report_outcome(report, outcome);
  for (const std::string& note : exported.notes) report.warnings.push_back(note);
  if (given != nullptr) {
    const std::vector<std::string> unmatched = unmatched_names(*given, state.original());
    if (!unmatched.empty()) report.warnings.push_back(unmatched_sentence(unmatched, given->entries.size()));
  }
  // Of what went in and what is delivered: beside a checkpoint model.onnx is there to be judged.
  const StoredSize before = stored_size(r.resolve(r.model.path));
  const std::int64_t after =
      checkpoint ? checkpoint->weight_bytes_after : stored_size(state.folder().file("model.onnx")).bytes;
  report.sizes.push_back({"weight_bytes_before", static_cast<double>(before.bytes)});
  report.sizes.push_back({"weight_bytes_after", static_cast<double>(after)});
  if (before.parameters > 0)
    report.sizes.push_back(
        {"bits_per_weight", 8.0 * static_cast<double>(after) / static_cast<double>(before.parameters)});
  report.timings.push_back({"quantize: scoring candidates", outcome.scoring_seconds});
  report.provenance.push_back({"method", chosen_name(outcome, *r.quantize)});
  report.provenance.push_back({"opset", std::to_string(written.opset)});
  state.set_outcome(std::move(outcome));
  files.insert(files.begin(), "model.onnx");
  if (cache) files.push_back("calibration.cache");
  files.insert(files.end(), written.external.begin(), written.external.end());
  return files;
}

Files run_audit(RunState& state) {
  const std::string& form = state.recipe().export_as.model;
  const quant::AuditResult result =
      form == "qoperator"
          ? quant::audit_constants(state.outcome().source, state.outcome().plan, state.written())
          : quant::audit(state.outcome().source, state.outcome().plan, state.written());
  ReportAudit audit;
  audit.passed = result.passed();
  audit.tensors = result.tensors;
  for (const quant::Mismatch& mismatch : result.mismatches)
    audit.mismatches.push_back(mismatch.tensor + ": " + mismatch.what);
  state.report.audit = std::move(audit);
  state.drop_outcome();
  return {};
}

Files run_evaluate(RunState& state) {
  const Recipe& r = state.recipe();
  const EvaluateSpec& spec = *r.evaluate;
  Dataset data(resolved_dataset(r, spec.data), model_inputs(state.graph()));
  EvaluateOptions options;
  options.metrics = spec.metrics;
  options.batch = spec.batch;
  options.layer_samples = spec.layer_samples;
  if (spec.arithmetic == "fake") options.arithmetic = Arithmetic::kFake;
  if (spec.arithmetic == "integer") options.arithmetic = Arithmetic::kInteger;
  options.pool = &state.pool();
  options.progress = &state.progress();
  const Evaluation evaluation = evaluate(state.graph(), state.written(), data, options);
  fill_report(state.report, evaluation, spec.metrics);
  std::optional<MetricValues> baseline;
  if (!spec.baseline.empty()) baseline = read_baseline(r.resolve(spec.baseline));
  std::vector<GateResult> results;
  for (const GateSpec& gate : spec.gates) {
    for (const bool at_most : {true, false}) {
      const std::optional<double>& limit = at_most ? gate.max : gate.min;
      if (!limit) continue;
      GateLimit one;
      one.metric = gate.metric;
      one.at_most = at_most;
      one.limit = *limit;
      results.push_back(judge(one, evaluation.candidate, evaluation.reference,
                              baseline ? &*baseline : nullptr, evaluation.not_finite_candidate));
    }
  }
  fill_gates(state.report, results);
  return {};
}

}  // namespace

const std::vector<Stage>& all_stages() {
  static const std::vector<Stage> kStages = {
      {"load", "open and check model and data", always, run_load},
      {"surgery", "simplify the graph, compare its outputs", wants_surgery, run_surgery},
      {"calibrate", "collect statistics of activations", wants_calibration, run_calibrate},
      {"quantize", "choose ranges and codes, write the model", wants_quantization, run_quantize},
      {"audit", "read the model back and compare", wants_quantization, run_audit},
      {"evaluate", "judge it against the original", wants_evaluation, run_evaluate},
      {"build", "make an engine of it, time its kernels", wants_build, run_build},
  };
  return kStages;
}

}  // namespace pare
