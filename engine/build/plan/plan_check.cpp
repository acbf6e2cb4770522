// check_plan: what stands in an engine file is believed only after this.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/build/plan/engine_plan.h"
#include "engine/build/plan/program.h"

namespace pare {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

[[noreturn]] void bad(const std::string& what, const std::string& why) {
  throw make_error(ErrorCode::kBadFile, "the engine file is damaged: {}", why)
      .at(what)
      .hint("build it again");
}

// The part of a tensor that a view touches lies inside of it.
void check_view(const EnginePlan& plan, const PlanView& view, const ProgramLeaf* leaf,
                const std::string& what) {
  if (!view.present()) return;
  if (view.tensor >= static_cast<int>(plan.tensors.size())) bad(what, "a view of a tensor that is not there");
  if (view.dims.size() != view.strides.size() || view.dims.size() > limits::kMaxRank)
    bad(what, "sizes and strides that differ in number");
  std::int64_t low = view.offset, high = view.offset;
  if (view.offset < 0 || view.offset > kMostElements) bad(what, "an offset out of range");
  const auto reach = [&](std::int64_t& end, std::int64_t count, std::int64_t stride) {
    std::int64_t far = 0;
    if (__builtin_mul_overflow(count, stride, &far) || __builtin_add_overflow(end, far, &end))
      bad(what, "a view out of range");
  };
  for (std::size_t i = 0; i < view.dims.size(); ++i) {
    std::int64_t count = view.dims[i];
    if (count < 0 || count > kMostElements || view.strides[i] > kMostElements ||
        view.strides[i] < -kMostElements)
      bad(what, "a size out of range");
    if (leaf != nullptr && leaf->range_axis == static_cast<int>(i)) {
      if (leaf->lo < 0 || leaf->hi < leaf->lo || leaf->hi > count) bad(what, "a range outside of its axis");
      count = leaf->hi - leaf->lo;
    }
    if (count == 0) return;
    reach(view.strides[i] < 0 ? low : high, count - 1, view.strides[i]);
  }
  if (leaf != nullptr && leaf->index >= 0) {
    if (leaf->index_rows < 1 || leaf->index_rows > kMostElements || leaf->index_stride < 0 ||
        leaf->index_stride > kMostElements)
      bad(what, "a table out of range");
    reach(high, leaf->index_rows - 1, leaf->index_stride);
  }
  if (low < 0 || high >= element_count(plan.tensors[static_cast<std::size_t>(view.tensor)].dims))
    bad(what, "a view that leaves its tensor");
}

void check_program(const PlanLayer& layer, const std::string& what) {
  const Program& p = layer.program;
  if (p.steps.size() > 100000 || p.dims.size() > limits::kMaxRank) bad(what, "a program out of range");
  for (std::size_t i = 0; i < p.leaves.size(); ++i) {
    const ProgramLeaf& l = p.leaves[i];
    if (l.input < 0 || l.input >= static_cast<int>(layer.in.size()) ||
        !layer.in[static_cast<std::size_t>(l.input)].present())
      bad(what, "a leaf without an input");
    if (layer.in[static_cast<std::size_t>(l.input)].dims != p.dims)
      bad(what, "a leaf of other sizes than its program");
    if (l.range_axis >= static_cast<int>(p.dims.size()) || l.index >= static_cast<int>(i))
      bad(what, "a leaf out of range");
  }
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const ProgramStep& s = p.steps[i];
    if (s.op == "leaf") {
      if (s.n < 0 || s.n >= static_cast<int>(p.leaves.size())) bad(what, "a step without a leaf");
      continue;
    }
    if (s.op == "const") continue;
    const StepInfo* info = find_step(s.op);
    if (info == nullptr || static_cast<int>(s.args.size()) != info->args)
      bad(what, "a step of an unknown operator");
    for (const int a : s.args)
      if (a < 0 || a >= static_cast<int>(i)) bad(what, "a step that reads a later one");
  }
  for (const int r : p.results)
    if (r < 0 || r >= static_cast<int>(p.steps.size())) bad(what, "a result without a step");
}

