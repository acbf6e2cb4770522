#include <memory>
#include <optional>

#include "calib/calibrate.h"
#include "cli/commands.h"
#include "cli/data_argument.h"
#include "cli/output.h"
#include "cli/quantize_report.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "eval/report_render.h"
#include "graphsurgeon/gguf/gguf_write.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/inspect.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/open_checkpoint.h"
#include "graphsurgeon/simplify.h"
#include "quant/audit.h"
#include "quant/placement/activation.h"
#include "recipes/blocks/quantize_blocks.h"
#include "recipes/checkpoint/export_checkpoint.h"
#include "recipes/export_model.h"
#include "recipes/grammar/recipe_keys.h"
#include "recipes/plan_report.h"
#include "recipes/quant_spec.h"
#include "recipes/quantize/given_scales.h"
#include "recipes/quantize/layer_journal.h"
#include "recipes/quantize/values_to_watch.h"
#include "recipes/stages.h"

namespace pare {
namespace {

constexpr std::int64_t kDefaultSamples = 512, kHoldout = 256;

class Quantize final : public Command {
 public:
  const char* name() const override { return "quantize"; }
  const char* what() const override { return "quantize a model, write it, read it back and compare"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file, or a checkpoint folder")
        .option("--format", "SCHEME", spec_.scheme, "int8, fp8, int4, nvfp4 ... (`pare ops --formats`)",
                "quantize.scheme")
        .required()
        .option("-o,--output", "OUT", output_,
                "where to write the model: a file, or the folder of a checkpoint")
        .required()
        .option("--data", "DATA", data_, "FILE:key=value,... or a YAML file with those keys",
                "calibrate.data")
        .option("--stats", "STATS.h5", stats_, "of `pare calibrate`, or a TensorRT cache", "calibrate.stats")
        .option("--samples", "N", samples_, "calibration samples (default 512)", "datasets.NAME.samples")
        .option("--method", "METHOD", spec_.method, "", "quantize.method")
        .one_of(recipe_choices("quantize.method"))
        .option("--alpha", "A", alpha_, "smoothquant: strength, 0 to 1 (default: searched)", "quantize.alpha")
        .option("--kv-cache", "FORMAT", spec_.kv_cache, "keys and values", "quantize.kv_cache")
        .one_of(recipe_choices("quantize.kv_cache"))
        .option("--rank", "N", spec_.rank, "low_rank: columns beside a weight (default 32)", "quantize.rank")
        .option("--inputs", "INPUTS", spec_.inputs, "solved for", "quantize.inputs")
        .one_of(recipe_choices("quantize.inputs"))
        .option("--objective", "WHOSE", spec_.objective, "whose errors", "quantize.objective")
        .one_of(recipe_choices("quantize.objective"))
        .option("--scaling", "METHOD", spec_.scaling, "factors a channel first", "quantize.scaling")
        .one_of(recipe_choices("quantize.scaling"))
        .flag("--rotate", spec_.rotate, "Hadamard rotations in the weights", "quantize.rotate")
        .option("--calibrator", "CALIBRATOR", spec_.activations.calibrator, "ranges by",
                "quantize.activations.calibrator")
        .one_of(recipe_choices("quantize.activations.calibrator"))
        .option("--blocks", "INPUTS", blocks_, "block by block, fed by", "quantize.blocks.inputs")
        .one_of(recipe_choices("quantize.blocks.inputs"))
        .option("--target", "TARGET", spec_.target, "", "quantize.target")
        .one_of(recipe_choices("quantize.target"))
        .option("--activation-granularity", "GRANULARITY", spec_.activations.granularity, "each",
                "quantize.activations.granularity")
        .one_of(recipe_choices("quantize.activations.granularity"))
        .option("--group-size", "N", spec_.group_size, "inputs that share a scale (default 128; int2 64)",
                "quantize.group_size")
        .flag("--asymmetric", asymmetric_, "zero points",
              "quantize.activations.symmetric, quantize.weights.symmetric")
        .words("--ops", "OP", spec_.ops, "only these operators", "quantize.ops")
        .option("--exclude", "NAME", spec_.ignore, "leave a node in float: its name, or 're:PATTERN'",
                "quantize.ignore")
        .option("--export", "FORM", export_, "", "export.model")
        .one_of(recipe_choices("export.model"), Choices::kListed, export_meant)
        .flag("--quantize-head", head_, "checkpoint formats: lm_head too", "export.head")
        .flag("--parity", parity_, "compressed_tensors: rounds as its own tools do, in bfloat16")
        .option("--shard-size", "BYTES", shard_, "checkpoint formats: largest file (default 5 GiB)",
                "export.shard_size")
        .option("--opset", "N", opset_, "ONNX opset of the result (default: the input's)", "export.opset")
        .example("pare quantize llama --format W4A16 --export compressed_tensors -o llama-w4a16");
  }

