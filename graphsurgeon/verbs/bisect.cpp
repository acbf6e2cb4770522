#include "graphsurgeon/verbs/bisect.h"

#include <utility>

namespace pare {
namespace {

struct Trial {
  SelfCheckReport check;
  PassContext context;
  std::string last_pass;
};

class Bisection {
 public:
  Bisection(const Graph& graph, std::span<const Pass* const> passes, const RunPassesOptions& options,
            const SelfCheckOptions& check, ThreadPool& pool)
      : graph_(graph), passes_(passes), options_(options), check_(check), pool_(pool) {}

  BisectReport run() {
    Trial whole = run_with(INT64_MAX);
    report_.changes = whole.context.changes;
    report_.checked = whole.check.done;
    report_.why_not = whole.check.why_not;
    if (!whole.check.done || whole.check.passed) return report_;
    std::int64_t good = 0, bad = whole.context.changes;
    std::string failure = whole.check.failure;
    while (bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      const Trial trial = run_with(middle);
      (trial.check.passed ? good : bad) = middle;
      if (!trial.check.passed) failure = trial.check.failure;
    }
    const Trial last = run_with(bad);
    report_.found = true;
    report_.change = bad;
    report_.pass = last.last_pass;
    report_.what = last.context.last_change;
    report_.failure = last.check.passed ? failure : last.check.failure;
    return report_;
  }

 private:
  Trial run_with(std::int64_t changes) {
    Trial trial;
    Graph changed = graph_;
    RunPassesOptions options = options_;
    options.context.changes_left = changes;
    run_passes(changed, passes_, options, &trial.context);
    trial.last_pass = trial.context.last_pass;
    trial.check = compare_on_generated(graph_, changed, check_, pool_);
    ++report_.runs;
    return trial;
  }

  const Graph& graph_;
  std::span<const Pass* const> passes_;
  const RunPassesOptions& options_;
  const SelfCheckOptions& check_;
  ThreadPool& pool_;
  BisectReport report_;
};

}  // namespace

BisectReport bisect_passes(const Graph& graph, std::span<const Pass* const> passes,
                           const RunPassesOptions& options, const SelfCheckOptions& check, ThreadPool& pool) {
  return Bisection(graph, passes, options, check, pool).run();
}

}  // namespace pare
