#include <algorithm>
#include <cmath>

#include "cli/commands.h"
#include "cli/data_argument.h"
#include "cli/engine_run.h"
#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/compare.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

class Verify final : public Command {
 public:
  const char* name() const override { return "verify"; }
  const char* what() const override { return "whether an engine computes what its model does"; }

  void declare(Args& args) override {
    args.positional("ENGINE", engine_, "what `pare build` wrote")
        .option("--reference", "MODEL", reference_, "the ONNX model, run in float32 on the CPU")
        .required()
        .option("--data", "DATA", data_, kDataHelp)
        .option("--input", "NAME=FILE.npy", inputs_, "instead of --data: arrays of the engine's own shape")
        .option("--samples", "N", samples_, "only the first N of --data")
        .option("--tolerance", "DB", tolerance_, "least SQNR of every output in dB")
        .flag("--strict-precision", strict_, "fail when a layer runs in another precision than asked for")
        .example("pare verify resnet.engine --reference resnet.onnx \\")
        .example("    --data \"test.npy:layout=nhwc_to_nchw,scale=1/255\"");
  }

  int run(Context& context) override {
    if (data_.empty() == inputs_.empty())
      throw make_error(ErrorCode::kUsage,
                       "either --data or --input says what to run; random data would prove nothing")
          .hint("--data FILE:key=value,... as for `pare eval`, or --input NAME=FILE.npy for each input");
    const std::unique_ptr<Engine> engine = open_engine(context, engine_);
    const EnginePlan& plan = engine->file().plan;
    Graph graph = load_model(reference_);
    SimplifyOptions simplest;
    simplest.self_check = false;
    simplify(graph, simplest);
    const Lowered lowered = lower_for_cpu(graph, {});
    SessionOptions options;
    options.pool = &context.pool();
    Session session(lowered.graph, options);
    std::vector<Sums> sums(plan.outputs.size());
    std::int64_t samples = 0;
    if (!inputs_.empty()) {
      const std::vector<Tensor> feed = engine_inputs(plan, inputs_);
      compare(sums, session.run(feed), engine->run(feed));
      samples = feed.empty() || feed[0].dims().empty() ? 1 : feed[0].dims()[0];
    } else {
      samples = from_data(context, graph, *engine, session, sums);
    }
    return report(context, engine->file(), sums, samples);
  }

 private:
  struct Sums {
    double signal = 0, noise = 0, dot = 0, other = 0, max_abs = 0;
    bool finite = true;
  };

  static void compare(std::vector<Sums>& sums, const std::vector<Tensor>& want,
                      const std::vector<Tensor>& got) {
    for (std::size_t o = 0; o < want.size(); ++o) {
      const Tensor a = to_float32(want[o].view()), b = to_float32(got[o].view());
      Sums& s = sums[o];
      for (std::int64_t i = 0; i < a.size(); ++i) {
        const auto x = static_cast<double>(a.as<float>()[i]), y = static_cast<double>(b.as<float>()[i]);
        if (!std::isfinite(x) || !std::isfinite(y)) {
          s.finite = s.finite && (x == y || (std::isnan(x) && std::isnan(y)));
          continue;
        }
        s.signal += x * x;
        s.other += y * y;
        s.dot += x * y;
        s.noise += (x - y) * (x - y);
        s.max_abs = std::max(s.max_abs, std::fabs(x - y));
      }
    }
  }

  std::int64_t from_data(Context& context, const Graph& graph, Engine& engine, Session& session,
                         std::vector<Sums>& sums) const {
    DatasetSpec spec = data_argument(data_, reference_);
    spec.samples = samples_;
    Dataset data(spec, model_inputs(graph));
    const std::int64_t batch = engine.file().provenance.batch, whole = data.sample_count() / batch * batch;
    if (whole == 0)
      throw make_error(ErrorCode::kUsage, "the data has {} samples, the engine takes {} at a time",
                       data.sample_count(), batch)
          .hint("give more data, or build the engine for a smaller batch");
    ProgressStep step(context.progress(), "verifying", whole);
    for (std::int64_t begin = 0; begin < whole; begin += batch) {
      const Batch b = data.read(begin, begin + batch, &context.pool());
      compare(sums, session.run(b.inputs), engine.run(b.inputs));
      step.advance(batch);
    }
    data.refuse_all_zero();
    return whole;
  }

  int report(Context& context, const EngineFile& engine, const std::vector<Sums>& sums,
             std::int64_t samples) const {
    const EnginePlan& plan = engine.plan;
    double worst_db = INFINITY, worst_abs = 0, worst_cosine = 1;
    bool passed = true;
    for (std::size_t o = 0; o < sums.size(); ++o) {
      const Sums& s = sums[o];
      const double db = s.noise == 0 ? 200 : 10 * std::log10(s.signal / s.noise);
      const double cosine = s.signal == 0 || s.other == 0 ? 1 : s.dot / std::sqrt(s.signal * s.other);
      worst_db = std::min(worst_db, db);
      worst_abs = std::max(worst_abs, s.max_abs);
      worst_cosine = std::min(worst_cosine, cosine);
      passed = passed && s.finite && db >= tolerance_;
      context.print(fmt::format("{}: SQNR {:.2f} dB, largest difference {:.4g}, cosine {:.7f}{}",
                                plan.tensors[static_cast<std::size_t>(plan.outputs[o])].name, db, s.max_abs,
                                cosine, s.finite ? "" : ", NaN or infinity in different places"));
    }
    Json mismatches = Json::array();
    for (const Realized& row : plan.realized)
      if (!row.why.empty())
        mismatches.push_back(
            {{"node", row.node}, {"requested", row.requested}, {"realized", row.realized}, {"why", row.why}});
    for (const PlanLayer& layer : plan.layers)
      if (layer.requested != layer.realized && !(layer.requested == "tf32" && layer.realized == "float32"))
        mismatches.push_back({{"node", layer.name},
                              {"requested", layer.requested},
                              {"realized", layer.realized},
                              {"why", layer.why}});
    if (!mismatches.empty())
      context.print(fmt::format("{} layers run in another precision than requested", mismatches.size()));
    if (strict_ && !mismatches.empty()) passed = false;
    Json& json = context.document();
    json["samples"] = samples;
    json["max_abs"] = json_number(worst_abs);
    json["sqnr_db"] = json_number(worst_db);
    json["cosine"] = json_number(worst_cosine);
    json["realized_mismatches"] = std::move(mismatches);
    json["passed"] = passed;
    context.print(fmt::format("{} over {} samples (least SQNR asked for: {} dB)",
                              passed ? "passed" : "FAILED", samples, tolerance_));
    return passed ? 0 : 1;
  }

  std::string engine_, reference_, data_;
  std::vector<std::string> inputs_;
  std::int64_t samples_ = 256;
  double tolerance_ = 25;
  bool strict_ = false;
};

}  // namespace

std::unique_ptr<Command> make_verify() { return std::make_unique<Verify>(); }

}  // namespace pare
