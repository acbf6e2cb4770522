#include "calib/calibrate.h"
#include "cli/commands.h"
#include "cli/data_argument.h"
#include "cli/engine_run.h"
#include "cli/output.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "recipes/quantize/values_to_watch.h"

namespace pare {
namespace {

class Calibrate final : public Command {
 public:
  const char* name() const override { return "calibrate"; }
  const char* what() const override {
    return "run data through a model and keep what its activations look like";
  }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file")
        .option("--data", "DATA", data_, kDataHelp, "calibrate.data")
        .required()
        .option("-o,--output", "STATS.h5", output_, "where to write the statistics")
        .required()
        .option("--samples", "N", samples_, "only the first N (default: all)", "datasets.NAME.samples")
        .option("--batch", "N", batch_, "samples at a time; the result does not depend on it",
                "datasets.NAME.batch")
        .flag("--per-channel", per_channel_, "a histogram for each channel as well, for granularity: channel")
        .flag("--as-is", as_is_, "do not simplify the graph first", "surgery")
        .example("pare calibrate resnet.onnx --samples 512 -o stats.h5 \\")
        .example("    --data \"images.npy:layout=nhwc_to_nchw,scale=1/255,mean=0.286,std=0.353\"");
  }

  int run(Context& context) override {
    DatasetSpec spec = data_argument(data_, path_);
    check_output(output_, {path_, spec.path});
    Graph graph = load_model(path_);
    if (!as_is_) {
      SimplifyOptions simplify_options;
      simplify_options.pool = &context.pool();
      simplify(graph, simplify_options);
    }
    if (samples_ > 0) spec.samples = samples_;
    if (batch_ > 0) spec.batch = batch_;
    Dataset data(spec, model_inputs(graph));
    CalibrateOptions options;
    options.pool = &context.pool();
    options.graph_hash = hex(graph_hash(graph));
    options.progress = &context.progress();
    const DeviceSessions sessions(context);
    const CalibrateResult result =
        calibrate(graph, calibrated_values(graph, nullptr, per_channel_), data, options);
    sessions.report(context);
    save_statistics(result.statistics, output_);
    report(context, result);
    return 0;
  }

 private:
  void report(Context& context, const CalibrateResult& result) const {
    const Statistics& s = result.statistics;
    if (s.nan_count() + s.inf_count() > 0)
      context.warn(fmt::format(
          "activations held {} NaN and {} infinite values: `pare stats show {}` names the tensors",
          s.nan_count(), s.inf_count(), output_));
    std::int64_t unseen = 0;
    std::string first;
    for (const TensorStats& tensor : s.tensors) {
      if (tensor.seen()) continue;
      if (++unseen == 1) first = tensor.name;
    }
    if (unseen > 0)
      context.warn(fmt::format(
          "{} of {} tensors were never computed, the first is '{}': the data did not take their branch, and "
          "they cannot be quantized",
          unseen, s.tensors.size(), first));
    Json& json = context.document();
    json["stats"] = output_;
    json["samples"] = s.samples;
    json["batches"] = result.batches;
    json["tensors"] = s.tensors.size();
    json["values"] = result.values;
    json["data_hash"] = s.data_hash.hex();
    json["graph_hash"] = s.graph_hash;
    json["nan"] = s.nan_count();
    json["inf"] = s.inf_count();
    json["predicted_rss_bytes"] = result.predicted_rss_bytes;
    json["measured_rss_bytes"] = result.measured_rss_bytes;
    json["data_seconds"] = result.data_seconds;
    json["collect_seconds"] = result.collect_seconds;
    context.print(fmt::format("{} samples, {} tensors, {} values in {:.2f} s ({:.2f} s of it counting)",
                              s.samples, s.tensors.size(), result.values, result.seconds,
                              result.collect_seconds));
    context.print(fmt::format("memory: {} predicted, {} measured",
                              bytes_text(static_cast<double>(result.predicted_rss_bytes)),
                              bytes_text(static_cast<double>(result.measured_rss_bytes))));
    context.print(fmt::format("wrote {}", output_));
  }

  std::string path_, data_, output_;
  std::int64_t samples_ = 0, batch_ = 0;
  bool as_is_ = false, per_channel_ = false;
};

}  // namespace

std::unique_ptr<Command> make_calibrate() { return std::make_unique<Calibrate>(); }

}  // namespace pare
