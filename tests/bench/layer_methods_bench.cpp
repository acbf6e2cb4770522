// Weight methods on real layers: each layer's output error and the SQNR of the model's outputs, weights alone
// quantized, for formats and methods side by side.
//
//   layer_methods_bench MODEL.onnx DATA_ARGUMENT CALIBRATION_SAMPLES TEST_DATA_ARGUMENT TEST_SAMPLES
//   [FORMAT...]
//
// A data argument is that of `pare quantize --data`. A fifth of the calibration samples is held out. Prints a
// table in Markdown.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <map>

#include "calib/gram_collect.h"
#include "calib/gram_geometry.h"
#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/rounding/layer.h"
#include "tests/bench/grid_formats.h"

namespace {

using namespace pare;
std::vector<Tensor> outputs_of(const Graph& graph, Dataset& data, std::int64_t samples, ThreadPool& pool) {
  const Lowered lowered = lower_for_cpu(graph);
  Session session(lowered.graph, {&pool, true, false});
  StateFeed feed(data, graph);
  std::vector<Tensor> all;
  for (std::int64_t at = 0, to = 0; at < samples; at = to) {
    to = data.batch_end(at, samples, 64);
    for (Tensor& t : feed.run(session, data.read(at, to, &pool))) all.push_back(std::move(t));
  }
  return all;
}

double sqnr_db(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  double power = 0, error = 0;
  for (std::size_t t = 0; t < want.size(); ++t)
    for (std::int64_t i = 0; i < want[t].size(); ++i) {
      const double a = static_cast<double>(want[t].as<float>()[i]);
      const double e = a - static_cast<double>(got[t].as<float>()[i]);
      power += a * a;
      error += e * e;
    }
  return 10 * std::log10(power / error);
}

int run(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr, "usage: layer_methods_bench MODEL DATA SAMPLES TEST_DATA SAMPLES [FORMAT...]\n");
    return 2;
  }
  ThreadPool pool(available_threads());
  Graph graph = load_model(argv[1]);
  simplify(graph);
  Dataset calibration(parse_data_argument(argv[2]), model_inputs(graph)),
      test(parse_data_argument(argv[4]), model_inputs(graph));
  const std::int64_t samples = std::stoll(argv[3]), test_samples = std::stoll(argv[5]);

  std::vector<GramTarget> targets;
  std::vector<quant::WeightView> views;
  for (const NodeId id : graph.nodes()) {
    GramGeometry geometry;
    quant::WeightView view;
    if (!gram_geometry(graph, graph.node(id), geometry) || !quant::view_weight(graph, graph.node(id), view))
      continue;
    targets.push_back({{}, id});
    views.push_back(view);
  }
  std::vector<GramPair> grams(targets.size());
  GramOptions options;
  options.pool = &pool;
  options.end = samples;
  options.held_out = samples / 5;
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  collect_grams(graph, targets, calibration, options,
                [&](std::size_t i, const std::shared_ptr<const GramPair>& pair) { grams[i] = *pair; });
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  fmt::print("{} layers, second moments of {} samples in {:.1f} s\n\n", targets.size(), samples, seconds());
  const std::vector<Tensor> want = outputs_of(graph, test, test_samples, pool);

  fmt::print(
      "| format | method | output SQNR, dB | layer SQNR, mean dB | held out, mean dB | s |\n| --- | --- "
      "| --- | --- | --- | --- |\n");
  for (int f = 6; f < argc; ++f)
    for (const char* method : {"rtn", "search", "gptq", "learned", "auto"}) {
      Graph changed = graph;
      double layer_db = 0, held_db = 0;
      start = Clock::now();
      std::map<std::string, int> used;
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const Node& node = graph.node(targets[i].node);
        const Tensor& weight = graph.value(node.in[1]).constant;
        const quant::WeightRows rows = quant::gather_rows(weight, views[i]);
        quant::LayerProblem problem;
        problem.name = grams[i].fit.name;
        problem.weight = &rows;
        problem.gram = &grams[i].fit;
        problem.held_out = &grams[i].held_out;
        problem.format = bench::grid_format(argv[f]);
        quant::LayerOptions layer;
        layer.method = method;
        const quant::LayerSolution s = quant::solve_layer(problem, layer, pool);
        ++used[s.method];
        layer_db += s.sqnr_db / static_cast<double>(targets.size());
        held_db += -10 * std::log10(s.held_out_loss) / static_cast<double>(targets.size());
        quant::WeightRows image = rows;
        quant::decode(problem.format, rows.shape, s.grid, s.codes.data(), image.values.data(), pool);
        changed.value(node.in[1]).constant = quant::scatter_rows(image, views[i], weight.dims());
      }
      const double took = seconds();
      std::string methods;
      if (method == std::string("auto"))
        for (const auto& [name, count] : used) methods += fmt::format(" {} {}", count, name);
      fmt::print("| {} | {}{} | {:.2f} | {:.2f} | {:.2f} | {:.1f} |\n", argv[f], method, methods,
                 sqnr_db(want, outputs_of(changed, test, test_samples, pool)), layer_db, held_db, took);
      std::fflush(stdout);
    }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const pare::Error& error) {
    fmt::print(stderr, "{} {} {}\n", error.what(), error.where(), error.hint());
    return 1;
  }
}
