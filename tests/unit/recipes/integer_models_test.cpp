// The example models, quantized, as integer kernels: every linear node runs on them, the result is as near to
// the fake-quantized one as rounding allows, and does not depend on the instruction class.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "calib/calibrate.h"
#include "datasets/dataset.h"
#include "engine/base/isa.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "recipes/quantize/quantize_model.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

struct Model {
  const char* name;
  bool same_in_all_classes;  // nothing but integer kernels and elementwise arithmetic
};

DatasetSpec images(const char* file, std::int64_t samples) {
  DatasetSpec spec = parse_data_argument(source_path(std::string("examples/fashion/") + file) +
                                         ":layout=nhwc_to_nchw,scale=1/255,mean=0.286,std=0.353");
  spec.samples = samples;
  return spec;
}

Graph simplified(const std::string& path) {
  Graph graph = load_model(path);
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
  return graph;
}

Tensor run(const Graph& graph, const Tensor& x, bool integer, std::vector<Realized>* realized = nullptr) {
  LowerOptions options;
  options.integer = integer;
  const Lowered lowered = lower_for_cpu(graph, options);
  if (realized != nullptr) *realized = lowered.realized;
  ThreadPool pool(2);
  Session session(lowered.graph, {&pool});
  return session.run({x})[0];
}

double sqnr_db(const Tensor& reference, const Tensor& other) {
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < reference.size(); ++i) {
    const double a = reference.as<float>()[i], d = a - static_cast<double>(other.as<float>()[i]);
    signal += a * a, noise += d * d;
  }
  return 10 * std::log10(signal / std::fmax(noise, 1e-300));
}

class IntegerModels : public testing::TestWithParam<Model> {};

TEST_P(IntegerModels, AgreeWithFakeQuantization) {
  const Graph graph = simplified(source_path(std::string("examples/fashion/") + GetParam().name + ".onnx"));
  ThreadPool pool(2);
  QuantizeChoices choices;
  choices.calibrator = "minmax";
  choices.spec.method = "rtn";
  Dataset calibration(images("fashion_calibration_images.npy", 32), model_inputs(graph));
  CalibrateOptions options;
  options.pool = &pool;
  QuantizeInput input;
  input.graph = &graph;
  input.pool = &pool;
  input.stats =
      calibrate(graph, values_to_watch(graph, choices.spec), calibration, options).statistics.tensors;
  const Graph quantized = quantize_model(input, choices).quantized;

  Dataset test(images("fashion_test_images.npy", 24), model_inputs(graph));
  const Tensor x = test.read(0, 24).inputs[0];
  const Tensor real = run(graph, x, false), fake = run(quantized, x, false);
  std::vector<Realized> realized;
  const Tensor integer = run(quantized, x, true, &realized);
  ASSERT_GE(realized.size(), 20u);
  for (const Realized& row : realized) {
    EXPECT_EQ(row.requested, "int8 x int8") << row.node;
    EXPECT_EQ(row.why, "") << row.node;
  }
  // Both compute the same quantized network. Their sums differ by float rounding, about 1e-6 of an
  // activation's range, so about one code in 1e4 lands on the other side of a middle and is off by a step,
  // against the variance of 1/12 step that quantization itself adds to each: near 29 dB below it. 10 dB tells
  // that from any mistake in a scale, a zero point, a layout or a layer.
  EXPECT_GE(sqnr_db(fake, integer), sqnr_db(real, fake) + 10);

  for (int i = 1; i <= static_cast<int>(best_isa()); ++i) {
    set_isa(static_cast<Isa>(i));
    SCOPED_TRACE(name(isa()));
    const Tensor again = run(quantized, x, true);
    if (GetParam().same_in_all_classes) {
      EXPECT_TRUE(equal_bytes(again, integer));
    } else {
      EXPECT_GE(sqnr_db(fake, again), sqnr_db(real, fake) + 10);
    }
  }
  set_isa(best_isa());
}

INSTANTIATE_TEST_SUITE_P(Examples, IntegerModels,
                         testing::Values(Model{"resnet", true}, Model{"mobilenet", true},
                                         Model{"vit", false}),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace pare
