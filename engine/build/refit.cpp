#include "engine/build/refit.h"

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/build/plan/plan_json.h"

namespace pare {
namespace {

[[noreturn]] void differs(const std::string& what) {
  throw make_error(ErrorCode::kUnsupported,
                   "the engine is of another graph, or was built with other options: {}", what)
      .hint("build an engine of this model");
}

}  // namespace

void refit(EnginePlan& fresh, const EnginePlan& tuned) {
  if (fresh.precision != tuned.precision) differs("it stores values as " + tuned.precision);
  if (fresh.tensors.size() != tuned.tensors.size() || fresh.layers.size() != tuned.layers.size() ||
      fresh.inputs != tuned.inputs || fresh.outputs != tuned.outputs)
    differs(fmt::format("it has {} layers, the model {}", tuned.layers.size(), fresh.layers.size()));
  for (std::size_t i = 0; i < fresh.tensors.size(); ++i) {
    const PlanTensor &a = fresh.tensors[i], &b = tuned.tensors[i];
    if (a.dtype != b.dtype || a.dims != b.dims || a.role != b.role) differs("tensor '" + a.name + "'");
  }
  for (std::size_t i = 0; i < fresh.layers.size(); ++i) {
    PlanLayer& layer = fresh.layers[i];
    const PlanLayer& old = tuned.layers[i];
    layer.tactic = old.tactic;
    layer.microseconds = old.microseconds;
    layer.workspace = old.workspace;
    layer.kernels = old.kernels;
    layer.realized = old.realized;
  }
  const Json a = plan_to_json(fresh), b = plan_to_json(tuned);
  for (std::size_t i = 0; i < fresh.layers.size(); ++i)
    if (a["layers"][i] != b["layers"][i]) differs("layer '" + fresh.layers[i].name + "'");
  fresh.binaries = tuned.binaries;
}

}  // namespace pare
