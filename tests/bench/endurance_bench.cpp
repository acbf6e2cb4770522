// Many calibrations in one process without growth of memory.
//
//   endurance_bench [RUNS]      10,000 by default; a few milliseconds each
//
// Each run does what `pare calibrate` and a reader of its result do, from files to files: opens an ONNX model
// and its npy data, simplifies, calibrates with histograms a channel, writes the statistics and reads them
// back; every run must give the bits of the first. What is allocated (RssAnon, freed memory given back first)
// is printed ten times; exit code 1 when it grew by more than 1 MB from the first tenth, where caches and
// pools are full, to the end.
#include <fmt/core.h>
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "calib/calibrate.h"
#include "datasets/npy.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/base/paths.h"
#include "engine/ir/schema.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/simplify.h"

namespace {

using namespace pare;

Tensor ramp(Dims dims, float step) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  for (std::int64_t i = 0; i < t.size(); ++i)
    t.mut<float>()[i] = step * static_cast<float>(i * 37 % 101 - 50);
  return t;
}

// Convolution, Relu, mean of the plane, product: [batch, 2, 6, 6] to [batch, 3].
Graph tiny_model() {
  Graph graph;
  Value input;
  input.name = "x";
  input.dtype = DType::kF32;
  input.shape = Shape({Dim::named("batch"), Dim::of(2), Dim::of(6), Dim::of(6)});
  ValueId last = graph.add_value(input);
  graph.inputs = {last};
  const auto add = [&](const char* op, std::vector<ValueId> more, Attributes attrs = {}) {
    Node node;
    node.op = node.name = op;
    node.in = {last};
    node.in.insert(node.in.end(), more.begin(), more.end());
    node.attrs = std::move(attrs);
    Value value;
    value.name = std::string(op) + "_out";
    last = graph.add_value(value);
    node.out = {last};
    graph.add_node(std::move(node));
  };
  add("Conv",
      {graph.add_constant("w", ramp({4, 2, 3, 3}, 0.01F)), graph.add_constant("b", ramp({4}, 0.02F))});
  add("Relu", {});
  add("GlobalAveragePool", {});
  add("Flatten", {});
  add("MatMul", {graph.add_constant("m", ramp({4, 3}, 0.03F))});
  graph.outputs = {last};
  infer_shapes(graph);
  return graph;
}

Statistics calibrate_once(const std::string& model, const std::string& data, const std::string& out) {
  ThreadPool pool(2);
  Graph graph = load_model(model);
  SimplifyOptions simplify_options;
  simplify_options.pool = &pool;
  simplify(graph, simplify_options);
  Dataset set(parse_data_argument(data), model_inputs(graph));
  CalibrateOptions options;
  options.pool = &pool;
  options.graph_hash = hex(graph_hash(graph));
  std::vector<CalibratedValue> values;
  for (const NodeId id : graph.nodes())
    for (const ValueId value : graph.node(id).out) values.push_back({value, 1, {}, true});
  save_statistics(calibrate(graph, values, set, options).statistics, out);
  return load_statistics(out);
}

int run(std::int64_t runs) {
  const std::string folder = make_temporary_directory();
  const std::string model = join_path(folder, "model.onnx"), data = join_path(folder, "x.npy"),
                    out = join_path(folder, "stats.h5");
  write_onnx(tiny_model(), model);
  write_npy(data, ramp({8, 2, 6, 6}, 0.05F).view());
  const auto start = std::chrono::steady_clock::now();
  std::vector<TensorStats> first;
  std::int64_t settled = 0, now = 0;
  for (std::int64_t i = 1; i <= runs; ++i) {
    const std::vector<TensorStats> got = calibrate_once(model, data, out).tensors;
    if (i == 1) first = got;
    if (got != first) fail(ErrorCode::kInternal, "run {} differs from the first", i);
    if (i % std::max<std::int64_t>(1, runs / 10) != 0) continue;
    malloc_trim(0);
    now = current_anonymous_bytes();
    if (settled == 0) settled = now;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    fmt::print("{:6} runs, {:.1f} s: RssAnon {} kB\n", i, took.count(), now / 1024);
    std::fflush(stdout);
  }
  remove_tree(folder);
  const std::int64_t growth = now - settled;
  fmt::print("from a tenth of the runs to all: {:+} kB\n", growth / 1024);
  return growth > 1 << 20 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoll(argv[1]) : 10000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