  int run(Context& context) override {
    if (shard_ < 0)
      throw make_error(ErrorCode::kUsage, "--shard-size counts bytes, and {} is below 0", shard_)
          .hint("0 or nothing: 5 GiB");
    if (!data_.empty() && !stats_.empty())
      throw make_error(ErrorCode::kUsage, "--data and --stats contradict each other")
          .hint("keep one of them");
    if (alpha_ >= 0) spec_.alpha = alpha_;
    if (alpha_ > 1 || spec_.rank < 1)
      throw make_error(ErrorCode::kUsage, "{}",
                       alpha_ > 1 ? "--alpha is a number from 0 to 1" : "--rank is at least 1")
          .hint("the default of both suits most models: leave them out");
    if (gguf_written_type(spec_.scheme) != nullptr) {
      if (export_ == "gguf") return as_ggml(context);
      throw make_error(ErrorCode::kUsage, "'{}' is a type of GGUF files alone", spec_.scheme)
          .at("--format")
          .hint("add --export gguf; `pare ops --formats` lists the schemes of the others");
    }
    const quant::Scheme& scheme = quant::scheme_from_name(spec_.scheme);
    // Whoever writes nvfp4 and means NVFP4 would be surprised by float inputs.
    if (const std::string both = quant::same_letters(scheme); !both.empty() && !scheme.activations.active())
      context.message(both);
    // Zero points are for activations; for weights where these are all that is quantized.
    if (asymmetric_) {
      const quant::Format& a = scheme.activations;
      (a.active() ? spec_.activations.symmetric : spec_.weights.symmetric) = false;
    }
    QuantizeChoices choices = quantize_choices(spec_);
    try {
      check_export(export_, choices.spec);
    } catch (Error& error) {
      throw error.at("--export");
    }
    check_form();
    if (is_checkpoint_form(export_)) {
      const int code = as_checkpoint(context, choices);
      if (code >= 0) return code;
    }
    const bool needs_statistics = quant::needs_statistics(choices.spec);
    if (needs_statistics && data_.empty() && stats_.empty())
      throw make_error(ErrorCode::kUsage, "{} quantizes activations, and there is no calibration data",
                       choices.spec.kv_cache.active() ? "--kv-cache" : "scheme '" + spec_.scheme + "'")
          .hint("give --data or --stats, or " + weights_alone());

    if (!blocks_.empty() && data_.empty())
      throw make_error(ErrorCode::kUsage, "--blocks needs samples to feed the blocks with")
          .hint("give --data");
    check_output(output_, {path_, stats_, data_.empty() ? "" : data_argument(data_, path_).path});
    if (!blocks_.empty()) return run_blocks(context, choices);
    std::vector<std::string> odd;
    Graph graph = load_model(path_, &odd);
    for (const std::string& text : odd) context.warn(text);
    TrtCache cache;
    const bool given = needs_statistics && !stats_.empty() && is_trt_cache(stats_);
    if (given) {
      cache = load_trt_cache(stats_);
      unmatched_ = unmatched_names(cache, graph);
      if (!unmatched_.empty()) context.warn(unmatched_sentence(unmatched_, cache.entries.size()));
    }
    SimplifyOptions simplify_options;
    simplify_options.pool = &context.pool();
    simplify(graph, simplify_options);
    QuantizeInput input;
    input.graph = &graph;
    input.pool = &context.pool();
    input.progress = &context.progress();
    std::unique_ptr<Dataset> calibration, held_out;
    Statistics statistics;
    if (given)
      input.given = &cache;
    else if (!data_.empty())
      statistics = collect(context, graph, choices, input, calibration, held_out);
    else if (needs_statistics)
      refuse_stale(statistics = load_statistics(stats_), hex(graph_hash(graph)), stats_);
    input.stats = statistics.tensors;
    const std::unique_ptr<LayerJournal> journal = LayerJournal::temporary(output_);
    input.journal = journal.get();
    QuantizeOutcome outcome = quantize_model(input, choices);
    std::string data_hash;
    if (statistics.samples > 0)
      data_hash = statistics.data_hash.hex();
    else if (calibration != nullptr)
      data_hash = calibration->hash_sum(&context.pool()).hex();
    return write(context, std::move(outcome), data_hash);
  }

