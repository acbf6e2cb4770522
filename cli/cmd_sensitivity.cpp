// `pare sensitivity`, `pare search`, `pare bisect`: which layers hurt, which format each should have, which
// are to blame.
#include <algorithm>
#include <memory>

#include "calib/calibrate.h"
#include "cli/commands.h"
#include "cli/data_argument.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/placement/activation.h"
#include "recipes/grammar/recipe_keys.h"
#include "recipes/plan_report.h"
#include "recipes/study/bisect.h"
#include "recipes/study/sensitivity.h"

namespace pare {
namespace {

// What both ask for, and the samples that they look at.
class LayerStudy : public Command {
 protected:
  void declare_common(Args& args) {
    args.positional("MODEL", path_, "ONNX file")
        .option("--data", "DATA", data_, kDataHelp, "calibrate.data")
        .required()
        .option("--samples", "N", samples_, "calibration samples")
        .option("--judge-samples", "N", judged_, "samples behind them, or of --judge-data, to judge on")
        .option("--judge-data", "DATA", judge_data_, "judge on other data, with labels for top1")
        .option("--metric", "METRIC", metric_, "what counts")
        .option("--target", "TARGET", spec_.target, "whose fusions count", "quantize.target")
        .one_of(recipe_choices("quantize.target"))
        .option("--ops", "OP", spec_.ops, "only these operators", "quantize.ops")
        .option("--exclude", "NAME", spec_.ignore, "leave a node in float: its name, or 're:PATTERN'",
                "quantize.ignore");
  }

  // Fills `input`; `specs` are all that will be tried.
  void prepare(Context& context, const std::vector<quant::Spec>& specs, SensitivityInput& input) {
    graph_ = load_model(path_);
    SimplifyOptions simplify_options;
    simplify_options.pool = &context.pool();
    simplify(graph_, simplify_options);
    DatasetSpec calibration = data_argument(data_, path_);
    calibration.samples = samples_;
    bool statistics = false;
    for (const quant::Spec& spec : specs) statistics = statistics || quant::needs_statistics(spec);
    if (statistics) {
      Dataset samples(calibration, model_inputs(graph_));
      CalibrateOptions options;
      options.pool = &context.pool();
      options.progress = &context.progress();
      options.graph_hash = hex(graph_hash(graph_));
      std::vector<CalibratedValue> values;
      for (const quant::Spec& spec : specs)
        for (const CalibratedValue& value : calibrated_values(graph_, &spec))
          if (std::none_of(values.begin(), values.end(), [&](const CalibratedValue& seen) {
                return seen.id == value.id && seen.path == value.path;
              }))
            values.push_back(value);
      input.stats = calibrate(graph_, values, samples, options).statistics.tensors;
    }
    DatasetSpec judged = data_argument(judge_data_.empty() ? data_ : judge_data_, path_);
    if (judge_data_.empty()) judged.skip += samples_;
    judged.samples = judged_;
    data_set_ = std::make_unique<Dataset>(judged, model_inputs(graph_));
    input.graph = &graph_;
    input.data = data_set_.get();
    input.pool = &context.pool();
    input.progress = &context.progress();
    input.metric = metric_;
  }

  QuantizeSpec spec_;
  std::string metric_ = "output_sqnr_db";

 private:
  std::string path_, data_, judge_data_;
  std::int64_t samples_ = 256, judged_ = 64;
  Graph graph_;
  std::unique_ptr<Dataset> data_set_;
};

class Sensitivity final : public LayerStudy {
 public:
  const char* name() const override { return "sensitivity"; }
  const char* what() const override { return "which layers hurt: the model quantized layer by layer"; }

  void declare(Args& args) override {
    declare_common(args);
    args.option("--format", "SCHEME", spec_.scheme, "`pare ops --formats` lists them", "quantize.scheme")
        .required()
        .flag("--all-but-one", all_but_one_, "quantize everything but one layer instead")
        .example(
            "pare sensitivity resnet.onnx --format int8 --data "
            "\"images.npy:layout=nhwc_to_nchw,scale=1/255\"");
  }

  int run(Context& context) override {
    SensitivityOptions options;
    options.choices = quantize_choices(spec_);
    options.all_but_one = all_but_one_;
    SensitivityInput input;
    prepare(context, {options.choices.spec}, input);
    const std::vector<LayerSensitivity> rows = measure_sensitivity(input, options);
    Json layers = Json::array();
    for (const LayerSensitivity& row : rows) {
      context.print(fmt::format("{:<40} {}  {} {:.5g}  drop {:.4g}  {:.2f} dB", row.name, row.format, metric_,
                                row.metric, row.drop, row.sqnr_db));
      layers.push_back({{"name", row.name},
                        {"format", row.format},
                        {"metric", json_number(row.metric)},
                        {"drop", json_number(row.drop)},
                        {"sqnr_db", json_number(row.sqnr_db)}});
    }
    Json& json = context.document();
    json["metric"] = metric_;
    json["samples"] = input.data->sample_count();
    json["layers"] = std::move(layers);
    return 0;
  }

 private:
  bool all_but_one_ = false;
};

class Search final : public LayerStudy {
 public:
  const char* name() const override { return "search"; }
  const char* what() const override { return "a format for each layer: fewest bits that keep the metric"; }

