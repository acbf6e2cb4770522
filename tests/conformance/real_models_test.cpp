// Real models against what ONNX Runtime computed, as they are read and after `simplify`; Silero over whole
// clips, frame by frame. Models and data lie beside the checkout and are too large for it; without them the
// tests are skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "datasets/npy.h"
#include "engine/base/json.h"
#include "engine/base/thread_pool.h"
#include "engine/build/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

enum class Output { kNumbers, kProbabilities, kClasses };

struct Case {
  const char* folder;  // below expected/
  Output first = Output::kNumbers;
  double amplified = 1;  // what the network itself does to rounding errors
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.folder; }

const Case kCases[] = {
    {"ppocr_det_imageTextN", Output::kProbabilities},
    {"ppocr_rec_line", Output::kClasses},
    {"blazeface_back_astronaut"},
    {"blazeface_back_coffee"},
    {"blazeface_back_sample1"},
    // A small probability has the relative error that the argument of its sigmoid has absolutely; it is about
    // ln(1e-4) = -9 where most of the scores are.
    {"mlsd_512x512_large", Output::kNumbers, 9},
    {"packages/efficientnet_lite0_cat", Output::kClasses},
    {"packages/efficientnet_lite0_espresso", Output::kClasses},
    // Its variance is a difference of squares: ONNX Runtime's own results change by 1.8e-5 with the batch.
    {"packages/magika_six_files", Output::kClasses, 4},
    {"packages/silero_sequence_goforward", Output::kProbabilities},
};

// Products that are summed for one output of a node, 0 for nodes that sum none.
double products(const Graph& graph, const Node& node) {
  const auto weight = [&](std::size_t i) -> Dims {
    if (i >= node.in.size() || node.in[i] == ValueId::kNone) return {};
    Dims dims;
    for (const Dim& dim : graph.value(node.in[i]).shape.dims) dims.push_back(dim.known() ? dim.value : 1);
    return dims;
  };
  double k = 1;
  if (node.is("Conv")) {
    const Dims w = weight(1);
    for (std::size_t d = 1; d < w.size(); ++d) k *= static_cast<double>(w[d]);
    return w.empty() ? 0 : k;
  }
  if (node.is("ConvTranspose")) {
    const Dims w = weight(0);
    return w.empty()
               ? 0
               : static_cast<double>(element_count(w)) / static_cast<double>(std::max<std::int64_t>(1, w[1]));
  }
  if (node.is("MatMul") || node.is("Gemm")) {
    const Dims a = weight(0), b = weight(1);
    if (a.empty() || b.empty()) return 0;
    return static_cast<double>(std::max(a.back(), b.size() > 1 ? b[b.size() - 2] : b[0]));
  }
  if (node.is("LSTM")) return static_cast<double>(weight(1).empty() ? 0 : weight(1)[2] + weight(2)[2]);
  return 0;
}

// What float32 allows two programs to differ by, relative in the 2-norm of an output. Every product and sum
// rounds with a relative error of at most u = 2^-24; the errors of the K products of one sum are independent
// and add to about u sqrt(K) of its value where terms cancel no more than random ones do. Layers hand errors
// on at the size they have and add their own, so a network with sums of K_1, K_2, ... products has
// u sqrt(K_1 + K_2 + ...), and two programs differ by sqrt(2) times that.
double tolerance(const Graph& graph) {
  double sum = 0;
  for (const NodeId id : graph.nodes()) sum += products(graph, graph.node(id));
  return 0x1p-24 * std::sqrt(2 * sum);
}

double relative_error(const Tensor& want, const Tensor& got) {
  double error = 0, size = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double w = static_cast<double>(want.as<float>()[i]), g = static_cast<double>(got.as<float>()[i]);
    error += (w - g) * (w - g), size += w * w;
  }
  return std::sqrt(error / std::fmax(size, 1e-300));
}

std::int64_t largest(const float* row, std::int64_t n) { return std::max_element(row, row + n) - row; }

template <typename Base>
class Skips : public Base {
 protected:
  void SetUp() override {
    if (!has_shared_files())
      GTEST_SKIP() << "no models beside the checkout (" << shared_path("models") << ")";
  }
};
class RealModels : public Skips<testing::TestWithParam<Case>> {};
class Silero : public Skips<testing::Test> {};