 private:
  // A checkpoint becomes a folder by an --export, or an ONNX file; which of the two must be said.
  void check_form() const {
    if (is_checkpoint_form(export_) || !path_exists(path_) || file_extension(output_) == ".onnx") return;
    const ModelKind kind = model_kind(path_);
    if (kind != ModelKind::kCheckpoint && kind != ModelKind::kGguf) return;
    throw make_error(ErrorCode::kUsage,
                     "'{}' would be an ONNX file, since --export says no form of a checkpoint", output_)
        .at("-o " + output_)
        .hint(fmt::format(
            "--export compressed_tensors writes a folder that vLLM reads (or {}); for ONNX: -o {}.onnx",
            checkpoint_forms(), output_));
  }

  // The scheme with the same weights that leaves activations float.
  std::string weights_alone() const {
    const quant::Format& weights = quant::scheme_from_name(spec_.scheme).weights;
    const bool preset = spec_.scheme[0] >= 'A' && spec_.scheme[0] <= 'Z';  // compressed-tensors' names
    for (const quant::Scheme& scheme : quant::schemes())
      if (!scheme.activations.active() && preset == (scheme.name[0] >= 'A' && scheme.name[0] <= 'Z') &&
          quant::to_string(scheme.weights) == quant::to_string(weights))
        return fmt::format("take '{}': the same weights, activations stay float", scheme.name);
    return "a scheme for weights alone (pare ops --formats)";
  }

  // `structure`: the checkpoint's graph that blocks were cut out of.
  int write(Context& context, QuantizeOutcome outcome, const std::string& data_hash,
            const Graph* structure = nullptr) {
    if (checkpoint_) return write_checkpoint(context, outcome, structure);
    if (!data_hash.empty()) outcome.quantized.metadata["pare.data"] = data_hash;
    WriteOptions write;
    write.opset = static_cast<int>(opset_);
    write.inline_limit = kStreamedWeights;
    const Exported exported = export_model(outcome, export_, output_, write);
    for (const std::string& note : exported.notes) context.warn(note);
    const quant::AuditResult audit = audit_export(outcome, export_, output_);
    report(context, outcome, audit);
    return audit.passed() ? 0 : 1;
  }

  int run_blocks(Context& context, const QuantizeChoices& choices) {
    Graph graph = load_structure(path_);
    const ModelKind kind = model_kind(path_);
    SimplifyOptions simplify_options;
    simplify_options.pool = &context.pool();
    // Those of a checkpoint are views; computing them would read it all.
    if (kind != ModelKind::kCheckpoint && kind != ModelKind::kGguf) simplify(graph, simplify_options);
    CalibrationSplit split;
    const std::unique_ptr<Dataset> data = open_data(graph, choices, split);
    const std::unique_ptr<LayerJournal> journal = LayerJournal::temporary(output_);
    BlocksInput input;
    input.graph = &graph;
    input.data = data.get();
    input.samples = split.samples;
    input.held_out = split.holdout;
    input.pool = &context.pool();
    input.progress = &context.progress();
    input.folder = journal->folder();
    input.temporary = true;
    input.message = [&](const std::string& line) { context.message(line); };
    BlockOptions options;
    options.inputs = blocks_;
    BlocksOutcome blocks = quantize_blocks(input, choices, options);
    Report table;
    report_blocks(table, blocks);
    for (const std::vector<std::string>& row : table.tables.at(0).rows)
      context.print(
          fmt::format("{:<24} {:>3} layers  {:>8} dB  {:>8} s", row.at(0), row.at(1), row.at(2), row.at(4)));
    return write(context, std::move(blocks.whole), blocks.data_hash.hex(), &graph);
  }

