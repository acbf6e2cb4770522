#include "engine/build/engine.h"

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"
#include "engine/build/cpu_engine.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/profile.h"

namespace pare {
namespace {

bool takes(const EnginePlan& plan, const std::vector<Dims>& dims) {
  if (plan.inputs.size() != dims.size()) return false;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (plan.tensors[static_cast<std::size_t>(plan.inputs[i])].dims != dims[i]) return false;
  return true;
}

}  // namespace

EnginePlan plan_at(const EngineFile& engine, const NamedSizes& sizes,
                   const std::function<void(Graph&)>& clean) {
  PARE_ASSERT(engine.graph != nullptr);
  Graph graph = fix_sizes(*engine.graph, 1, shapes_at(*engine.graph, sizes));
  if (clean) clean(graph);
  PlanOptions options;
  options.integer = engine.integer;
  set_precision(options, engine.plan.precision);
  options.fold_norms = std::any_of(engine.plan.layers.begin(), engine.plan.layers.end(),
                                   [](const PlanLayer& layer) { return normalizes(layer); });
  options.shortcuts = std::any_of(engine.plan.layers.begin(), engine.plan.layers.end(), has_shortcut);
  EnginePlan plan = make_plan(graph, options);
  plan_memory(plan);
  return plan;
}

Engine::Engine(EngineFile file, const EngineOptions& options) : file_(std::move(file)), options_(options) {
  if (file_.is_cpu()) {
    PARE_ASSERT(options_.pool != nullptr);
    main_ = load_cpu_engine(file_, *options_.pool);
    return;
  }
  PARE_ASSERT(options_.backend != nullptr);
  main_ = options_.backend->load(file_.plan);
}

EnginePlan Engine::make(const NamedSizes& sizes) const {
  const auto start = std::chrono::steady_clock::now();
  EnginePlan plan = plan_at(file_, sizes, options_.clean);
  plan.binaries = file_.plan.binaries;
  // The prepared plan whose inputs are nearest in size lends its tactics.
  const auto volume = [](const EnginePlan& p) {
    double elements = 1;
    for (const int id : p.inputs)
      elements += static_cast<double>(element_count(p.tensors[static_cast<std::size_t>(id)].dims));
    return elements;
  };
  const EnginePlan* near = &file_.plan;
  const auto distance = [&](const EnginePlan& p) {
    const double a = volume(p), b = volume(plan);
    return a > b ? a / b : b / a;
  };
  for (const EnginePlan& p : file_.more)
    if (distance(p) < distance(*near)) near = &p;
  options_.backend->adopt(plan, *near);
  plan_memory(plan);
  if (options_.log)
    options_.log(
        fmt::format("a plan for a shape that was not prepared, made in {:.2f} s",
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  return plan;
}

EngineRunner& Engine::at(const std::vector<Tensor>& inputs) {
  if (file_.is_cpu()) return *main_;
  std::vector<Dims> dims;
  for (const Tensor& t : inputs) dims.push_back(t.dims());
  if (takes(file_.plan, dims) || file_.graph == nullptr)
    return *main_;  // which refuses what it does not take
  const NamedSizes sizes = sizes_of(*file_.graph, file_.profile, dims);
  for (auto it = shapes_.begin(); it != shapes_.end(); ++it)
    if (it->dims == dims) {
      shapes_.splice(shapes_.begin(), shapes_, it);
      return *shapes_.front().runner;
    }
  const auto prepared = std::find_if(file_.more.begin(), file_.more.end(),
                                     [&](const EnginePlan& plan) { return takes(plan, dims); });
  if (shapes_.size() >= kMostShapes) shapes_.pop_back();
  Shape made;
  made.dims = dims;
  const EnginePlan plan = prepared == file_.more.end() ? make(sizes) : *prepared;
  check_fits(plan, dims.empty() || dims[0].empty() ? 1 : dims[0][0], options_.backend->facts().free_bytes,
             true);
  made.runner = options_.backend->load(plan, main_.get());
  shapes_.push_front(std::move(made));
  return *shapes_.front().runner;
}

}  // namespace pare
