#include "engine/ops/integer/integer_ref.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ir/window.h"
#include "engine/numeric/convert.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::int32_t code_at(const TensorView& view, std::int64_t i) {
  return view.dtype == DType::kI8 ? view.as<std::int8_t>()[i] : view.as<std::uint8_t>()[i];
}

// Which element of a zero point or scale belongs to row (or column) `at` of `count` of matrix `matrix`: there
// is one, one a row, or one a row of every matrix.
std::int64_t place_of(const TensorView& view, std::int64_t at, std::int64_t count, std::int64_t matrix) {
  const std::int64_t size = view.size();
  return size == 1 ? 0 : size == count ? at : matrix * count + at;
}

// Element i of a zero point or scale that is one number or one an index.
std::int32_t zero_at(const TensorView& view, std::int64_t i) {
  if (!view.present()) return 0;
  return code_at(view, view.size() == 1 ? 0 : i);
}
float scale_at(const TensorView& view, std::int64_t i) {
  float room = 0;
  return *read_floats(view, view.size() == 1 ? 0 : i, 1, &room);
}

// Which inputs mean what; -1: not there.
struct Roles {
  int a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias;
};

Roles roles_of(const Node& node) {
  if (node.op == "MatMulInteger" || node.op == "ConvInteger") return {0, -1, 2, 1, -1, 3, -1, -1, -1};
  return {0, 1, 2, 3, 4, 5, 6, 7, 8};
}

std::string why_not(const OpCall& call) {
  const Roles r = roles_of(*call.node);
  for (const int i : {r.a, r.b, r.a_zero, r.b_zero, r.y_zero}) {
    if (!call.has(i)) continue;
    std::string reason = type_reason(call, i, {DType::kI8, DType::kU8});
    if (!reason.empty()) return reason;
  }
  for (const int i : {r.a_scale, r.b_scale, r.y_scale})
    if (i >= 0 && !is_small_float(call.input(i).dtype))
      return "a scale is none of float32, float16, bfloat16";
  const bool conv = call.node->op == "QLinearConv";
  if (conv && (call.input(r.y_scale).size() != 1 || call.input(r.a_scale).size() != 1))
    return "more than one scale of the input or the output";
  return {};
}

// Which scale and zero point of each.
struct Places {
  std::int64_t a = 0, b = 0, y = 0, y_zero = 0;
};

// Stores a sum at place i; `bias` is one a channel (b's place, too).
void finish(const OpCall& call, const Roles& r, std::int64_t i, const Places& at, std::uint32_t sum) {
  const TensorView& y = call.out[0];
  if (r.y_scale < 0) {
    y.mut<std::int32_t>()[i] = static_cast<std::int32_t>(sum);
    return;
  }
  if (call.has(r.bias)) sum += static_cast<std::uint32_t>(call.input(r.bias).as<std::int32_t>()[at.b]);
  const float factor = scale_at(call.input(r.a_scale), at.a) * scale_at(call.input(r.b_scale), at.b) /
                       scale_at(call.input(r.y_scale), at.y);
  const float value = std::nearbyint(static_cast<float>(static_cast<std::int32_t>(sum)) * factor) +
                      static_cast<float>(zero_at(call.input(r.y_zero), at.y_zero));
  if (y.dtype == DType::kI8)
    y.mut<std::int8_t>()[i] =
        value != value ? std::int8_t{0} : static_cast<std::int8_t>(std::clamp(value, -128.0F, 127.0F));
  else
    y.mut<std::uint8_t>()[i] =
        value != value ? std::uint8_t{0} : static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

// f(output element, place of a's row, place of b's matrix, row, column, Places) for every element of the
// product.
template <typename F>
void for_each_product(const OpCall& call, const Roles& r, const F& f) {
  const TensorView &a = call.input(r.a), &b = call.input(r.b);
  Dims da = a.dims, db = b.dims, dy = call.out[0].dims;
  if (db.size() == 1) {
    db.push_back(1);
    dy.push_back(1);
  }
  if (da.size() == 1) {
    da.insert(da.begin(), 1);
    dy.insert(dy.end() - 1, 1);
  }
  const std::int64_t m = da[da.size() - 2], k = da.back(), n = db.back();
  const Dims la(da.begin(), da.end() - 2), lb(db.begin(), db.end() - 2), ly(dy.begin(), dy.end() - 2);
  const Dims* inputs[] = {&la, &lb};
  const BroadcastPlan plan = plan_broadcast(ly, inputs, 2);
  const auto place = [&](int role, std::int64_t at, std::int64_t count, std::int64_t matrix) {
    return call.has(role) ? place_of(call.input(role), at, count, matrix) : 0;
  };
  for_each_row(plan, 0, plan.count, [&](std::int64_t first, const auto& offset, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t ma = offset[0] + (plan.repeats(0) ? 0 : i),
                         mb = offset[1] + (plan.repeats(1) ? 0 : i);
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t col = 0; col < n; ++col) {
          Places scale{place(r.a_scale, row, m, ma), place(r.b_scale, col, n, mb),
                       place(r.y_scale, row, m, first + i), place(r.y_zero, row, m, first + i)};
          const Places zero{place(r.a_zero, row, m, ma), place(r.b_zero, col, n, mb), 0, 0};
          f(((first + i) * m + row) * n + col, (ma * m + row) * k, mb * k * n + col, k, n, scale, zero);
        }
    }
  });
}