  // Calibration samples and, behind them, those for scoring.
  std::unique_ptr<Dataset> open_data(const Graph& graph, const QuantizeChoices& choices,
                                     CalibrationSplit& split) const {
    DatasetSpec spec = data_argument(data_, path_);
    const std::int64_t wanted = samples_ > 0 ? samples_ : spec.samples > 0 ? spec.samples : kDefaultSamples;
    const bool scored = choices.calibrator == "auto" || choices.spec.method == "auto";
    const std::int64_t holdout = held_out_samples(spec, kHoldout);
    spec.samples = wanted + (scored ? holdout : 0);
    auto data = std::make_unique<Dataset>(spec, model_inputs(graph));
    split.samples = std::min(wanted, data->sample_count());
    if (scored && data->fixed_batch() <= 1) split = split_calibration(data->sample_count(), wanted, holdout);
    return data;
  }

  // Statistics of the first samples (none where activations stay float); those behind them are held out for
  // scoring.
  Statistics collect(Context& context, const Graph& graph, const QuantizeChoices& choices,
                     QuantizeInput& input, std::unique_ptr<Dataset>& calibration,
                     std::unique_ptr<Dataset>& held_out) const {
    CalibrationSplit split;
    held_out = open_data(graph, choices, split);
    DatasetSpec spec = data_argument(data_, path_);
    spec.samples = split.samples;
    calibration = std::make_unique<Dataset>(spec, model_inputs(graph));
    input.calibration = calibration.get();
    input.held_out = held_out.get();
    input.held_out_range = split.holdout;
    CalibrateOptions options;
    options.pool = &context.pool();
    options.graph_hash = hex(graph_hash(graph));
    options.progress = &context.progress();
    const std::vector<CalibratedValue> values = calibrated_values(graph, &choices.spec);
    return values.empty() ? Statistics() : calibrate(graph, values, *calibration, options).statistics;
  }

  Dialect dialect() const {
    Dialect dialect = Dialect::kCompressedTensors;
    dialect_from_name(export_, dialect);
    return dialect;
  }

  void open_source() {
    if (!path_exists(path_))
      throw make_error(ErrorCode::kBadFile, "there is no '{}'", path_)
          .hint("a checkpoint folder is needed: config.json and *.safetensors");
    if (!is_directory(path_)) {
      const std::string folder = parent_path(path_);
      throw make_error(ErrorCode::kUsage, "{} is made of a checkpoint folder, and '{}' is none", export_,
                       path_)
          .at(path_)
          .hint(
              path_exists(join_path(folder, "config.json")) ? fmt::format("name the folder: {}", folder)
              : model_kind(path_) == ModelKind::kGguf
                  ? "a GGUF file becomes an ONNX model (-o OUT.onnx); checkpoints are made of the folder "
                    "that "
                    "it was made from"
                  : "of an ONNX model: --export qdq_onnx (the default), trt_onnx, matmul_nbits or qoperator");
    }
    if (dialect() == Dialect::kGguf)
      check_output(output_, {path_});
    else
      check_checkpoint_output(output_);
    checkpoint_ = open_checkpoint(path_);
  }

  // ggml's own rounding to one of its types.
  int as_ggml(Context& context) {
    open_source();
    const GgmlType& type = *gguf_written_type(spec_.scheme);
    context.document()["method"] = "rtn";
    return finish_checkpoint(context, export_gguf(*checkpoint_, nullptr, type.name, output_, context.pool()));
  }

  ExportedCheckpoint write_layers(Context& context, const QuantizedSource& source) const {
    if (dialect() == Dialect::kGguf)
      return export_gguf(*checkpoint_, &source, "F16", output_, context.pool());
    return export_checkpoint(*checkpoint_, source, dialect(), output_, shards());
  }

