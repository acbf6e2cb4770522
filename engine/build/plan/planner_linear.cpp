// Convolutions and products with what their kernels absorb, and their weights.
#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"
#include "engine/numeric/convert.h"
#include "engine/ops/integer/qlinear.h"

namespace pare::planning {
namespace {

std::int64_t size_of(DType type) { return bits(type) / 8; }

// [M,C,kH,kW] of any byte-sized type -> [M,kH,kW,padded C], or [kH,kW,M] when there is one channel a group.
Tensor pack_conv(const Tensor& w, std::int64_t padded, bool depthwise) {
  const Dims& d = w.dims();
  const std::int64_t m = d[0], c = d[1], kh = d[2], kw = d[3], size = size_of(w.dtype());
  Tensor packed = Tensor::allocate(w.dtype(), depthwise ? Dims{kh, kw, m} : Dims{m, kh, kw, padded});
  auto* out = packed.mut<std::byte>();
  const auto* in = w.as<std::byte>();
  std::memset(out, 0, static_cast<std::size_t>(packed.bytes()));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < c; ++j)
      for (std::int64_t y = 0; y < kh; ++y)
        for (std::int64_t x = 0; x < kw; ++x) {
          const std::int64_t to = depthwise ? (y * kw + x) * m + i : ((i * kh + y) * kw + x) * padded + j;
          std::memcpy(out + to * size, in + (((i * c + j) * kh + y) * kw + x) * size,
                      static_cast<std::size_t>(size));
        }
  return packed;
}

// The weight of the same convolution on a space-to-depth map, by 2 both ways, channels padded to 4 each.
Tensor pack_by_two(const Tensor& w, std::int64_t shift_y, std::int64_t shift_x) {
  const Dims& d = w.dims();
  const std::int64_t m = d[0], c = d[1], kh = d[2], kw = d[3], size = size_of(w.dtype());
  const std::int64_t h2 = (kh + shift_y + 1) / 2, w2 = (kw + shift_x + 1) / 2;
  Tensor packed = Tensor::allocate(w.dtype(), {m, h2, w2, 16});
  auto* out = packed.mut<std::byte>();
  std::memset(out, 0, static_cast<std::size_t>(packed.bytes()));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < c; ++j)
      for (std::int64_t y = 0; y < kh; ++y)
        for (std::int64_t x = 0; x < kw; ++x) {
          const std::int64_t sy = y + shift_y, sx = x + shift_x;
          const std::int64_t to = ((i * h2 + sy / 2) * w2 + sx / 2) * 16 + (sy % 2 * 2 + sx % 2) * 4 + j;
          std::memcpy(out + to * size, w.as<std::byte>() + (((i * c + j) * kh + y) * kw + x) * size,
                      static_cast<std::size_t>(size));
        }
  return packed;
}

Tensor transposed(const Tensor& w) {  // [K,N] -> [N,K]
  const std::int64_t k = w.dims()[0], n = w.dims()[1], size = size_of(w.dtype());
  Tensor out = Tensor::allocate(w.dtype(), {n, k});
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < k; ++i)
      std::memcpy(out.mut<std::byte>() + (j * k + i) * size, w.as<std::byte>() + (i * n + j) * size,
                  static_cast<std::size_t>(size));
  return out;
}

Tensor as_type(const Tensor& w, DType type) {
  if (w.dtype() == type) return w;
  Tensor out = Tensor::allocate(type, w.dims());
  convert(w.view(), out.view());
  return out;
}

ValueId input(const Node& node, int slot) {
  return static_cast<std::size_t>(slot) < node.in.size() ? node.in[static_cast<std::size_t>(slot)]
                                                         : ValueId::kNone;
}

double zero_of(const Graph& graph, ValueId id) {
  return id == ValueId::kNone || graph.value(id).dtype == DType::kE4M3FN
             ? 0
             : static_cast<double>(graph.value(id).constant.to_ints()[0]);
}

