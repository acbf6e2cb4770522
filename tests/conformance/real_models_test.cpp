// Real models against what ONNX Runtime computed, as they are read and after `simplify`; Silero over whole
// clips, frame by frame. Models and data lie beside the checkout and are too large for it; without them the
// tests are skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "datasets/dataset.h"
#include "datasets/npy.h"
#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/thread_pool.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/build/profile.h"
#include "engine/run/session.h"
#include "eval/evaluate.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

enum class Output { kNumbers, kProbabilities, kClasses };
enum class Plan { kRun, kOnly, kNone };

struct Case {
  const char* folder;  // below expected/
  Output first = Output::kNumbers;
  double amplified = 1;  // what the network itself does to rounding errors
  Plan plan = Plan::kRun;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.folder; }

const Case kCases[] = {
    {"ppocr_det_imageTextN", Output::kProbabilities},
    {"ppocr_rec_line", Output::kClasses, 1, Plan::kOnly},
    {"blazeface_back_astronaut"},
    {"blazeface_back_coffee"},
    {"blazeface_back_sample1"},
    // A small probability has the relative error that the argument of its sigmoid has absolutely; it is about
    // ln(1e-4) = -9 where most of the scores are.
    {"mlsd_512x512_large", Output::kNumbers, 9, Plan::kOnly},
    {"packages/efficientnet_lite0_cat", Output::kClasses},
    {"packages/efficientnet_lite0_espresso", Output::kClasses},
    // Its variance is a difference of squares: ONNX Runtime's own results change by 1.8e-5 with the batch.
    {"packages/magika_six_files", Output::kClasses, 4},
    {"packages/silero_sequence_goforward", Output::kProbabilities},
    {"packages/silero_op18_speech", Output::kProbabilities, 1, Plan::kNone},
    {"silero_v5_speech", Output::kProbabilities, 1, Plan::kNone},
    {"silero_v5_noise", Output::kProbabilities, 1, Plan::kNone},
    {"silero_v6_speech", Output::kProbabilities, 1, Plan::kNone},
    {"silero_v6_noise", Output::kProbabilities, 1, Plan::kNone},
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
double all_products(const Graph& graph) {
  double sum = 0;
  for (const NodeId id : graph.nodes()) {
    sum += products(graph, graph.node(id));
    double longest = 0;  // one branch of an If runs
    for (const auto& [key, attribute] : graph.node(id).attrs)
      if (const auto* branch = std::get_if<std::shared_ptr<Graph>>(&attribute))
        longest = std::max(longest, all_products(**branch));
    sum += longest;
  }
  return sum;
}

double tolerance(const Graph& graph) { return 0x1p-24 * std::sqrt(2 * all_products(graph)); }

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

struct Expected {
  Graph graph;
  std::vector<Tensor> inputs, want;
};

Expected read_expected(const std::string& name) {
  const std::string folder = shared_path("expected/" + name);
  const Json meta = read_json_file(folder + "/meta.json");
  Expected e;
  e.graph = load_model(shared_path(json_string(meta, "model", folder)));
  e.inputs.resize(e.graph.inputs.size()), e.want.resize(e.graph.outputs.size());
  const auto place = [&](const std::vector<ValueId>& values, const char* key, std::vector<Tensor>& tensors,
                         const char* file) {
    const Json& names = json_array(meta, key, folder);
    ASSERT_EQ(names.size(), tensors.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      for (std::size_t k = 0; k < values.size(); ++k)
        if (e.graph.value(values[k]).name == names[i].get<std::string>())
          tensors[k] = read_npy(folder + file + std::to_string(i) + ".npy");
  };
  place(e.graph.inputs, "inputs", e.inputs, "/in_");
  place(e.graph.outputs, "outputs", e.want, "/out_");
  return e;
}

void simplify_quietly(Graph& graph) {
  SimplifyOptions options;
  options.self_check = false;
  simplify(graph, options);
}

TEST_P(RealModels, EqualOnnxRuntime) {
  Expected e = read_expected(GetParam().folder);
  const double allowed = GetParam().amplified * tolerance(e.graph);
  {
    SCOPED_TRACE("as it was read");
    expect_outputs(e.graph, e.inputs, e.want, allowed, GetParam().first);
  }
  simplify_quietly(e.graph);
  SCOPED_TRACE("simplified");
  expect_outputs(e.graph, e.inputs, e.want, allowed, GetParam().first);
}

// The plan of a GPU engine. Where its plain loops would take too long it is only made; what branches on an
// input has none.
TEST_P(RealModels, HaveAPlanThatComputesThem) {
  Expected e = read_expected(GetParam().folder);
  const double allowed = GetParam().amplified * tolerance(e.graph);
  simplify_quietly(e.graph);
  InputShapes shapes;
  for (std::size_t i = 0; i < e.inputs.size(); ++i)
    shapes.emplace_back(e.graph.value(e.graph.inputs[i]).name, e.inputs[i].dims());
  const auto make = [&] {
    Graph fixed = fix_sizes(e.graph, 1, shapes);
    simplify_quietly(fixed);
    PlanOptions options;
    options.precision = DType::kF32;
    return make_plan(fixed, options);
  };
  if (GetParam().plan == Plan::kNone) {
    EXPECT_THROW(make(), Error);
    return;
  }
  const EnginePlan plan = make();
  if (GetParam().plan == Plan::kOnly) return;
  const std::vector<Tensor> got = run_plan_reference(plan, e.inputs);
  ASSERT_EQ(got.size(), e.want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_error(e.want[i], got[i]), allowed) << "output " << i;
}

INSTANTIATE_TEST_SUITE_P(Expected, RealModels, testing::ValuesIn(kCases), [](const auto& test) {
  std::string name;
  for (const char c : std::string(test.param.folder))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

// All clips through the data set reader, states handed on: every frame, and the decision about it.
struct Form {
  const char* name;
  const char* model;
  const char* keys;
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Silero : public Skips<testing::TestWithParam<Form>> {};

TEST_P(Silero, HearsSpeechInTheSameFrames) {
  const std::string path = shared_path("expected/silero_v6_stream.json");
  const Json clips = read_json_file(path);
  const Graph graph = load_model(shared_path(std::string("models/silero/") + GetParam().model));
  const Lowered lowered = lower_for_cpu(graph);
  ThreadPool pool(2);
  Session session(lowered.graph, {&pool});
  // The sigmoid has slope 1/4 and its argument, sums of up to 1,000 products here, stays below 16: 1/4 * 16 *
  // the relative tolerance.
  const double allowed = 4 * tolerance(graph);
  ASSERT_GT(allowed, 0);
  std::int64_t speech = 0, frames = 0;
  for (const auto& [name, wanted] : clips.items()) {
    SCOPED_TRACE(name);
    const std::string keys = ":frame=512,context=64,scale=1/32768,reset=per_file,";
    Dataset data(parse_data_argument(shared_path("data/audio/" + name + ".npy") + keys + GetParam().keys),
                 model_inputs(graph));
    ASSERT_EQ(data.sample_count(), static_cast<std::int64_t>(wanted.size()));
    StateFeed feed(data, graph);
    for (std::int64_t begin = 0, end = 0; begin < data.sample_count(); begin = end) {
      end = data.batch_end(begin, data.sample_count(), data.batch_size());
      const Tensor got = feed.run(session, data.read(begin, end))[0];
      ASSERT_EQ(got.size(), end - begin);
      for (std::int64_t i = 0; i < got.size(); ++i) {
        const float p = got.as<float>()[i], w = wanted[static_cast<std::size_t>(begin + i)].get<float>();
        EXPECT_NEAR(p, w, allowed) << "frame " << begin + i;
        EXPECT_EQ(p > 0.5f, w > 0.5f) << "frame " << begin + i;
        speech += p > 0.5f ? 1 : 0;
      }
    }
    frames += data.sample_count();
  }
  EXPECT_EQ(frames, 1375);
  EXPECT_EQ(speech, 1103);
}

const Form kForms[] = {
    {"as_published", "silero_vad_v6.onnx", "input=input,feedback=[state:stateN],constants=[sr:16000]"},
    {"without_if", "silero_vad_op18_ifless.onnx", "feedback=[state:stateN],constants=[sr:16000]"},
    {"sequence", "silero_vad_16k_sequence.onnx", "feedback=[h:hn,c:cn]"},
    {"sequence_in_parts", "silero_vad_16k_sequence.onnx", "feedback=[h:hn,c:cn],batch=7"},
};

INSTANTIATE_TEST_SUITE_P(V6, Silero, testing::ValuesIn(kForms),
                         [](const auto& test) { return std::string(test.param.name); });

class Recognizer : public Skips<testing::Test> {};

TEST_F(Recognizer, MakesTheErrorsThatItMakesInOnnxRuntime) {
  const Graph graph = load_model(shared_path("models/ocr/ppocrv4_rec.onnx"));
  const std::string labels = shared_path("data/ocr_lines/labels.json");
  DatasetSpec spec = parse_data_argument(
      shared_path("data/ocr_lines/images.npy") +
      ":layout=nhwc_to_nchw,scale=1/255,mean=0.5,std=0.5,width_from=" + labels + ":width,labels=" + labels +
      ":text,alphabet=" + shared_path("models/ocr/ppocr_keys_v1.txt"));
  ThreadPool pool(2);
  EvaluateOptions options;
  options.metrics = {"cer"};
  options.pool = &pool;
  const auto rate = [&](std::int64_t skip, std::int64_t samples, bool ignore_spaces) {
    spec.skip = skip, spec.samples = samples, spec.ignore_spaces = ignore_spaces;
    Dataset data(spec, model_inputs(graph));
    return evaluate_alone(graph, data, options).at("cer");
  };
  EXPECT_EQ(rate(0, 100, true), 5.0 / 1297);
  EXPECT_EQ(rate(100, 400, true), 35.0 / 5072);
}

}  // namespace
}  // namespace pare
