#include "engine/build/plan/engine_plan.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/sha256.h"

namespace pare {

const char* name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kConv:
      return "conv";
    case LayerKind::kGemm:
      return "gemm";
    case LayerKind::kAttention:
      return "attention";
    case LayerKind::kPointwise:
      return "pointwise";
    case LayerKind::kRows:
      return "rows";
    case LayerKind::kPool:
      return "pool";
  }
  return "?";
}

bool Epilogue::identity() const {
  return act.kind == Activation::Kind::kClip && std::isinf(act.lo) && std::isinf(act.hi);
}

bool Epilogue::relu() const {
  return act.kind == Activation::Kind::kClip && act.lo == 0 && std::isinf(act.hi);
}

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

bool has_shortcut(const PlanLayer& layer) { return layer.shortcut.conv.n > 0; }

PlanLayer shortcut_layer(const PlanLayer& layer) {
  PlanLayer made;
  made.kind = LayerKind::kConv;
  made.name = layer.name + " shortcut";
  made.conv = layer.shortcut.conv;
  made.in = {layer.in[kShortX], layer.in[kShortW], layer.in[kShortBias], {}, layer.in[kShortScale]};
  made.out = layer.out;
  made.epilogue.alpha = layer.shortcut.alpha;
  made.epilogue.y_scale = layer.shortcut.y_scale, made.epilogue.y_zero = layer.shortcut.y_zero;
  return made;
}

bool copies_codes(const PlanLayer& layer) { return layer.copy_scale != 0; }

bool leaves_sums(const PlanLayer& layer) {
  return (layer.kind == LayerKind::kConv || layer.kind == LayerKind::kGemm) && layer.out.size() > 1 &&
         !copies_codes(layer);
}

bool normalizes(const PlanLayer& layer) {
  const auto has = [&](std::size_t slot) { return slot < layer.in.size() && layer.in[slot].present(); };
  return has(kNormStats) || has(kResidualStats);
}

PlanView whole(const EnginePlan& plan, int tensor) {
  const Dims& dims = plan.tensors[static_cast<std::size_t>(tensor)].dims;
  return {tensor, dims, dense_strides(dims), 0};
}

bool is_dense(const PlanView& view) {
  std::int64_t expected = 1;
  for (std::size_t i = view.dims.size(); i-- > 0;) {
    if (view.dims[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.dims[i];
  }
  return true;
}

void hash_weights(EnginePlan& plan) {
  for (PlanTensor& t : plan.tensors)
    if (t.role == PlanRole::kWeight && t.hash.empty()) t.hash = hex(sha256(t.data.byte_span()));
}

int count_kernels(const EnginePlan& plan) {
  int count = 0;
  for (const PlanLayer& layer : plan.layers) count += layer.kernels;
  return count;
}

std::string to_text(const EnginePlan& plan) {
  std::string text;
  const auto operand = [&](const PlanView& view) {
    if (!view.present()) return std::string("-");
    const PlanTensor& tensor = plan.tensors[static_cast<std::size_t>(view.tensor)];
    return std::string(name(tensor.dtype)) + to_string(view.dims) + (is_dense(view) ? "" : "~");
  };
  int number = 0;
  for (const PlanLayer& layer : plan.layers) {
    text += fmt::format("{:4} {:<9} {:<9}", number++, name(layer.kind), layer.op);
    for (const PlanView& view : layer.out) text += " " + operand(view);
    text += " <-";
    for (const PlanView& view : layer.in) text += " " + operand(view);
    text += "  " + layer.name;
    if (layer.nodes.size() > 1) text += fmt::format(" (+{})", layer.nodes.size() - 1);
    if (!layer.tactic.empty()) text += fmt::format("  [{} {:.2f} us]", layer.tactic, layer.microseconds);
    text += "\n";
  }
  return text;
}

}  // namespace pare