bool quantized(const Node& node) { return node.is("pare", "QConv") || node.is("pare", "QMatMul"); }

}  // namespace

PlanView Planner::residual_operand(const Node& node, int slot, DType dtype, const Dims& dims) {
  const ValueId id = input(node, slot);
  if (id == ValueId::kNone) return {};
  return dense_operand(id, dtype, dims);
}

// Slots 2 to 4 and the output. `layer` has x and w, and its geometry.
void Planner::finish_linear(const Node& node, PlanLayer& layer, std::int64_t columns) {
  Epilogue& e = layer.epilogue;
  read_activation(node, e.act);
  const ValueId out = node.out[0];
  const Dims dims = layer.kind == LayerKind::kConv
                        ? Dims{layer.conv.n, layer.conv.oh, layer.conv.ow, layer.conv.m}
                        : Dims{layer.in[0].dims[0], layer.in[0].dims[1], columns};
  const bool codes = quantized(node);
  layer.in.resize(std::max<std::size_t>(layer.in.size(), 5));
  Codes absorbed;
  PlanView whole_out;
  whole_out.dims = sizes(out);
  whole_out.strides = dense_strides(whole_out.dims);
  const bool writes_codes = !(codes && input(node, kQYScale) != ValueId::kNone) &&
                            absorb_quantizers(out, whole_out, columns, absorbed);
  const int target = writes_codes ? add_tensor(graph_.value(out).name + "_codes", absorbed.type, sizes(out))
                                  : tensor_for(out, sizes(out));
  const DType out_type = tensor(target).dtype;
  Codes among;
  const bool holds_codes = !writes_codes && !(codes && input(node, kQYScale) != ValueId::kNone) &&
                           bits(out_type) == 16 && tensor(target).role == PlanRole::kActivation &&
                           absorb_quantizers(out, whole_out, columns, among, true);
  const ValueId bias = input(node, codes ? static_cast<int>(kQBias) : 2);
  if (!folded_bias_.empty()) {
    layer.in[2] = whole(plan_, weight(layer.name + "_bias", std::move(folded_bias_)));
    folded_bias_ = {};
  } else if (bias != ValueId::kNone) {
    const DType type = codes || bits(out_type) != 16 ? DType::kF32 : options_.precision;
    const auto key = std::make_pair(bias, 100 + static_cast<int>(type));
    if (weights_.count(key) == 0)
      weights_[key] =
          weight_as(graph_.value(bias).name, graph_.value(bias).constant.reshaped({columns}), type);
    layer.in[2] = whole(plan_, weights_[key]);
  }
  const ValueId residual = input(node, codes ? static_cast<int>(kQResidual) : 3);
  const auto folded = folded_.find(residual);
  if (residual != ValueId::kNone && folded != folded_.end() && !codes && layer.kind == LayerKind::kGemm) {
    layer.in[3] = dense_operand(folded->second.x, storage(residual), dims);
    normalize_residual(folded->second, layer);
  } else if (residual != ValueId::kNone) {
    layer.in[3] = dense_operand(residual, storage(residual), dims);
  }
  if (codes) {
    const auto one = [&](int slot) { return *graph_.value(input(node, slot)).constant.as<float>(); };
    const Tensor& ws = graph_.value(input(node, kQWScale)).constant;
    Tensor scale = Tensor::allocate(DType::kF32, {columns});
    for (std::int64_t i = 0; i < columns; ++i)
      scale.mut<float>()[i] = one(kQXScale) * ws.as<float>()[ws.size() == 1 ? 0 : i];
    if (input(node, kQYScale) != ValueId::kNone) {
      e.y_scale = one(kQYScale);
      e.y_zero = static_cast<float>(zero_of(graph_, input(node, kQYZero)));
    }
    if (residual != ValueId::kNone && input(node, kQResidualScale) != ValueId::kNone)
      e.r_scale = one(kQResidualScale);
    // (x - zero) w = x w - zero sum(w): zero points of x and of the residual move into the bias.
    const double x_zero = zero_of(graph_, input(node, kQXZero)),
                 r_zero = zero_of(graph_, input(node, kQResidualZero)) * static_cast<double>(e.r_scale);
    if (x_zero != 0 || r_zero != 0) {
      const Tensor& w = graph_.value(input(node, kQW)).constant;
      const bool by_column = w.dims().size() == 2 && node.attr("trans_b", std::int64_t{0}) == 0;
      const std::int64_t k = w.size() / std::max<std::int64_t>(columns, 1);
      Tensor shifted = Tensor::allocate(DType::kF32, {columns});
      for (std::int64_t i = 0; i < columns; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < k; ++j)
          sum += static_cast<double>(w.as<std::int8_t>()[by_column ? j * columns + i : i * k + j]);
        const double old =
            bias == ValueId::kNone ? 0 : static_cast<double>(graph_.value(bias).constant.as<float>()[i]);
        shifted.mut<float>()[i] =
            static_cast<float>(old - x_zero * sum * static_cast<double>(scale.as<float>()[i]) - r_zero);
      }
      layer.in[2] = whole(plan_, weight(layer.name + "_bias", std::move(shifted)));
    }
    layer.in[4] = whole(plan_, weight(layer.name + "_scale", std::move(scale)));
    layer.requested = layer.realized = graph_.value(node.in[0]).dtype == DType::kE4M3FN ? "fp8" : "int8";
  } else if (node.op == "MatMul") {
    e.alpha = node.attr("alpha", 1.0f);
  }
  if (writes_codes) {
    e.y_scale = static_cast<float>(absorbed.scale);
    e.y_zero = static_cast<float>(absorbed.zero);
    if (!absorbed.inverse.empty()) {
      layer.in.resize(std::max<std::size_t>(layer.in.size(), kYScales + 1));
      layer.in[kYScales] =
          whole(plan_,
                weight(layer.name + "_steps", Tensor::copy_of(DType::kF32, {columns}, absorbed.inverse.data(),
                                                              absorbed.inverse.size() * sizeof(float))));
    }
    place_codes(absorbed, target);
  }
  if (holds_codes) {
    layer.in.resize(std::max<std::size_t>(layer.in.size(), kYScales + 1));
    layer.in[kYScales] = whole(
        plan_, weight(layer.name + "_steps", Tensor::copy_of(DType::kF32, {columns}, among.inverse.data(),
                                                             among.inverse.size() * sizeof(float))));
    place_codes(among, target);
  }
  Codes beside;
  if (!writes_codes && !holds_codes && bits(out_type) != 8 && options_.integer &&
      copied_quantizers(out, whole_out, beside)) {
    PlanView copied = whole(plan_, add_tensor(graph_.value(out).name + "_codes", beside.type, sizes(out)));
    place_codes(beside, copied.tensor);
    view_reshape(copied, dims);
    layer.out = {{}, copied};
    layer.copy_scale = beside.scale;
    layer.copy_zero = beside.zero;
  }
  PlanView view = whole(plan_, target);
  if (!writes_codes) placed_[out] = view;
  const bool fits = view_reshape(view, dims);
  PARE_ASSERT(fits);
  if (layer.out.empty()) layer.out.resize(1);
  layer.out[0] = view;
  plan_.layers.push_back(std::move(layer));
}

