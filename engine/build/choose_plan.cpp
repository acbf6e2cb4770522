#include "engine/build/choose_plan.h"

#include <algorithm>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/build/engine.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/precision_choice.h"

namespace pare {
namespace {

// All but `declined`.
void add(TuneReport& to, const TuneReport& more) {
  to.timed += more.timed, to.from_cache += more.from_cache, to.compiled += more.compiled;
  to.compile_seconds += more.compile_seconds, to.timing_seconds += more.timing_seconds;
}

class Chooser {
 public:
  Chooser(EngineBackend& backend, const Graph& graph, const ChooseOptions& options)
      : backend_(backend), graph_(graph), options_(options) {}

  TuneReport choose(EnginePlan& plan) {
    TuneReport report = tune(graph_, options_.plan, plan);
    take_faster(plan, report);
    return report;
  }

 private:
  void log(const std::string& text) const {
    if (options_.tune.log) options_.tune.log(text);
  }

  // With and without shortcuts inside of the products that add them, where there are such, and the faster of
  // the two, as whole graphs.
  TuneReport tune(const Graph& graph, PlanOptions options, EnginePlan& plan) const {
    TuneReport report = tune_norms(graph, options, plan);
    options.shortcuts = true;
    EnginePlan inside = make_plan(graph, options);
    if (std::none_of(inside.layers.begin(), inside.layers.end(), has_shortcut)) return report;
    plan_memory(inside);
    try {
      add(report, backend_.tune(inside, options_.tune));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      log(error.what());  // no kernel for one of them on this device
      return report;
    }
    plan_memory(inside);
    const std::vector<double> us = whole_graphs({&plan, &inside});
    log(fmt::format("shortcuts in the products: {} kernels, {:.1f} us; apart: {} kernels, {:.1f} us",
                    count_kernels(inside), us[1], count_kernels(plan), us[0]));
    if (us[1] < us[0]) plan = std::move(inside);
    return report;
  }

  // With and without normalizations inside of the products around them, where there are such, and the faster
  // of the two.
  TuneReport tune_norms(const Graph& graph, PlanOptions options, EnginePlan& plan) const {
    TuneReport report = backend_.tune(plan, options_.tune);
    plan_memory(plan);
    if (std::none_of(plan.layers.begin(), plan.layers.end(),
                     [](const PlanLayer& layer) { return normalizes(layer); }))
      return report;
    options.fold_norms = false;
    EnginePlan apart = make_plan(graph, options);
    plan_memory(apart);
    const TuneReport second = backend_.tune(apart, options_.tune);
    plan_memory(apart);
    const double with = planned_microseconds(plan), without = planned_microseconds(apart);
    log(fmt::format("normalizations in the products: {} kernels, {:.1f} us; apart: {} kernels, {:.1f} us",
                    count_kernels(plan), with, count_kernels(apart), without));
    add(report, second);
    if (without < with) {
      plan = std::move(apart);
      report.declined = second.declined;
    }
    return report;
  }

  // Microseconds of each plan as a graph, from the timing cache if it was measured before: the same choice
  // again.
  std::vector<double> whole_graphs(const std::vector<const EnginePlan*>& plans) const {
    const DeviceFacts facts = backend_.facts();
    std::string text = facts.name;
    for (const auto& [library, version] : facts.versions) text += " " + library + " " + version;
    for (const EnginePlan* plan : plans) text += "\n" + to_text(*plan);
    const std::string key = "graphs " + hex(sha256(text));
    const std::vector<TimingCache::Entry>* known = options_.tune.cache->find(key);
    std::vector<TimingCache::Entry> entries;
    if (known != nullptr && known->size() == plans.size()) {
      entries = *known;
    } else if (options_.tune.require_cached) {
      throw make_error(ErrorCode::kUnsupported, "how fast the whole graphs are is not in the timing cache")
          .hint("build once without --require-cached-tactics");
    } else {
      for (const double ms : measured_milliseconds(backend_, plans, options_.inputs(*plans[0]))) {
        TimingCache::Entry entry;
        entry.tactic = std::to_string(entries.size());
        entry.microseconds = ms * 1000;
        entries.push_back(std::move(entry));
      }
      options_.tune.cache->put(key, entries);
    }
    std::vector<double> us;
    for (const TimingCache::Entry& entry : entries) us.push_back(entry.microseconds);
    return us;
  }

