#include <cmath>

#include "cli/commands.h"
#include "cli/engine_run.h"
#include "datasets/npy.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/compare.h"
#include "graphsurgeon/load.h"

namespace pare {
namespace {

struct Figures {
  double min = 0, max = 0, mean = 0;
  std::int64_t nan = 0;
};

// Of the values that are not NaN.
Figures figures_of(const Tensor& tensor) {
  Figures f;
  const Tensor floats = to_float32(tensor.view());
  const float* x = floats.as<float>();
  std::int64_t counted = 0;
  double sum = 0;
  for (std::int64_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(x[i])) {
      ++f.nan;
      continue;
    }
    f.min = counted == 0 ? x[i] : std::min<double>(f.min, x[i]);
    f.max = counted == 0 ? x[i] : std::max<double>(f.max, x[i]);
    sum += x[i];
    ++counted;
  }
  f.mean = counted == 0 ? 0 : sum / static_cast<double>(counted);
  return f;
}

class Infer final : public Command {
 public:
  const char* name() const override { return "infer"; }
  const char* what() const override { return "run a model once on given arrays"; }

  void declare(Args& args) override {
    args.positional("MODEL", path_, "ONNX file, or an engine that `pare build` wrote")
        .option("--input", "NAME=FILE.npy", inputs_, "array of an input; once for each input")
        .option("--save", "DIR", save_, "write out_0.npy, out_1.npy ... and outputs.json there")
        .flag("--integer", integer_, "quantized layers through integer kernels, not fake quantization")
        .example("pare infer resnet.onnx --input image=digits.npy --save out");
  }

  int run(Context& context) override {
    if (model_kind(path_) == ModelKind::kEngine) {
      const std::unique_ptr<Engine> engine = open_engine(context, path_);
      const EnginePlan& plan = engine->file().plan;
      std::vector<std::string> names;
      for (const int id : plan.outputs) names.push_back(plan.tensors[static_cast<std::size_t>(id)].name);
      report(context, names, engine->run(engine_inputs(plan, inputs_)));
      return 0;
    }
    auto graph = load_model(path_);
    std::vector<WantedInput> wanted;
    for (const ValueId id : graph.inputs) {
      const Value& value = graph.value(id);
      wanted.push_back({value.name, value.dtype, to_string(value.shape)});
    }
    const std::vector<Tensor> feed = input_arrays(wanted, "model", inputs_);
    LowerOptions lower;
    lower.integer = integer_;
    const Lowered lowered = lower_for_cpu(graph, lower);
    SessionOptions options;
    options.pool = &context.pool();
    options.seed = context.seed();
    const DeviceSessions sessions(context);
    Session session(lowered.graph, options);
    const std::vector<Tensor> outputs = session.run(feed);
    sessions.report(context);
    std::vector<std::string> names;
    for (const ValueId id : graph.outputs) names.push_back(graph.value(id).name);
    report(context, names, outputs);
    return 0;
  }

 private:
  void report(Context& context, const std::vector<std::string>& names,
              const std::vector<Tensor>& outputs) const {
    Json list = Json::array();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::string& output = names[i];
      Json json = {{"name", output}, {"dtype", pare::name(outputs[i].dtype())}, {"shape", outputs[i].dims()}};
      std::string line =
          fmt::format("{} {} {}", output, pare::name(outputs[i].dtype()), to_string(outputs[i].dims()));
      if (outputs[i].dtype() != DType::kString) {
        const Figures f = figures_of(outputs[i]);
        json["min"] = json_number(f.min);
        json["max"] = json_number(f.max);
        json["mean"] = json_number(f.mean);
        json["nan"] = f.nan;
        line += fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}{}", f.min, f.max, f.mean,
                            f.nan == 0 ? "" : fmt::format("  {} NaN", f.nan));
      }
      context.print(line);
      list.push_back(std::move(json));
    }
    context.document()["outputs"] = list;
    if (save_.empty()) return;
    make_directories(save_);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      write_npy(join_path(save_, fmt::format("out_{}.npy", i)), outputs[i].view());
    write_file_atomically(join_path(save_, "outputs.json"), dump({{"outputs", list}}, 2) + "\n");
  }

  std::string path_, save_;
  std::vector<std::string> inputs_;
  bool integer_ = false;
};

}  // namespace

std::unique_ptr<Command> make_infer() { return std::make_unique<Infer>(); }

}  // namespace pare