void run_matmul(const OpCall& call) {
  const Roles r = roles_of(*call.node);
  const TensorView &a = call.input(r.a), &b = call.input(r.b);
  for_each_product(
      call, r,
      [&](std::int64_t y, std::int64_t pa, std::int64_t pb, std::int64_t k, std::int64_t n,
          const Places& scale, const Places& zero) {
        const std::int32_t za = zero_at(call.input(r.a_zero), zero.a),
                           zb = zero_at(call.input(r.b_zero), zero.b);
        std::uint32_t sum = 0;
        for (std::int64_t j = 0; j < k; ++j)
          sum += static_cast<std::uint32_t>((code_at(a, pa + j) - za) * (code_at(b, pb + j * n) - zb));
        finish(call, r, y, scale, sum);
      });
}

// --- QLinearMatMul with 8 bit floats: sums in double, zero points are 0

bool is_float8(DType type) { return is_float(type) && bits(type) == 8 && type != DType::kE8M0; }

std::string float8_why_not(const OpCall& call) {
  const Roles r = roles_of(*call.node);
  bool any = false;
  for (const int i : {r.a, r.b, r.y_zero}) {
    const DType type = call.input(i).dtype;
    any = any || is_float8(type);
    if (!is_float8(type) && type != DType::kI8 && type != DType::kU8)
      return "codes of type " + std::string(name(type));
  }
  if (!any) return "no operand is an 8 bit float";
  for (const int i : {r.a_scale, r.b_scale, r.y_scale})
    if (!is_small_float(call.input(i).dtype)) return "a scale is none of float32, float16, bfloat16";
  return {};
}

void run_float8(const OpCall& call) {
  const Roles r = roles_of(*call.node);
  const auto numbers = [&](int role) {
    std::vector<float> values(static_cast<std::size_t>(call.input(role).size()));
    decode(call.input(role).dtype, call.input(role).data, values.data(), call.input(role).size());
    return values;
  };
  const std::vector<float> a = numbers(r.a), b = numbers(r.b), za = numbers(r.a_zero), zb = numbers(r.b_zero),
                           zy = numbers(r.y_zero);
  const TensorView& y = call.out[0];
  for_each_product(call, r,
                   [&](std::int64_t at, std::int64_t pa, std::int64_t pb, std::int64_t k, std::int64_t n,
                       const Places& scale, const Places& zero) {
                     double sum = 0;
                     for (std::int64_t j = 0; j < k; ++j)
                       sum += (static_cast<double>(a[static_cast<std::size_t>(pa + j)]) -
                               static_cast<double>(za[static_cast<std::size_t>(zero.a)])) *
                              (static_cast<double>(b[static_cast<std::size_t>(pb + j * n)]) -
                               static_cast<double>(zb[static_cast<std::size_t>(zero.b)]));
                     const float factor = scale_at(call.input(r.a_scale), scale.a) *
                                          scale_at(call.input(r.b_scale), scale.b) /
                                          scale_at(call.input(r.y_scale), scale.y);
                     float value = static_cast<float>(sum * static_cast<double>(factor));
                     if (!is_float8(y.dtype))
                       value = std::nearbyint(value) + zy[static_cast<std::size_t>(scale.y_zero)];
                     encode(y.dtype, &value, y.mut<std::uint8_t>() + at, 1);
                   });
}

