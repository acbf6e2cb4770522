// The 1x1 convolution that is nothing but a product's residual becomes a part of that product: its result is
// never stored. The first block of a stage of a residual network.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"

namespace pare::planning {
namespace {

const PlanTensor& tensor_of(const EnginePlan& plan, const PlanView& view) {
  return plan.tensors[static_cast<std::size_t>(view.tensor)];
}

bool is_weight(const EnginePlan& plan, const PlanView& view) {
  return tensor_of(plan, view).role == PlanRole::kWeight;
}

// A product that may hold another one: one batch, ends in nothing but an activation, a residual and codes.
bool can_hold(const EnginePlan& plan, const PlanLayer& layer) {
  if (layer.kind != LayerKind::kGemm || layer.in.size() != 5 || !layer.in[3].present() || layer.conv.n == 0 ||
      leaves_sums(layer) || !is_weight(plan, layer.in[1]))
    return false;
  const PlanTensor& residual = tensor_of(plan, layer.in[3]);
  const DType type = residual.dtype;
  return residual.role == PlanRole::kActivation && layer.out[0].dims[0] == 1 && is_dense(layer.in[0]) &&
         is_dense(layer.out[0]) && is_dense(layer.in[3]) && layer.in[3].offset == 0 &&
         element_count(layer.in[3].dims) == element_count(residual.dims) &&
         (type == DType::kI8 || type == DType::kU8 || type == DType::kE4M3FN || type == DType::kF16 ||
          type == DType::kBF16);
}

bool can_be_held(const EnginePlan& plan, const PlanLayer& layer, const PlanLayer& by) {
  const ConvGeometry& g = layer.conv;
  const bool product = layer.kind == LayerKind::kConv || layer.kind == LayerKind::kGemm;
  if (!product || layer.in.size() != 5 || layer.out.size() != 1 || layer.in[3].present() || g.n == 0 ||
      !layer.epilogue.identity() || !is_weight(plan, layer.in[1]))
    return false;
  return g.kh == 1 && g.kw == 1 && g.group == 1 && g.top == 0 && g.left == 0 && g.m == by.conv.m &&
         g.rows() == by.conv.rows() && is_dense(layer.in[0]) && is_dense(layer.in[1]) &&
         element_count(layer.in[0].dims) == g.n * g.h * g.w * g.c &&
         tensor_of(plan, layer.in[0]).dtype == tensor_of(plan, by.in[0]).dtype &&
         tensor_of(plan, layer.in[1]).dtype == tensor_of(plan, by.in[1]).dtype;
}

}  // namespace

void absorb_shortcuts(EnginePlan& plan) {
  std::vector<bool> gone(plan.layers.size(), false);
  for (std::size_t b = 0; b < plan.layers.size(); ++b) {
    PlanLayer& by = plan.layers[b];
    if (!can_hold(plan, by)) continue;
    const int id = by.in[3].tensor;
    std::size_t made = b, readers = 0;
    for (std::size_t i = 0; i < plan.layers.size(); ++i) {
      for (const PlanView& view : plan.layers[i].out)
        if (view.tensor == id) made = i;
      for (const PlanView& view : plan.layers[i].in) readers += view.tensor == id ? 1 : 0;
    }
    if (made == b || readers != 1 || gone[made] || !can_be_held(plan, plan.layers[made], by)) continue;
    PlanLayer& held = plan.layers[made];
    ConvGeometry& g = by.shortcut.conv = held.conv;
    by.shortcut.alpha = held.epilogue.alpha;
    by.shortcut.y_scale = held.epilogue.y_scale, by.shortcut.y_zero = held.epilogue.y_zero;
    by.shortcut.type = tensor_of(plan, by.in[3]).dtype;
    by.in[3] = {};
    by.in.resize(kLinearSlots);
    by.in[kShortX] = {
        held.in[0].tensor, {g.n, g.h, g.w, g.c}, dense_strides({g.n, g.h, g.w, g.c}), held.in[0].offset};
    by.in[kShortW] = {
        held.in[1].tensor, {g.m, 1, 1, g.c}, dense_strides({g.m, 1, 1, g.c}), held.in[1].offset};
    by.in[kShortBias] = held.in[2];
    by.in[kShortScale] = held.in[4];
    by.nodes.insert(by.nodes.end(), held.nodes.begin(), held.nodes.end());
    plan.tensors[static_cast<std::size_t>(id)].dims = {0};  // never stored
    gone[made] = true;
  }
  std::vector<PlanLayer> left;
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    if (!gone[i]) left.push_back(std::move(plan.layers[i]));
  plan.layers = std::move(left);
}

}  // namespace pare::planning