void check_layer(const EnginePlan& plan, const PlanLayer& layer, const std::string& what) {
  const bool has_program = layer.kind == LayerKind::kPointwise || layer.kind == LayerKind::kRows;
  for (std::size_t i = 0; i < layer.in.size(); ++i) {
    const ProgramLeaf* leaf = nullptr;
    for (const ProgramLeaf& l : layer.program.leaves)
      if (l.input == static_cast<int>(i)) leaf = &l;
    check_view(plan, layer.in[i], leaf, what);
  }
  if (layer.out.empty()) bad(what, "a layer without an output");
  for (const PlanView& view : layer.out) {
    if (!view.present()) bad(what, "a layer without an output");
    check_view(plan, view, nullptr, what);
    if (plan.tensors[static_cast<std::size_t>(view.tensor)].role == PlanRole::kWeight ||
        plan.tensors[static_cast<std::size_t>(view.tensor)].role == PlanRole::kInput)
      bad(what, "a layer that writes what is only read");
  }
  check_program(layer, what);
  for (const ProgramStep& s : layer.post)
    if (find_step(s.op) == nullptr || find_step(s.op)->args != 1) bad(what, "a step of an unknown operator");
  const auto need = [&](bool ok) {
    if (!ok) bad(what, "operands that do not fit their layer");
  };
  const auto need_codes = [&] {
    need(layer.out.size() >= 2 && layer.out.back().dims == layer.out[0].dims &&
         bits(plan.tensors[static_cast<std::size_t>(layer.out.back().tensor)].dtype) == 8 &&
         bits(plan.tensors[static_cast<std::size_t>(layer.out[0].tensor)].dtype) != 8);
  };
  const auto rank = [&](std::size_t i) { return layer.in[i].present() ? layer.in[i].dims.size() : 0; };
  const PlanView& y = layer.out[0];
  const ConvGeometry& g = layer.conv;
  need(!copies_codes(layer) || layer.kind == LayerKind::kRows || layer.kind == LayerKind::kConv ||
       layer.kind == LayerKind::kGemm);
  if (has_program) {
    need(!layer.program.empty());
    if (layer.kind == LayerKind::kPointwise) {
      need(layer.program.results.size() == layer.out.size());
      for (const PlanView& view : layer.out)
        need(view.dims == layer.program.dims ||
             element_count(view.dims) == element_count(layer.program.dims));
      for (const PlanView& view : layer.out) need(view.dims.size() == layer.program.dims.size());
    } else {
      need(layer.in.size() >= 2 &&
           layer.program.results.size() + (copies_codes(layer) ? 1 : 0) == layer.out.size() &&
           !layer.program.dims.empty());
      for (std::size_t i = layer.in.size() - 2; i < layer.in.size(); ++i)
        if (layer.in[i].present())
          need(!layer.in[i].dims.empty() && element_count(layer.in[i].dims) == layer.program.dims.back());
      for (std::size_t o = 1; o < layer.out.size(); ++o) need(layer.out[o].dims == layer.program.dims);
      const std::int64_t all = element_count(layer.program.dims);
      const bool reduces = layer.op.rfind("Reduce", 0) == 0;
      need(!reduces || !copies_codes(layer));
      if (copies_codes(layer)) need_codes();
      need(reduces ? element_count(y.dims) * std::max<std::int64_t>(layer.program.dims.back(), 1) == all
                   : y.dims == layer.program.dims);
    }
    return;
  }
  for (const std::int64_t v : {g.n, g.h, g.w, g.c, g.oh, g.ow, g.m, g.kh, g.kw, g.top, g.left})
    if (v < 0 || v > (std::int64_t{1} << 31)) bad(what, "a convolution out of range");
  for (const std::int64_t v : {g.group, g.sh, g.sw, g.dh, g.dw})
    if (v < 1 || v > (std::int64_t{1} << 31)) bad(what, "a convolution out of range");
  if (layer.kind == LayerKind::kConv) {
    need(layer.in.size() >= 5 && layer.in.size() <= kLinearSlots && rank(0) == 4 && g.c % g.group == 0 &&
         g.m % g.group == 0);
    need(layer.in[0].dims == Dims({g.n, g.h, g.w, g.c}) && is_dense(layer.in[0]));
    need(rank(1) > 0 && element_count(layer.in[1].dims) == g.m * g.kh * g.kw * g.group_c() &&
         is_dense(layer.in[1]));
    need(y.dims == Dims({g.n, g.oh, g.ow, g.m}) && is_dense(y));
  } else if (layer.kind == LayerKind::kGemm) {
    need(layer.in.size() >= 5 && layer.in.size() <= kLinearSlots && rank(0) == 3 && rank(1) == 3 &&
         y.dims.size() == 3);
    const Dims &x = layer.in[0].dims, &w = layer.in[1].dims;
    need(x[0] == y.dims[0] && w[0] == y.dims[0] && x[1] == y.dims[1] && w[1] == y.dims[2] && x[2] == w[2]);
    if (g.n > 0) need(g.rows() == y.dims[1] && g.m == y.dims[2] && g.c == x[2] && g.kh == 1 && g.kw == 1);
  } else if (layer.kind == LayerKind::kAttention) {
    need(layer.in.size() == 4 && rank(0) == 4 && rank(1) == 4 && rank(2) == 4 && y.dims.size() == 4);
    const Dims &q = layer.in[0].dims, &k = layer.in[1].dims, &v = layer.in[2].dims;
    need(q[0] == k[0] && q[0] == v[0] && k[1] == v[1] && k[1] > 0 && q[1] % k[1] == 0 && q[3] == k[3] &&
         k[2] == v[2]);
    need(y.dims == Dims({q[0], q[1], q[2], v[3]}));
    if (layer.in[3].present()) need(layer.in[3].dims == Dims({q[0], q[1], q[2], k[2]}));
  } else {
    need(layer.in.size() == 1 && layer.in[0].dims == Dims({g.n, g.h, g.w, g.c}) && is_dense(layer.in[0]));
    need(y.dims == Dims({g.n, g.oh, g.ow, g.c}) && is_dense(y));
  }
  if (layer.kind == LayerKind::kConv || layer.kind == LayerKind::kGemm) {
    for (const std::size_t slot : {std::size_t{2}, std::size_t{4}})
      if (layer.in[slot].present())
        need(layer.in[slot].dims == Dims({y.dims.back()}) && is_dense(layer.in[slot]));
    if (layer.in[3].present()) need(layer.in[3].dims == y.dims);
    const auto has = [&](std::size_t slot) { return slot < layer.in.size() && layer.in[slot].present(); };
    for (const std::size_t slot : {kNormColumns, kResidualGamma, kResidualBeta, kYScales})
      if (has(slot)) need(layer.in[slot].dims == Dims({y.dims.back()}) && is_dense(layer.in[slot]));
    for (const std::size_t slot : {kShortBias, kShortScale})
      if (has(slot)) need(layer.in[slot].dims == Dims({y.dims.back()}) && is_dense(layer.in[slot]));
    need(has_shortcut(layer) == has(kShortX));
    if (has_shortcut(layer)) {
      const ConvGeometry& c = layer.shortcut.conv;
      for (const std::int64_t v : {c.n, c.h, c.w, c.c, c.oh, c.ow, c.m, c.sh, c.sw})
        if (v < 1 || v > (std::int64_t{1} << 31)) bad(what, "a convolution out of range");
      const DType type = layer.shortcut.type;
      need(layer.kind == LayerKind::kGemm && layer.in.size() == kLinearSlots && y.dims[0] == 1 &&
           !layer.in[3].present() && has(kShortW) && c.kh == 1 && c.kw == 1 && c.group == 1 && c.top == 0 &&
           c.left == 0 && (c.oh - 1) * c.sh < c.h && (c.ow - 1) * c.sw < c.w && c.rows() == y.dims[1] &&
           c.m == y.dims[2] && layer.shortcut.y_scale > 0 &&
           (type == DType::kI8 || type == DType::kU8 || type == DType::kE4M3FN || type == DType::kF16 ||
            type == DType::kBF16));
      need(layer.in[kShortX].dims == Dims({c.n, c.h, c.w, c.c}) && is_dense(layer.in[kShortX]) &&
           element_count(layer.in[kShortW].dims) == c.m * c.c && is_dense(layer.in[kShortW]));
    }
    const auto sums = [&](const PlanView& v, std::int64_t columns) {
      need(layer.kind == LayerKind::kGemm && y.dims[0] == 1 && columns % 32 == 0 && v.strides.size() == 3 &&
           v.strides[2] == 1 && v.strides[1] == 2 && v.strides[0] >= 0 && v.strides[0] % 2 == 0 &&
           v.offset % 2 == 0 && v.dims == Dims({y.dims[1], columns / 32, 2}) &&
           plan.tensors[static_cast<std::size_t>(v.tensor)].dtype == DType::kF32);
    };
    if (has(kNormStats)) sums(layer.in[kNormStats], layer.in[0].dims[2]);
    if (has(kNormStats)) need(has(kNormColumns));
    if (has(kResidualStats)) sums(layer.in[kResidualStats], y.dims[2]);
    need(layer.out.size() <= 2);
    if (copies_codes(layer)) {
      need_codes();
      need(layer.out[1].strides == y.strides && layer.out[1].offset == y.offset);
    } else if (layer.out.size() == 2) {
      sums(layer.out[1], y.dims[2]);
      need(is_dense(layer.out[1]));
    }
  }
}

}  // namespace