// Convolutions that read an image with few channels: as a product of patches, or space-to-depth.
bool Planner::emit_patches(NodeId id, PlanLayer& layer, const Tensor& w, DType type) {
  const Node node = graph_.node(id);
  ConvGeometry& g = layer.conv;
  if (g.group != 1 || g.dh != 1 || g.dw != 1 || g.c > 4) return false;
  const bool patches = g.kh == g.sh && g.kw == g.sw && g.top == 0 && g.left == 0 && g.h == g.oh * g.kh &&
                       g.w == g.ow * g.kw && g.kh * g.kw * g.c % 16 == 0,
             deeper = g.sh == 2 && g.sw == 2 && g.h % 2 == 0 && g.w % 2 == 0 && g.kh > 1 && g.kw > 1;
  if (!patches && !deeper) return false;
  ProgramStep step;
  PlanView view = view_before_quantizer(node.in[0], step);
  const auto blocks = [&](std::int64_t by_y, std::int64_t by_x) {
    const bool fits = view_reshape(view, {g.n, g.h / by_y, by_y, g.w / by_x, by_x, g.c});
    if (fits) view_transpose(view, {0, 1, 3, 2, 4, 5});
    return fits;
  };
  if (patches) {
    if (!blocks(g.kh, g.kw)) return false;
    view_transpose(view, {0, 1, 2, 5, 3, 4});  // channels outside: rows of the window are rows of the image
    const PlanView whole_patches = copy(view, type, graph_.value(node.in[0]).name + "_patches", 1, &step);
    layer.kind = LayerKind::kGemm;
    const std::int64_t k = g.kh * g.kw * g.c;
    Tensor packed = w.reshaped({g.m, k});
    layer.in = {PlanView{whole_patches.tensor, {1, g.rows(), k}, {0, k, 1}, 0}, {}};
    PlanView weights = whole(plan_, weight(graph_.value(node.in[1]).name, std::move(packed)));
    view_reshape(weights, {1, g.m, k});
    layer.in[1] = weights;
    g = ConvGeometry{};
    return true;
  }
  if (deeper) {
    if (!blocks(2, 2)) return false;
    const PlanView deep = copy(view, type, graph_.value(node.in[0]).name + "_deep", 4, &step);
    const std::int64_t top = (g.top + 1) / 2, left = (g.left + 1) / 2;
    Tensor packed = pack_by_two(w, 2 * top - g.top, 2 * left - g.left);
    g.h /= 2, g.w /= 2, g.c = 16;
    g.sh = g.sw = 1;
    g.top = top, g.left = left;
    g.kh = packed.dims()[1], g.kw = packed.dims()[2];
    layer.in = {PlanView{deep.tensor, {g.n, g.h, g.w, 16}, dense_strides({g.n, g.h, g.w, 16}), 0},
                whole(plan_, weight(graph_.value(node.in[1]).name, std::move(packed)))};
    return true;
  }
  return false;
}

