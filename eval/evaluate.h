// Runs a reference and a candidate on the same data and says how they differ: metrics, layers, clipping.
//
// The candidate is a graph with Q/DQ in it. It runs as float fake-quantization (what the file means by
// itself), as true integer kernels, or both; then the two are compared with each other too.
// Nothing depends on batch size, thread count, or how fast anything was. Only invariant kernels run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "engine/base/progress.h"
#include "engine/base/thread_pool.h"
#include "engine/build/lower/realized.h"
#include "engine/ir/graph.h"
#include "eval/compare.h"
#include "eval/report.h"

namespace pare {

enum class Arithmetic { kFake, kInteger, kBoth };

struct ClipRange {  // of one activation, by Value::origin (or name): what its codes can hold
  std::string tensor;
  double low = 0, high = 0;
};

struct EvaluateOptions {
  std::vector<std::string> metrics;  // names of metric_table()
  std::int64_t batch = 0;            // 0: the data set's
  std::int64_t layer_samples = 0;    // the first so many samples, for layers and clipping; 0: none
  Arithmetic arithmetic = Arithmetic::kBoth;
  std::vector<ClipRange> ranges;  // for clipping
  ThreadPool* pool = nullptr;     // required
  Progress* progress = nullptr;
};

using MetricValues = std::map<std::string, double>;

struct LayerDifference {
  std::string name, op;
  double sqnr_db = 0, cosine = 0, max_abs = 0;
};

struct ClipShare {
  std::string tensor;
  double share = 0;
};

struct Evaluation {
  std::int64_t samples = 0, layer_samples = 0;
  MetricValues reference;  // metrics that one model has alone
  MetricValues candidate;  // every metric asked for, by fake-quantization unless kInteger
  MetricValues integer;    // the same through integer kernels; empty unless kBoth
  std::int64_t not_finite_reference = 0, not_finite_candidate = 0;  // output values
  // Fake against integer, when both ran: SQNR of the outputs, samples whose largest output differs.
  std::optional<double> arithmetic_sqnr_db;
  std::int64_t arithmetic_top1_differs = 0;
  std::vector<LayerDifference> layers;  // in the order of the reference graph
  std::vector<ClipShare> clipping;      // of the ranges whose value the reference has
  std::vector<Realized> realized;       // by the integer lowering; empty with kFake
  double reference_seconds = 0, candidate_seconds = 0, integer_seconds = 0;
};

// Both graphs have the same inputs and outputs (Error kUsage otherwise, naming the difference). `data` was
// opened for them. Error kUsage for unknown metrics or labels that are not there; kUnsupported for metrics
// that this build does not compute.
Evaluation evaluate(const Graph& reference, const Graph& candidate, Dataset& data,
                    const EvaluateOptions& options);

// One model alone, for metrics that need no reference (top1, top5).
MetricValues evaluate_alone(const Graph& graph, Dataset& data, const EvaluateOptions& options);

// The range of every activation that the graph quantizes per tensor, in its order.
std::vector<ClipRange> quantized_ranges(const Graph& graph);

// --- for searches over many candidates: the reference runs once

struct SampleRange {
  std::int64_t begin = 0, end = 0;
};
// By batch, then by output; states that are fed back are left out.
using BatchOutputs = std::vector<std::vector<Tensor>>;
BatchOutputs collect_outputs(const Graph& graph, Dataset& data, SampleRange range,
                             const EvaluateOptions& options);
// Least SQNR of any output, dB. Both come from the same batches.
double output_sqnr_db(const BatchOutputs& reference, const BatchOutputs& candidate);

// --- gates

struct GateLimit {
  std::string metric;  // metric, metric_drop, metric_drop_rel
  bool at_most = true;
  double limit = 0;
};
struct GateResult {
  GateLimit gate;
  double value = 0;
  bool passed = false;
  std::string against;  // "reference", "baseline" or ""
};
// Drops are against `baseline` where one is given, else against `reference`. Never passes: a NaN, or any gate
// when the candidate's outputs were not all finite. Error kUsage for a metric that was not computed or a drop
// without anything to be measured from.
GateResult judge(const GateLimit& gate, const MetricValues& candidate, const MetricValues& reference,
                 const MetricValues* baseline, std::int64_t not_finite_candidate);

// "top1_drop<=0.005" or "output_sqnr_db>=30". Error kUsage.
GateLimit parse_gate(const std::string& text);

// Before any work: error kUsage where judge() will have nothing to measure from.
void check_gate(const GateLimit& gate, bool reference, bool baseline);

// Metrics (in this order), layers, realized precision, clipping by tensor, warnings.
void fill_report(Report& report, const Evaluation& evaluation, const std::vector<std::string>& order);
void fill_gates(Report& report, const std::vector<GateResult>& results);

}  // namespace pare