void check_plan(const EnginePlan& plan, const std::string& what) {
  if (plan.tensors.size() > 10'000'000 || plan.layers.size() > 10'000'000) bad(what, "too many layers");
  for (const PlanTensor& t : plan.tensors) {
    if (bits(t.dtype) < 8 || t.dims.size() > limits::kMaxRank)
      bad(what, "a tensor of type " + std::string(name(t.dtype)));
    for (const std::int64_t d : t.dims)
      if (d < 0 || d > kMostElements) bad(what, "a tensor out of range");
    const std::int64_t bytes = t.bytes(),
                       end = t.role == PlanRole::kWeight ? plan.weight_bytes : plan.arena_bytes;
    if (t.role == PlanRole::kInput || t.role == PlanRole::kOutput) continue;
    if (t.offset < 0 || t.offset % 256 != 0 || bytes > end || t.offset > end - bytes)
      bad(what, "a tensor outside of its memory");
  }
  for (const auto* list : {&plan.inputs, &plan.outputs})
    for (const int id : *list)
      if (id < 0 || id >= static_cast<int>(plan.tensors.size()) ||
          plan.tensors[static_cast<std::size_t>(id)].role !=
              (list == &plan.inputs ? PlanRole::kInput : PlanRole::kOutput))
        bad(what, "an input or output that is none");
  for (const PlanLayer& layer : plan.layers) check_layer(plan, layer, what + ": layer '" + layer.name + "'");
}

}  // namespace pare
