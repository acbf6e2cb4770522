#include "cli/commands.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "graphsurgeon/load.h"
#include "recipes/report_files.h"
#include "recipes/study/explain.h"

namespace pare {
namespace {

Json input_json(const ExplainedInput& in) {
  Json json = {{"slot", in.slot}, {"tensor", in.tensor}, {"quantized", in.quantized.has_value()}};
  if (!in.quantized) {
    json["why"] = in.why_float;
    return json;
  }
  const ReportQuantized& q = *in.quantized;
  json["kind"] = q.kind;
  json["format"] = q.format;
  json["granularity"] = q.granularity;
  json["scales"] = q.scales;
  if (q.kind == "activation") {
    json["rule"] = q.rule;
    json["method"] = q.method;
    json["low"] = json_number(q.low);
    json["high"] = json_number(q.high);
    if (in.seen) {
      json["least"] = json_number(in.seen->least);
      json["largest"] = json_number(in.seen->largest);
      json["total"] = in.seen->total;
    }
    if (q.clipped_share) json["clipped_share"] = json_number(*q.clipped_share);
  } else {
    if (q.sqnr_db) json["sqnr_db"] = json_number(*q.sqnr_db);
    json["clipped"] = q.clipped;
  }
  return json;
}

class Explain final : public Command {
 public:
  const char* name() const override { return "explain"; }
  const char* what() const override {
    return "why a layer of a run got its format and scale, or was skipped";
  }

  void declare(Args& args) override {
    args.positional("RUN", run_, "run folder")
        .positional("LAYER", layer_, "a node, or a value that it computes")
        .example("pare explain runs/fashion-resnet-int8 logits");
  }

  int run(Context& context) override {
    const Report report = read_report(run_);
    const Graph written = load_model(join_path(run_, "model.onnx"));
    const Explanation e = explain_layer(report, written, layer_);
    for (const std::string& sentence : e.sentences) context.print(sentence);
    Json inputs = Json::array(), skipped = Json::array(), realized = Json::array();
    for (const ExplainedInput& in : e.inputs) inputs.push_back(input_json(in));
    for (const ReportSkipped& row : e.skipped) skipped.push_back({{"tensor", row.tensor}, {"why", row.why}});
    for (const ReportRealized& row : e.realized)
      realized.push_back({{"requested", row.requested}, {"realized", row.realized}, {"why", row.why}});
    Json& json = context.document();
    json["run_dir"] = run_;
    json["layer"] = e.layer;
    json["op"] = e.op;
    json["output"] = e.output;
    json["inputs"] = std::move(inputs);
    json["skipped"] = std::move(skipped);
    json["realized"] = std::move(realized);
    if (e.measured) {
      json["sqnr_db"] = json_number(e.measured->sqnr_db);
      json["cosine"] = json_number(e.measured->cosine);
      json["max_abs"] = json_number(e.measured->max_abs);
    }
    return 0;
  }

 private:
  std::string run_, layer_;
};

}  // namespace

std::unique_ptr<Command> make_explain() { return std::make_unique<Explain>(); }

}  // namespace pare