  void declare(Args& args) override {
    declare_common(args);
    args.option("--formats", "SCHEME", schemes_, "schemes to choose from; float leaves a layer alone")
        .required()
        .option("--least", "X", least_, "the metric's value that must be kept")
        .option("--points", "N", points_, "of the front that are measured")
        .flag("--by-latency", by_latency_, "choose the fastest on this CPU instead of the fewest bits")
        .example("pare search vit.onnx --formats float --formats int8 --data images.npy --least 35");
  }

  int run(Context& context) override {
    SearchOptions options;
    options.schemes = schemes_;
    options.least = least_;
    options.points = static_cast<int>(points_);
    options.by_latency = by_latency_;
    std::vector<quant::Spec> specs;
    for (const std::string& scheme : schemes_) {
      if (scheme == "float") continue;
      QuantizeSpec one = spec_;
      one.scheme = scheme;
      options.choices = quantize_choices(one);
      specs.push_back(options.choices.spec);
    }
    if (specs.empty())
      throw make_error(ErrorCode::kUsage, "there is no scheme to choose beside float").at("--formats");
    SensitivityInput input;
    prepare(context, specs, input);
    const SearchResult result = search_formats(input, options);
    Json front = Json::array(), chosen = Json::array(), metrics = Json::object();
    double cost = 0;
    for (const SearchPoint& point : result.front) {
      const std::string time = by_latency_ ? fmt::format("  {:.3f} ms", point.latency_ms) : "";
      context.print(fmt::format("{} {:6.3f} bits a weight  {} {:.5g}  {:.2f} dB{}", point.chosen ? '*' : ' ',
                                point.bits_per_weight, metric_, point.metric, point.sqnr_db, time));
      front.push_back({{"metric", json_number(point.metric)},
                       {"sqnr_db", json_number(point.sqnr_db)},
                       {"bits_per_weight", point.bits_per_weight},
                       {"latency_ms", by_latency_ ? Json(point.latency_ms) : Json()},
                       {"chosen", point.chosen}});
      if (!point.chosen) continue;
      cost = by_latency_ ? point.latency_ms : point.bits_per_weight;
      metrics[metric_] = json_number(point.metric);
      for (const SearchChoice& layer : point.layers)
        chosen.push_back({{"name", layer.name}, {"format", layer.format}});
    }
    for (const SearchPoint& point : result.front)
      if (point.chosen)
        for (const SearchChoice& layer : point.layers)
          context.print(fmt::format("  {:<40} {}", layer.name, layer.format));
    Json& json = context.document();
    json["samples"] = input.data->sample_count();
    json["chosen"] = std::move(chosen);
    json["metrics"] = std::move(metrics);
    json["cost"] = cost;
    json["front"] = std::move(front);
    return 0;
  }

 private:
  std::vector<std::string> schemes_;
  double least_ = 30;
  std::int64_t points_ = 8;
  bool by_latency_ = false;
};

class Bisect final : public LayerStudy {
 public:
  const char* name() const override { return "bisect"; }
  const char* what() const override { return "which layers are to blame when a quantized model fails"; }

  void declare(Args& args) override {
    declare_common(args);
    args.option("--format", "SCHEME", spec_.scheme, "`pare ops --formats` lists them", "quantize.scheme")
        .required()
        .option("--least", "X", least_, "the metric's value that the model should have")
        .option("--most", "N", most_, "layers to name before giving up")
        .example("pare bisect vit.onnx --format int8 --data images.npy --least 40");
  }

  int run(Context& context) override {
    BisectOptions options;
    options.choices = quantize_choices(spec_);
    options.least = least_;
    options.most = static_cast<int>(most_);
    SensitivityInput input;
    prepare(context, {options.choices.spec}, input);
    const LayerBisection found = bisect_layers(input, options);
    context.print(
        fmt::format("every layer quantized: {} {:.5g}  {:.2f} dB", metric_, found.quantized, found.sqnr_db));
    Json layers = Json::array();
    std::string flags;
    for (const BlamedLayer& layer : found.layers) {
      context.print(fmt::format("  and {} float: {:.5g}  {:.2f} dB  (was {})", layer.name, layer.metric,
                                layer.sqnr_db, layer.format));
      flags += " --exclude '" + layer.rule_name + "'";
      layers.push_back({{"name", layer.name},
                        {"format", layer.format},
                        {"metric", json_number(layer.metric)},
                        {"sqnr_db", json_number(layer.sqnr_db)}});
    }
    if (found.layers.empty())
      context.print(fmt::format("nothing to blame: {} is kept at {:.5g}", metric_, least_));
    else if (found.reached)
      context.print(fmt::format("kept at {:.5g} with{}", least_, flags));
    else
      context.print(
          fmt::format("still below {:.5g}: --most names more layers; `pare search` mixes formats", least_));
    Json& json = context.document();
    json["metric"] = metric_;
    json["samples"] = input.data->sample_count();
    json["quantized"] = {{"metric", json_number(found.quantized)}, {"sqnr_db", json_number(found.sqnr_db)}};
    json["reached"] = found.reached;
    json["candidates"] = found.candidates;
    json["layers"] = std::move(layers);
    return 0;
  }

 private:
  double least_ = 30;
  std::int64_t most_ = 16;
};

}  // namespace

std::unique_ptr<Command> make_sensitivity() { return std::make_unique<Sensitivity>(); }
std::unique_ptr<Command> make_search() { return std::make_unique<Search>(); }
std::unique_ptr<Command> make_bisect() { return std::make_unique<Bisect>(); }

}  // namespace pare
