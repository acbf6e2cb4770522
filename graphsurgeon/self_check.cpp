#include "graphsurgeon/self_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "engine/run/session.h"
#include "graphsurgeon/generated_inputs.h"
#include "graphsurgeon/passes/edit.h"

namespace pare {
namespace {

// --- comparison

struct Difference {
  double largest = 0;
  std::string failure;
};

Difference compare(const Tensor& a, const Tensor& b, const SelfCheckOptions& options) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims())
    return {INFINITY, fmt::format("{} {} became {} {}", name(a.dtype()), to_string(a.dims()), name(b.dtype()),
                                  to_string(b.dims()))};
  std::vector<double> x, y;
  if (!to_doubles(a, x) || !to_doubles(b, y))
    return equal_bytes(a, b) ? Difference{} : Difference{INFINITY, "elements changed"};
  double scale = 0;
  for (const double v : x)
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  const double allowed = options.relative * scale + options.absolute;
  Difference result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double d = std::fabs(x[i] - y[i]);
    result.largest = std::isnan(d) ? INFINITY : std::max(result.largest, d);
    if (!(d <= allowed) && result.failure.empty())
      result.failure =
          fmt::format("element {} was {:.9g} and is {:.9g}; {:.3g} is allowed (1e-4 of the largest value)", i,
                      x[i], y[i], allowed);
  }
  return result;
}

class Check {
 public:
  Check(const Graph& first, const Graph& second, const SelfCheckOptions& options, ThreadPool& pool)
      : options_(options) {
    SessionOptions session;
    session.pool = &pool;
    first_ = std::make_unique<Session>(std::make_shared<const Graph>(first), session);
    second_ = std::make_unique<Session>(std::make_shared<const Graph>(second), session);
  }

  SelfCheckReport run() {
    GeneratedSizes sizes;
    for (const std::int64_t batch : {1, 2}) {
      if (batch == 2 && !has_open_batch(first_->graph())) break;
      sizes.batch = batch;
      GeneratedRun run = run_on_generated(*first_, sizes, options_.seed);
      report_.done |= run.done;
      report_.why_not = run.why_not;
      if (!run.done || !judge(run.outputs, run.inputs)) break;
    }
    return std::move(report_);
  }

 private:
  bool judge(const std::vector<Tensor>& expected, const std::vector<Tensor>& inputs) {
    std::vector<Tensor> got;
    try {
      got = second_->run(inputs);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kInterrupted) throw;
      report_.passed = false;
      report_.failure = fmt::format("it does not run any more: {}", error.what());
      return false;
    }
    ++report_.runs;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Difference d = compare(expected[i], got[i], options_);
      const std::string& output = first_->graph().value(first_->graph().outputs[i]).name;
      if (d.largest > report_.max_abs_diff) {
        report_.max_abs_diff = d.largest;
        report_.worst_output = output;
      }
      if (d.failure.empty()) continue;
      report_.passed = false;
      report_.failure = fmt::format("output '{}': {}", output, d.failure);
      return false;
    }
    return true;
  }

  const SelfCheckOptions& options_;
  std::unique_ptr<Session> first_, second_;
  SelfCheckReport report_;
};

}  // namespace

SelfCheckReport compare_on_generated(const Graph& first, const Graph& second, const SelfCheckOptions& options,
                                     ThreadPool& pool) {
  std::int64_t bytes = 0;
  walk_graphs(first, [&](const SubgraphPath&, const Graph& graph) {
    for (std::size_t i = 0; i < graph.value_count(); ++i) {
      const Value& value = graph.value(static_cast<ValueId>(i));
      if (value.is_constant() && value.dtype != DType::kString) bytes += value.constant.bytes();
    }
  });
  if (bytes > options.largest_weights) {
    SelfCheckReport report;
    report.why_not =
        fmt::format("{:.1f} GB of weights would be in memory twice", static_cast<double>(bytes) / 1e9);
    return report;
  }
  return Check(first, second, options, pool).run();
}

}  // namespace pare