void Planner::emit_conv(NodeId id) {
  const Node node = graph_.node(id);
  PlanLayer layer = start_layer(LayerKind::kConv, node);
  const bool codes = quantized(node);
  const DType type = codes ? graph_.value(node.in[0]).dtype : options_.precision;
  const Dims x = sizes(node.in[0]), y = sizes(node.out[0]);
  const Tensor& w = graph_.value(node.in[1]).constant;
  ConvGeometry& g = layer.conv;
  g.n = x[0], g.h = x[1], g.w = x[2], g.c = x[3];
  g.oh = y[1], g.ow = y[2], g.m = y[3];
  g.kh = w.dims()[2], g.kw = w.dims()[3];
  g.group = node.attr("group", std::int64_t{1});
  const auto pair = [&](const char* key, std::int64_t& a, std::int64_t& b) {
    const std::vector<std::int64_t> v = node.attr_ints(key);
    if (v.size() >= 2) a = v[0], b = v[1];
  };
  pair("strides", g.sh, g.sw);
  pair("dilations", g.dh, g.dw);
  pair("pads", g.top, g.left);
  const Tensor typed = as_type(w, codes ? w.dtype() : type);
  if (!emit_patches(id, layer, typed, type)) {
    const bool depthwise = g.group > 1 && g.group == g.c && g.group == g.m;
    const std::int64_t step = 8;
    PlanView in;
    std::int64_t padded = g.group_c();
    if (g.group == 1 && g.c % step != 0) {
      padded = (g.c + step - 1) / step * step;
      ProgramStep quantizer;
      const PlanView view = view_before_quantizer(node.in[0], quantizer);
      in = copy(view, type, graph_.value(node.in[0]).name, step, &quantizer);
      g.c = padded;
    } else {
      in = dense_operand(node.in[0], type, x);
    }
    layer.in = {in, whole(plan_, weight(graph_.value(node.in[1]).name, pack_conv(typed, padded, depthwise)))};
    // One pixel a window: a product of all pixels.
    if (g.group == 1 && g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.top == 0 && g.left == 0 &&
        g.oh == g.h && g.ow == g.w) {
      layer.kind = LayerKind::kGemm;
      view_reshape(layer.in[0], {1, g.rows(), g.c});
      view_reshape(layer.in[1], {1, g.m, g.c});
    }
  }
  finish_linear(node, layer, w.dims()[0]);
}