void expect_outputs(const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<Tensor>& want,
                    double allowed, Output first) {
  ThreadPool pool(2);
  const Lowered lowered = lower_for_cpu(graph);
  Session session(lowered.graph, {&pool});
  const std::vector<Tensor> got = session.run(inputs);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(graph.value(graph.outputs[i]).name);
    ASSERT_EQ(got[i].dtype(), DType::kF32);
    ASSERT_EQ(got[i].dims(), want[i].dims());
    EXPECT_LE(relative_error(want[i], got[i]), allowed);
  }
  const float *a = got[0].as<float>(), *b = want[0].as<float>();
  if (first == Output::kClasses) {
    const std::int64_t classes = want[0].dims().back();
    for (std::int64_t row = 0; row < want[0].size(); row += classes)
      EXPECT_EQ(largest(a + row, classes), largest(b + row, classes)) << "row " << row / classes;
  } else if (first == Output::kProbabilities) {
    for (std::int64_t i = 0; i < want[0].size(); ++i) EXPECT_EQ(a[i] > 0.5f, b[i] > 0.5f) << i;
  }
}

TEST_P(RealModels, EqualOnnxRuntime) {
  const std::string folder = shared_path(std::string("expected/") + GetParam().folder);
  const Json meta = read_json_file(folder + "/meta.json");
  Graph graph = load_model(shared_path(json_string(meta, "model", folder)));
  std::vector<Tensor> inputs(graph.inputs.size()), want(graph.outputs.size());
  const auto place = [&](const std::vector<ValueId>& values, const char* key, std::vector<Tensor>& tensors,
                         const char* file) {
    const Json& names = json_array(meta, key, folder);
    ASSERT_EQ(names.size(), tensors.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      for (std::size_t k = 0; k < values.size(); ++k)
        if (graph.value(values[k]).name == names[i].get<std::string>())
          tensors[k] = read_npy(folder + file + std::to_string(i) + ".npy");
  };
  place(graph.inputs, "inputs", inputs, "/in_");
  place(graph.outputs, "outputs", want, "/out_");
  const double allowed = GetParam().amplified * tolerance(graph);
  {
    SCOPED_TRACE("as it was read");
    expect_outputs(graph, inputs, want, allowed, GetParam().first);
  }
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
  SCOPED_TRACE("simplified");
  expect_outputs(graph, inputs, want, allowed, GetParam().first);
}

INSTANTIATE_TEST_SUITE_P(Expected, RealModels, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name;
  for (const char c : std::string(test.param.folder))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

// The last 64 samples of the frame before (zeros at first), then 512 new ones; what is left over is dropped.
Tensor frames_of(const Tensor& clip) {
  const std::int64_t count = clip.size() / 512;
  Tensor frames = Tensor::allocate(DType::kF32, {count, 576});
  for (std::int64_t f = 0; f < count; ++f)
    for (std::int64_t i = 0; i < 576; ++i) {
      const std::int64_t at = f * 512 + i - 64;
      frames.mut<float>()[f * 576 + i] =
          at < 0 ? 0.0f : static_cast<float>(clip.as<std::int16_t>()[at]) / 32768.0f;
    }
  return frames;
}

TEST_F(Silero, HearsSpeechInTheSameFrames) {
  const std::string path = shared_path("expected/silero_v6_stream.json");
  const Json clips = read_json_file(path);
  const Graph graph = load_model(shared_path("models/silero/silero_vad_16k_sequence.onnx"));
  const Lowered lowered = lower_for_cpu(graph);
  ThreadPool pool(2);
  Session session(lowered.graph, {&pool});
  Tensor zero = Tensor::allocate(DType::kF32, {1, 1, 128});
  std::fill_n(zero.mut<float>(), 128, 0.0f);
  std::int64_t speech = 0, frames = 0;
  for (const auto& [name, wanted] : clips.items()) {
    SCOPED_TRACE(name);
    const Tensor input = frames_of(read_npy(shared_path("data/audio/" + name + ".npy")));
    const Tensor got = session.run({input, zero, zero})[0];
    ASSERT_EQ(got.size(), static_cast<std::int64_t>(wanted.size()));
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const float p = got.as<float>()[i], w = wanted[static_cast<std::size_t>(i)].get<float>();
      // The sigmoid has slope 1/4 and its argument, sums of up to 1,000 products here, stays below 16:
      // 1/4 * 16 * the relative tolerance.
      EXPECT_NEAR(p, w, 4 * tolerance(graph)) << "frame " << i;
      EXPECT_EQ(p > 0.5f, w > 0.5f) << "frame " << i;
      speech += p > 0.5f ? 1 : 0;
    }
    frames += got.size();
  }
  EXPECT_EQ(frames, 1375);
  EXPECT_EQ(speech, 1103);
}

}  // namespace
}  // namespace pare