  // Without activations to look at, tensor by tensor; else (-1) checkpoint_ is set and `choices` are those of
  // the dialect.
  int as_checkpoint(Context& context, QuantizeChoices& choices) {
    open_source();
    choose_for_checkpoint(*checkpoint_, dialect(), head_, choices);
    if (!data_.empty() || !can_stream(choices.spec)) {
      if (parity_)
        throw make_error(ErrorCode::kUsage, "--parity is for plain rounding, without --data")
            .hint("leave out --parity, or --data");
      return -1;
    }
    keep_freed_memory();  // layer after layer, of few sizes
    StreamOptions options;
    options.dialect = dialect();
    options.quantize_head = head_;
    options.parity = parity_;
    options.pool = &context.pool();
    std::vector<LeftFloat> left;
    const std::unique_ptr<QuantizedSource> source = stream_source(*checkpoint_, choices.spec, options, &left);
    const ExportedCheckpoint exported = write_layers(context, *source);
    Json& json = context.document();
    json["quantized"] = Json::array();
    for (const LinearFormat& layer : source->model().layers)
      json["quantized"].push_back({{"tensor", layer.module + ".weight"},
                                   {"format", to_string(layer.weights)},
                                   {"scales", row_groups(layer) * column_groups(layer)}});
    json["skipped"] = Json::array();
    for (const LeftFloat& one : left) json["skipped"].push_back({{"tensor", one.module}, {"why", one.why}});
    context.print(fmt::format("{} layers quantized ({}{}), {} left in float", source->model().layers.size(),
                              choices.spec.method == "rtn" || parity_ ? "rtn" : "search",
                              choices.spec.activations.active() ? "" : ", inputs float", left.size()));
    json["method"] = choices.spec.method == "rtn" || parity_ ? "rtn" : "search";
    return finish_checkpoint(context, exported);
  }

  int write_checkpoint(Context& context, QuantizeOutcome& outcome, const Graph* structure) {
    const ExportedCheckpoint exported =
        export_plan(*checkpoint_, outcome, dialect(), output_, shards(), context.pool(), structure);
    report_quantized(context, outcome, chosen_name(outcome, spec_));
    return finish_checkpoint(context, exported);
  }

  WriteQuantizedOptions shards() const {
    WriteQuantizedOptions options;
    if (shard_ > 0) options.shard_bytes = shard_;
    return options;
  }

  int finish_checkpoint(Context& context, const ExportedCheckpoint& exported) const {
    Json& json = context.document();
    json["output"] = output_;
    json["scheme"] = spec_.scheme;
    json["files"] = exported.written.files;
    report_sizes(context, exported.weight_bytes_before, exported.weight_bytes_after, exported.parameters);
    report_audit(context, exported.audit);
    context.print(fmt::format("wrote {} ({} file{})", output_, exported.written.files.size(),
                              exported.written.files.size() == 1 ? "" : "s"));
    return exported.audit.passed() ? 0 : 1;
  }

  void report(Context& context, const QuantizeOutcome& outcome, const quant::AuditResult& audit) const {
    const StoredSize before = stored_size(path_);
    const StoredSize after = export_ == "trt_cache" ? before : stored_size(output_);
    double error = 0, elements = 0;
    for (const quant::WeightPlan& weight : outcome.plan.weights) {
      error += weight.mse * static_cast<double>(weight.codes.size());
      elements += static_cast<double>(weight.codes.size());
    }
    Json& json = context.document();
    json["output"] = output_;
    if (!unmatched_.empty()) json["cache_unmatched"] = unmatched_;
    json["scheme"] = spec_.scheme;
    json["weight_mse"] = json_number(elements == 0 ? 0 : error / elements);
    report_quantized(context, outcome, chosen_name(outcome, spec_));
    report_sizes(context, before.bytes, after.bytes, before.parameters);
    report_audit(context, audit);
    context.print(fmt::format("wrote {}", output_));
  }

  std::string path_, output_, data_, stats_, blocks_, export_ = "qdq_onnx";
  std::int64_t samples_ = 0, opset_ = 0;
  double alpha_ = -1;
  bool asymmetric_ = false, head_ = false, parity_ = false;
  std::int64_t shard_ = 0;
  std::optional<Checkpoint> checkpoint_;  // set when a checkpoint format is written
  std::vector<std::string> unmatched_;    // names of the calibration cache
  QuantizeSpec spec_;
};

}  // namespace

std::unique_ptr<Command> make_quantize() { return std::make_unique<Quantize>(); }

}  // namespace pare