void Planner::emit_product(NodeId id) {
  const Node node = graph_.node(id);
  PlanLayer layer = start_layer(LayerKind::kGemm, node);
  const bool codes = quantized(node);
  const DType type = codes ? graph_.value(node.in[0]).dtype : options_.precision;
  Dims x = sizes(node.in[0]), b = sizes(node.in[1]);
  const bool trans_b = node.attr("trans_b", std::int64_t{0}) != 0;
  if (x.empty() || b.size() < 2) fail(ErrorCode::kUnsupported, "product '{}' of vectors", node.name);
  const std::int64_t k = x.back(), n = trans_b ? b[b.size() - 2] : b.back();
  if (graph_.is_constant(node.in[1]) && b.size() == 2) {
    const std::int64_t rows = k == 0 ? 0 : element_count(x) / k;
    PlanView view;
    const FoldedNorm* norm = codes ? nullptr : folded_operand(node.in[0], view);
    if (norm != nullptr && view_reshape(view, {1, rows, k}) && view.strides[2] == 1 &&
        view.strides[1] % k == 0 && view.offset % k == 0) {
      layer.in = {view, {}, {}, {}, {}};
      normalize_operand(*norm, layer, node);
      finish_linear(node, layer, n);
      return;
    }
    view = view_of(node.in[0]);
    const std::int64_t align = 16 / size_of(type);
    if (tensor(view.tensor).dtype != type || !view_reshape(view, {1, rows, k}) || view.strides[2] != 1 ||
        view.strides[1] % align != 0 || view.offset % align != 0)
      view = dense_operand(node.in[0], type, {1, rows, k});
    const auto key = std::make_pair(node.in[1], static_cast<int>(type));
    if (weights_.count(key) == 0) {
      const Tensor& w = graph_.value(node.in[1]).constant;
      const Tensor typed = codes ? w : as_type(w, type);
      weights_[key] = weight(graph_.value(node.in[1]).name, trans_b ? typed : transposed(typed));
    }
    PlanView w = whole(plan_, weights_[key]);
    view_reshape(w, {1, n, k});
    layer.in = {view, w};
  } else {
    const Dims y = sizes(node.out[0]);
    Dims batch(y.begin(), y.end() - 2);
    const std::int64_t m = x[x.size() - 2], count = element_count(batch);
    const auto operand = [&](ValueId value, bool swap, Dims tail) {
      PlanView view = view_of(value);
      if (swap)
        std::swap(view.dims[view.dims.size() - 1], view.dims[view.dims.size() - 2]),
            std::swap(view.strides[view.strides.size() - 1], view.strides[view.strides.size() - 2]);
      Dims full = batch;
      full.insert(full.end(), tail.begin(), tail.end());
      view_expand(view, full);
      PlanView flat = view;
      if (tensor(view.tensor).dtype != type || !view_reshape(flat, {count, tail[0], tail[1]})) {
        flat = copy(view, type, graph_.value(value).name);
        view_reshape(flat, {count, tail[0], tail[1]});
      }
      return flat;
    };
    layer.in = {operand(node.in[0], false, {m, k}), operand(node.in[1], !trans_b, {n, k})};
  }
  finish_linear(node, layer, n);
}

}  // namespace pare::planning
