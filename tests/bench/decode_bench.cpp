// decode_bench CHECKPOINT [--scheme int4] [--group 32] [--threads 1] [--past 64] [--tokens 24] [--isa avx2]
// [--profile]
//
// One step of generation against the memory it must read. A step is the graph that `pare generate` runs, for
// one token behind `past`; with a scheme the weights are rounded to it first (RTN: speed does not depend on
// the codes). Rounds of the reading test and of the steps alternate; medians, wall clock and processor time
// (on a busy machine with one thread the latter is what counts). Checks its answer: the logits of the coded
// products against those of the same graph with the weights made whole, bit for bit.
#include <time.h>

#include <atomic>
#include <cstring>
#include <map>

#include "engine/base/isa.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/ops/sequence/cached_attention.h"
#include "engine/run/session.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"
#include "quant/plan.h"
#include "tests/bench/bench.h"

namespace pare {
namespace {

double clock_seconds(clockid_t which) {
  timespec t{};
  clock_gettime(which, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Timed {
  std::vector<double> wall, processor;
  template <typename Run>
  void time(Run run) {
    const double w = clock_seconds(CLOCK_MONOTONIC), p = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
    run();
    processor.push_back(clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - p);
    wall.push_back(clock_seconds(CLOCK_MONOTONIC) - w);
  }
  static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  }
};

// Bytes of the weights that a token reads: codes and scales as they are stored; float products as float32.
std::int64_t weight_bytes(const Graph& graph) {
  std::int64_t sum = 0;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (!node.is("pare", "WMatMul") && !node.is("pare", "MatMul") && !node.is("MatMul")) continue;
    for (std::size_t i = 1; i < std::min<std::size_t>(node.in.size(), 4); ++i)
      if (node.in[i] != ValueId::kNone && graph.is_constant(node.in[i]))
        sum += graph.value(node.in[i]).constant.bytes();
  }
  return sum;
}

std::vector<Tensor> inputs_of(const Graph& graph, const ModelConfig& c, std::int64_t past) {
  const std::int64_t blocks = past / kKeysOfBlock + 1;
  std::vector<Tensor> feed;
  for (const ValueId id : graph.inputs) {
    const std::string& name = graph.value(id).name;
    if (name == "input_ids") {
      feed.push_back(Tensor::from<std::int64_t>(DType::kI64, {1, 1}, {c.vocabulary / 2}));
    } else if (name == "past") {
      feed.push_back(Tensor::from<std::int64_t>(DType::kI64, {}, {past}));
    } else {
      const bool keys = graph.value(id).shape.rank() == 5;
      feed.push_back(
          Tensor::allocate(DType::kF32, keys ? Dims{1, c.kv_heads, blocks, c.head_size, kKeysOfBlock}
                                             : Dims{1, c.kv_heads, blocks * kKeysOfBlock, c.head_size}));
      for (std::int64_t i = 0; i < feed.back().size(); ++i)
        feed.back().mut<float>()[i] = static_cast<float>(i % 37 - 18) * 0.05f;
    }
  }
  return feed;
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"threads", "1"}, {"past", "64"}, {"tokens", "24"}, {"group", "32"}};
  for (int i = 2; i < argc; ++i) {
    const std::string key = std::string(argv[i]).substr(2);
    options[key] = key == "profile" ? "1" : argv[++i];
  }
  if (options.count("isa") != 0) set_isa(isa_from_name(options["isa"]));
  ThreadPool pool(std::stoi(options["threads"]));
  const Checkpoint checkpoint = open_checkpoint(argv[1]);
  BuildOptions build;
  build.stepwise = true;
  Graph graph = build_graph(checkpoint, build);
  if (options.count("scheme") != 0) {
    quant::Spec spec;
    spec.weights = quant::scheme_from_name(options["scheme"]).weights;
    if (spec.weights.granularity == quant::Granularity::kBlock && spec.weights.block > 0 &&
        options["scheme"] == "int4")
      spec.weights.block = std::stoi(options["group"]);
    spec.activations = {};
    spec.activations.dtype = DType::kUndefined;
    spec.method = "rtn";
    quant::Plan plan;
    plan.placement = quant::place(graph, spec);
    plan.placement.activations.clear();
    plan.placement.biases.clear();
    plan.weights = quant::plan_weights(graph, plan.placement, "rtn", pool);
    graph = quant::apply(graph, plan);
  }
  SessionOptions session_options;
  session_options.pool = &pool;
  session_options.profile = options.count("profile") != 0;
  const std::shared_ptr<const Graph> lowered = lower_for_cpu(graph).graph;
  const std::vector<Tensor> feed = inputs_of(*lowered, checkpoint.config, std::stoll(options["past"]));
  Session session(lowered, session_options);
  const Tensor logits = session.run(feed)[0];
  if (options.count("scheme") != 0) {
    LowerOptions whole;
    for (const NodeId id : graph.nodes())
      if (graph.node(id).is("DequantizeLinear")) whole.keep.push_back(graph.node(id).out[0]);
    SessionOptions plain;
    plain.pool = &pool;
    const Tensor want = Session(lower_for_cpu(graph, whole).graph, plain).run(feed)[0];
    if (!equal_bytes(logits, want)) {
      fmt::print("{{\"name\":\"decode\",\"error\":\"wrong result\"}}\n");
      return 1;
    }
  }
  // Twice the last-level cache of most machines at least, and as much as the weights.
  const std::int64_t weights = weight_bytes(*lowered), buffer = std::int64_t{256} << 20;
  Tensor memory = Tensor::allocate(DType::kU8, {buffer});
  std::memset(memory.mut<std::uint8_t>(), 1, static_cast<std::size_t>(buffer));
  std::atomic<std::uint64_t> total{0};
  const auto read = [&] {
    pool.parallel_for(buffer >> 20, 1, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t sums[8] = {};
      const auto* words = memory.as<std::uint64_t>() + (begin << 17);
      for (std::int64_t i = 0; i < (end - begin) << 17; i += 8)
        for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
      for (const std::uint64_t s : sums) total += s;
    });
  };
  Timed reading, steps;
  const int tokens = std::stoi(options["tokens"]);
  for (int i = 0; i < tokens; ++i) {
    if (i % 4 == 0) reading.time(read);
    steps.time([&] { session.run(feed); });
  }
  const auto rate = [](std::int64_t bytes, double seconds) {
    return static_cast<double>(bytes) / seconds * 1e-9;
  };
  const double threads = pool.threads();
  const double wall = Timed::median(steps.wall), processor = Timed::median(steps.processor) / threads;
  const double memory_wall = rate(buffer, Timed::median(reading.wall)),
               memory_processor = rate(buffer, Timed::median(reading.processor) / threads);
  fmt::print(
      "{{\"name\":\"decode\",\"checkpoint\":\"{}\",\"scheme\":\"{}\",\"threads\":{},\"weight_mb\":{:.1f},"
      "\"step_ms\":{:.2f},\"step_processor_ms\":{:.2f},\"tokens_per_second\":{:.1f},\"gb_per_s\":{:.2f},"
      "\"memory_gb_per_s\":{:.2f},\"share\":{:.2f},\"share_of_processor_time\":{:.2f}}}\n",
      argv[1], options["scheme"], pool.threads(), static_cast<double>(weights) * 1e-6, wall * 1e3,
      processor * 1e3, 1 / wall, rate(weights, wall), memory_wall, rate(weights, wall) / memory_wall,
      rate(weights, processor) / memory_processor);
  std::map<std::string, std::pair<double, int>> by_kernel;
  for (const Session::Profile& row : session.profile()) {
    by_kernel[row.kernel].first += row.seconds / static_cast<double>(row.runs) * 1e3;
    ++by_kernel[row.kernel].second;
  }
  for (const auto& [kernel, sum] : by_kernel)
    fmt::print("  {:40} {:4} nodes {:8.3f} ms\n", kernel, sum.second, sum.first);
  return 0;
}

}  // namespace
}  // namespace pare

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return pare::run(argc, argv);
}