  // Of the plan as the model asks for it, all layers float, and only those float that are no slower so: the
  // fastest.
  void take_faster(EnginePlan& plan, TuneReport& report) const {
    const std::set<std::string> low = low_precision_nodes(plan);
    if (!options_.plan.integer || options_.as_asked || low.empty() || options_.open_sizes) return;
    const auto without = [&](const std::set<std::string>& nodes) {
      Graph changed = graph_;
      drop_quantization(changed, nodes);
      EnginePlan made = make_plan(changed, options_.plan);
      plan_memory(made);
      add(report, tune(changed, options_.plan, made));
      return made;
    };
    EnginePlan all = without(low);
    std::map<std::string, FloatIsFaster> faster = faster_as_float(plan, all);
    if (faster.empty()) return;
    std::set<std::string> nodes;
    for (const auto& entry : faster) nodes.insert(entry.first);
    EnginePlan mixed = nodes == low ? all : without(nodes);
    const std::vector<double> us = whole_graphs({&plan, &all, &mixed});
    const double asked = us[0], as_float = us[1], as_mixed = us[2];
    if (options_.say)
      options_.say(fmt::format("as asked for {:.1f} us; {} of {} layers float {:.1f} us; all float {:.1f} us",
                               asked, nodes.size(), low.size(), as_mixed, as_float));
    if (asked <= std::min(as_mixed, as_float)) return;
    if (as_float < as_mixed)
      for (const std::string& node : low) faster[node] = {asked, as_float};
    EnginePlan& best = as_float < as_mixed ? all : mixed;
    explain_float(best, plan, faster);
    plan = std::move(best);
  }

  EngineBackend& backend_;
  const Graph& graph_;
  const ChooseOptions& options_;
};

}  // namespace

EngineBackend* choose_device(const std::string& asked, std::string& note) {
  if (asked == "cpu") return nullptr;
  if (asked != "auto") {
    cuda_backend().facts();
    return &cuda_backend();
  }
  std::string why;
  EngineBackend* backend = try_cuda_backend(why);
  try {
    if (backend != nullptr) {
      backend->facts();
      return backend;
    }
  } catch (const Error& error) {
    why = error.what();
  }
  note = fmt::format("no GPU to build for ({}): this is an engine for the CPU", why);
  return nullptr;
}

PrecisionChoice precision_choice(const std::string& word, bool cpu, const std::string& where) {
  const std::string asked = word.empty() ? (cpu ? "fp32" : "fp16") : word;
  const std::pair<const char*, const char*> words[] = {{"fp16", "float16"}, {"bf16", "bfloat16"},
                                                       {"fp32", "float32"}, {"tf32", "tf32"},
                                                       {"int8", "float16"}, {"fp8", "float16"}};
  const auto* found = std::find_if(std::begin(words), std::end(words),
                                   [&](const auto& known) { return asked == known.first; });
  if (found == std::end(words))
    throw make_error(ErrorCode::kUsage, "'{}' is no precision", asked)
        .at(where)
        .hint("fp16, bf16, fp32 or tf32; int8 or fp8 for what the model asks for, also where it is slower");
  if (cpu && asked != "fp32")
    throw make_error(ErrorCode::kUnsupported, "an engine for the CPU stores float values as fp32, not {}",
                     asked)
        .at(where)
        .hint("leave it out, or build for a GPU");
  return {found->second, asked == "int8" || asked == "fp8"};
}

TuneReport choose_plan(EngineBackend& backend, const Graph& graph, const ChooseOptions& options,
                       EnginePlan& plan) {
  return Chooser(backend, graph, options).choose(plan);
}

TuneReport tune_engine(EngineBackend& backend, const Graph& graph, const ChooseOptions& options,
                       const std::function<void(Graph&)>& clean, EngineFile& engine) {
  const std::int64_t free = backend.facts().free_bytes;
  check_fits(engine.plan, batch_of(engine.plan), free);
  TuneReport report = choose_plan(backend, graph, options, engine.plan);
  check_fits(engine.plan, batch_of(engine.plan), free);  // with the workspace of what was chosen
  for (const ProfilePoint point : {ProfilePoint::kMin, ProfilePoint::kMax}) {
    const NamedSizes sizes = sizes_at(engine.profile, point);
    if (engine.profile.empty() || sizes == sizes_at(engine.profile, ProfilePoint::kOpt)) continue;
    EnginePlan plan = plan_at(engine, sizes, clean);
    check_fits(plan, batch_of(plan), free);
    add(report, backend.tune(plan, options.tune));
    plan_memory(plan);
    engine.more.push_back(std::move(plan));
  }
  return report;
}

std::int64_t batch_of(const EnginePlan& plan) {
  for (const int id : plan.inputs)
    if (!plan.tensors[static_cast<std::size_t>(id)].dims.empty())
      return plan.tensors[static_cast<std::size_t>(id)].dims[0];
  return 1;
}

}  // namespace pare
