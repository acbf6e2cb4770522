#include <algorithm>
#include <chrono>

#include "cli/commands.h"
#include "cli/data_argument.h"
#include "cli/engine_run.h"
#include "cli/summary.h"
#include "cli/version.h"
#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "eval/evaluate.h"
#include "eval/metric_table.h"
#include "eval/report_render.h"
#include "graphsurgeon/load.h"
#include "recipes/grammar/recipe_keys.h"
#include "recipes/report_files.h"

namespace pare {
namespace {

class Eval final : public Command {
 public:
  const char* name() const override { return "eval"; }
  const char* what() const override { return "how good a model is, and how far from its reference"; }

  void declare(Args& args) override {
    args.positional("CANDIDATE", candidate_, "ONNX file or checkpoint folder that is judged")
        .option("--data", "DATA", data_, kDataHelp, "evaluate.data")
        .required()
        .option("--reference", "MODEL", reference_, "the original, for comparisons and drops", "model.path")
        .words("--metric", "METRIC", metrics_,
               "top1, top5, cer (labels); perplexity, kl, token_agreement, embedding_cosine (text); "
               "top1_agreement, "
               "box_agreement, frame_agreement, output_sqnr_db, "
               "output_cosine, max_abs, clipping_rate (reference)",
               "evaluate.metrics")
        .option("--gate", "GATE", gates_, "\"top1_drop<=0.005\"; one that fails gives exit code 1",
                "evaluate.gates")
        .option("--baseline", "REPORT", baseline_, "report.json that drops are measured from",
                "evaluate.baseline")
        .option("--samples", "N", samples_, "only the first N (default: all)", "datasets.NAME.samples")
        .option("--layer-samples", "N", layer_samples_, "samples for figures by layer",
                "evaluate.layer_samples")
        .option("--arithmetic", "KIND", arithmetic_, "fake quantization, integer kernels or both",
                "evaluate.arithmetic")
        .one_of(recipe_choices("evaluate.arithmetic"))
        .option("--report", "DIR", report_, "write report.json, .html, .md and junit.xml there")
        .example("pare eval int8.onnx --reference resnet.onnx --gate \"top1_drop<=0.005\" \\")
        .example("    --data \"test.npy:labels=labels.npy,layout=nhwc_to_nchw,scale=1/255\"");
  }

  int run(Context& context) override {
    const auto start = std::chrono::steady_clock::now();
    std::vector<GateLimit> gates;
    for (const std::string& text : gates_) {
      gates.push_back(parse_gate(text));
      check_gate(gates.back(), !reference_.empty(), !baseline_.empty());
    }
    EvaluateOptions options;
    options.layer_samples = layer_samples_;
    options.arithmetic = arithmetic();
    options.pool = &context.pool();
    options.progress = &context.progress();
    const Graph candidate = load_model(candidate_);
    DatasetSpec spec =
        data_argument(data_, reference_.empty() || is_directory(candidate_) ? candidate_ : reference_);
    if (samples_ > 0) spec.samples = samples_;
    Dataset data(spec, model_inputs(candidate));
    options.metrics = metrics_.empty() ? default_metrics(data) : metrics_;
    for (const GateLimit& gate : gates) {
      const std::string name = parse_gate_metric(gate.metric).metric->name;
      if (std::find(options.metrics.begin(), options.metrics.end(), name) == options.metrics.end())
        options.metrics.push_back(name);
    }
    std::optional<MetricValues> baseline;
    if (!baseline_.empty()) baseline = read_baseline(baseline_);

    Report report;
    report.title = file_name(candidate_);
    report.command = "eval";
    Evaluation evaluation;
    const DeviceSessions sessions(context);
    if (reference_.empty()) {
      evaluation.candidate = evaluate_alone(candidate, data, options);
      evaluation.samples = data.sample_count();
    } else {
      evaluation = evaluate(load_model(reference_), candidate, data, options);
    }
    fill_report(report, evaluation, options.metrics);
    std::vector<GateResult> results;
    for (const GateLimit& gate : gates)
      results.push_back(judge(gate, evaluation.candidate, evaluation.reference,
                              baseline ? &*baseline : nullptr, evaluation.not_finite_candidate));
    fill_gates(report, results);
    report.verdict = verdict_text(report);
    report.provenance = {{"candidate", model_sha256(candidate_)}, {"isa", pare::name(isa())}};
    if (!reference_.empty())
      report.provenance.insert(report.provenance.begin(), {"reference", model_sha256(reference_)});
    for (const std::string& warning : report.warnings) context.warn(warning);

    print_summary(context, report);
    if (!report_.empty()) {
      make_directories(report_);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      write_reports(report, report_, {"html", "markdown", "junit"}, version(), seconds);
      context.print(fmt::format("reports: {}", join_path(report_, "report.html")));
    }
    context.document() = report_to_json(report);
    sessions.report(context);
    return report.passed() ? 0 : 1;
  }

 private:
  Arithmetic arithmetic() const {
    if (arithmetic_ == "both") return Arithmetic::kBoth;
    if (arithmetic_ == "fake") return Arithmetic::kFake;
    if (arithmetic_ == "integer") return Arithmetic::kInteger;
    throw make_error(ErrorCode::kUsage, "'{}' is no arithmetic", arithmetic_)
        .at("--arithmetic")
        .hint("both, fake or integer");
  }
  std::vector<std::string> default_metrics(const Dataset& data) const {
    std::vector<std::string> metrics;
    if (data.has_tokens()) {
      metrics.push_back("perplexity");
      if (!reference_.empty()) metrics.insert(metrics.end(), {"kl", "token_agreement"});
    }
    if (data.has_labels()) metrics.push_back("top1");
    if (data.has_texts() && !data.spec().alphabet.empty()) metrics.push_back("cer");
    if (!reference_.empty())
      for (const char* metric : {"output_sqnr_db", "output_cosine", "max_abs", "clipping_rate"})
        metrics.push_back(metric);
    if (metrics.empty())
      throw make_error(ErrorCode::kUsage,
                       "nothing to compute: the data has no labels and there is no --reference")
          .hint("add labels=FILE to --data, or --reference MODEL");
    return metrics;
  }

  std::string candidate_, reference_, data_, baseline_, report_, arithmetic_ = "both";
  std::vector<std::string> metrics_, gates_;
  std::int64_t samples_ = 0, layer_samples_ = 256;
};

}  // namespace

std::unique_ptr<Command> make_eval() { return std::make_unique<Eval>(); }

}  // namespace pare