void run_conv(const OpCall& call) {
  const Roles r = roles_of(*call.node);
  const TensorView &x = call.input(r.a), &w = call.input(r.b), &y = call.out[0];
  Window window = read_window(*call.node, Dims(w.dims.begin() + 2, w.dims.end()));
  resolve_pads(window, Dims(x.dims.begin() + 2, x.dims.end()));
  const std::int64_t group = call.node->attr("group", std::int64_t{1});
  const std::int64_t channels = y.dims[1], group_c = w.dims[1], group_m = channels / group;
  const std::size_t axes = window.kernel.size();
  const std::int64_t points = product_of(y.dims, 2, y.dims.size()),
                     kernel = product_of(window.kernel, 0, axes);
  const std::int64_t image = product_of(x.dims, 2, x.dims.size());
  const std::int32_t x_zero = zero_at(call.input(r.a_zero), 0);
  call.pool->parallel_for(y.dims[0] * channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t n = plane / channels, m = plane % channels;
      const std::int32_t w_zero = zero_at(call.input(r.b_zero), m);
      for (std::int64_t p = 0; p < points; ++p) {
        std::uint32_t sum = 0;
        for (std::int64_t k = 0; k < kernel; ++k) {
          std::int64_t rest_p = p, rest_k = k, place = 0, stride = 1;
          bool inside = true;
          for (std::size_t i = axes; i-- > 0;) {
            const std::int64_t at = rest_p % y.dims[i + 2] * window.strides[i] - window.pads_begin[i] +
                                    rest_k % window.kernel[i] * window.dilations[i];
            rest_p /= y.dims[i + 2];
            rest_k /= window.kernel[i];
            inside = inside && at >= 0 && at < x.dims[i + 2];
            place += at * stride;
            stride *= x.dims[i + 2];
          }
          if (!inside) continue;  // padding is the zero point: a difference of 0
          for (std::int64_t c = 0; c < group_c; ++c) {
            const std::int64_t channel = n * x.dims[1] + m / group_m * group_c + c;
            sum += static_cast<std::uint32_t>((code_at(x, channel * image + place) - x_zero) *
                                              (code_at(w, (m * group_c + c) * kernel + k) - w_zero));
          }
        }
        finish(call, r, plane * points + p, {0, m, 0, 0}, sum);
      }
    }
  });
}

std::string dynamic_why_not(const OpCall& call) { return type_reason(call, 0, {DType::kF32}); }

void run_dynamic(const OpCall& call) {
  const float* x = call.in[0].as<float>();
  const std::int64_t count = call.in[0].size();
  // Pieces of their own range; the least of the least is the same for any pieces.
  const std::int64_t pieces = (count + kElementGrain - 1) / kElementGrain;
  std::vector<float> lows(static_cast<std::size_t>(pieces), 0.0F), highs(lows);
  call.pool->parallel_for(pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      float low = 0, high = 0;
      const std::int64_t last = std::min(count, (piece + 1) * kElementGrain);
      for (std::int64_t i = piece * kElementGrain; i < last; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
      }
      lows[static_cast<std::size_t>(piece)] = low, highs[static_cast<std::size_t>(piece)] = high;
    }
  });
  float least = 0, most = 0;
  for (const float low : lows) least = std::min(least, low);
  for (const float high : highs) most = std::max(most, high);
  const float scale = (most - least) / 255.0F;
  const auto code = [](float v) { return v != v ? 0.0F : std::clamp(v, 0.0F, 255.0F); };
  const float zero = code(std::nearbyint(code(-least / scale)));
  if (call.out[0].present()) {
    auto* const y = call.out[0].mut<std::uint8_t>();
    call.pool->parallel_for(count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        y[i] = static_cast<std::uint8_t>(code(std::nearbyint(x[i] / scale) + zero));
    });
  }
  if (call.out.size() > 1 && call.out[1].present()) *call.out[1].mut<float>() = scale;
  if (call.out.size() > 2 && call.out[2].present())
    *call.out[2].mut<std::uint8_t>() = static_cast<std::uint8_t>(zero);
}

}  // namespace

void add_integer_references(Registry& registry) {
  add_kernel(registry, "MatMulInteger", "reference", why_not, run_matmul);
  add_kernel(registry, "QLinearMatMul", "reference", why_not, run_matmul);
  add_kernel(registry, "QLinearMatMul", "float8", float8_why_not, run_float8);
  add_kernel(registry, "ConvInteger", "reference", why_not, run_conv);
  add_kernel(registry, "QLinearConv", "reference", why_not, run_conv);
  add_kernel(registry, "DynamicQuantizeLinear", "reference", dynamic_why_not, run_dynamic);
}

}  // namespace pare
