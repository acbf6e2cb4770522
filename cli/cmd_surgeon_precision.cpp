// surgeon convert-precision
#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/data_argument.h"
#include "cli/surgeon.h"
#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/generated_inputs.h"
#include "graphsurgeon/simplify.h"
#include "graphsurgeon/verbs/convert_precision.h"

namespace pare {
namespace {

constexpr std::int64_t kSamples = 64;
constexpr std::size_t kShown = 12;

class SurgeonConvertPrecision final : public SurgeonVerb {
 public:
  const char* name() const override { return "surgeon convert-precision"; }
  const char* what() const override { return "float32 to float16 or bfloat16 where values allow it"; }

  void declare_verb(Args& args) override {
    args.option("--to", "TYPE", to_, "the type to compute in")
        .one_of({"float16", "bfloat16"})
        .required()
        .option("--data", "DATA", data_, kDataHelp)
        .option("--samples", "N", samples_, "of the data that are looked at (default 64)")
        .words("--block", "OP", options_.blocked, "an operator that stays float32")
        .option("--exclude", "NAME", options_.exclude, "a node that stays float32: its name, or 're:PATTERN'")
        .option("--largest", "X", options_.largest,
                "values above stay float32 (default half the largest number)")
        .flag("--convert-io", convert_io_, "inputs and outputs change their type too")
        .flag("--as-is", as_is_, "do not simplify the graph first")
        .example("pare surgeon convert-precision vit.onnx --to float16 -o half.onnx");
  }

  int run(Context& context) override {
    if (!dtype_from_name(to_, options_.to) || (options_.to != DType::kF16 && options_.to != DType::kBF16))
      throw make_error(ErrorCode::kUsage, "'{}' is no target", to_)
          .at("--to")
          .hint("use float16 or bfloat16");
    options_.keep_io = !convert_io_;
    Graph original = open();
    SimplifyOptions simplest;
    simplest.pool = &context.pool();
    if (!as_is_) simplify(original, simplest);
    Graph graph = original;
    measure(context, original);
    const ConvertPrecisionReport report = convert_precision(graph, options_, ranges_);
    compare(context, graph);
    say(context, report);
    finish(context, graph, report.min_opset);
    return 0;
  }

 private:
  // Runs the original: what is seen, its inputs and outputs are kept.
  void measure(Context& context, const Graph& original) {
    RangeMeter meter(std::make_shared<const Graph>(original), context.pool());
    if (!data_.empty()) {
      DatasetSpec spec = data_argument(data_, path());
      if (samples_ > 0 || spec.samples == 0) spec.samples = samples_ > 0 ? samples_ : kSamples;
      Dataset data(spec, model_inputs(original));
      for (std::int64_t begin = 0; begin < data.sample_count(); begin += data.batch_size()) {
        const std::int64_t end = std::min(begin + data.batch_size(), data.sample_count());
        inputs_.push_back(data.read(begin, end, &context.pool()).inputs);
        outputs_.push_back(meter.run(inputs_.back()));
      }
      source_ = "data";
    } else {
      GeneratedSizes sizes;
      GeneratedRun generated = run_on_generated(meter.session(), sizes, context.seed() + 1);
      if (generated.done) {
        inputs_.push_back(std::move(generated.inputs));
        outputs_.push_back(std::move(generated.outputs));
        source_ = "generated";
        context.warn("no --data: ranges are those of generated inputs, which may be smaller than real ones");
      } else {
        context.warn("no value was seen, so none is known to overflow: " + generated.why_not);
      }
    }
    ranges_ = meter.ranges();
  }

  void compare(Context& context, const Graph& graph) {
    if (inputs_.empty()) return;
    SessionOptions session_options;
    session_options.pool = &context.pool();
    Session session(std::make_shared<const Graph>(graph), session_options);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      std::vector<Tensor> inputs = inputs_[i];
      for (std::size_t k = 0; k < inputs.size(); ++k)
        inputs[k] = as_type(inputs[k], graph.value(graph.inputs[k]).dtype);
      const std::vector<double> sqnr = sqnr_of_outputs(outputs_[i], session.run(inputs));
      for (const double value : sqnr)
        worst_sqnr_ = std::isnan(value) || value < worst_sqnr_ ? value : worst_sqnr_;
    }
  }

  static Tensor as_type(const Tensor& tensor, DType type);

  void say(Context& context, const ConvertPrecisionReport& report) const {
    Json& json = context.document();
    context.print(fmt::format("{}: {} nodes compute in {}, {} stay float32, {} casts", path(),
                              report.converted, to_, report.kept.size(), report.casts));
    Json kept = Json::array();
    for (std::size_t i = 0; i < report.kept.size(); ++i) {
      const KeptNode& node = report.kept[i];
      kept.push_back({{"node", node.name}, {"op", node.op}, {"scope", node.scope}, {"why", node.why}});
      if (i < kShown) context.print(fmt::format("  {} {}: {}", node.op, node.name, node.why));
    }
    if (report.kept.size() > kShown) context.print(fmt::format("  ... {} more", report.kept.size() - kShown));
    context.print(
        fmt::format("weights {} -> {} bytes; {} elements became subnormal, {} became zero, {} are too large",
                    report.weight_bytes_before, report.weight_bytes_after, report.subnormal, report.flushed,
                    report.out_of_range));
    if (!inputs_.empty())
      context.print(
          fmt::format("outputs against float32 on {} inputs: SQNR at least {:.2f} dB", source_, worst_sqnr_));
    json["to"] = to_;
    json["converted"] = report.converted;
    json["casts"] = report.casts;
    json["kept"] = std::move(kept);
    json["weight_bytes_before"] = report.weight_bytes_before;
    json["weight_bytes_after"] = report.weight_bytes_after;
    json["constants"] = report.constants;
    json["out_of_range"] = report.out_of_range;
    json["subnormal"] = report.subnormal;
    json["flushed"] = report.flushed;
    json["unseen"] = report.unseen;
    json["ranges_from"] = source_;
    json["output_sqnr_db"] = inputs_.empty() ? Json(nullptr) : json_number(worst_sqnr_);
  }

  ConvertPrecisionOptions options_;
  std::string to_, data_, source_ = "nothing";
  std::int64_t samples_ = 0;
  bool convert_io_ = false, as_is_ = false;
  ValueRanges ranges_;
  std::vector<std::vector<Tensor>> inputs_, outputs_;
  double worst_sqnr_ = std::numeric_limits<double>::infinity();
};

Tensor SurgeonConvertPrecision::as_type(const Tensor& tensor, DType type) {
  if (tensor.dtype() == type || tensor.dtype() != DType::kF32) return tensor;
  Tensor out = Tensor::allocate(type, tensor.dims());
  format_info(type).encode(tensor.as<float>(), out.mut<void>(), tensor.size());
  return out;
}

}  // namespace

std::unique_ptr<Command> make_surgeon_convert_precision() {
  return std::make_unique<SurgeonConvertPrecision>();
}

}  // namespace pare
