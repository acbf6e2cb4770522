#include "engine/ops/matmul/linear_ref.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ir/window.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/support.h"

namespace pare {

void resolve_transposed_pads(const Node& node, const Dims& x, const Dims& y, Window& window) {
  const std::vector<std::int64_t> extra = node.attr_ints("output_padding");
  const bool given = !node.attr_ints("output_shape").empty(), upper = window.auto_pad == AutoPad::kSameUpper,
             found = given || upper || window.auto_pad == AutoPad::kSameLower;
  window.auto_pad = AutoPad::kNotSet;
  for (int axis = 0; found && axis < window.axes(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t full =
        window.strides[i] * (x[i + 2] - 1) + (i < extra.size() ? extra[i] : 0) + window.extent(axis);
    const std::int64_t total = std::max<std::int64_t>(0, full - y[i + 2]);
    window.pads_begin[i] = upper ? total / 2 : total - total / 2;
    window.pads_end[i] = total - window.pads_begin[i];
  }
}

namespace {

using Three = std::array<std::int64_t, 3>;

// The last sizes of `dims` as three, ones in front.
template <typename Sizes>
Three three(const Sizes& sizes, std::size_t first, std::int64_t missing) {
  Three out = {missing, missing, missing};
  const std::size_t count = sizes.size() - first;
  for (std::size_t i = 0; i < count; ++i) out[3 - count + i] = sizes[first + i];
  return out;
}

struct ConvSizes {
  std::int64_t n = 0, c = 0, m = 0, group = 1;
  Three in{}, out{}, kernel{}, stride{}, dilation{}, begin{};
};

std::string conv_why_not(const OpCall& call) {
  if (call.in[0].dims.size() > 5) return "more than three spatial axes";
  return type_reason(call, 0, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64});
}

ConvSizes conv_sizes(const OpCall& call) {
  const Dims &x = call.in[0].dims, &w = call.in[1].dims, &y = call.out[0].dims;
  Window window = read_window(*call.node, Dims(w.begin() + 2, w.end()));
  if (call.node->op == "Conv")
    resolve_pads(window, Dims(x.begin() + 2, x.end()));
  else
    resolve_transposed_pads(*call.node, x, y, window);
  ConvSizes s;
  s.n = x[0];
  s.c = x[1];
  s.m = y[1];
  s.group = call.node->attr("group", std::int64_t{1});
  s.in = three(x, 2, 1);
  s.out = three(y, 2, 1);
  s.kernel = three(window.kernel, 0, 1);
  s.stride = three(window.strides, 0, 1);
  s.dilation = three(window.dilations, 0, 1);
  s.begin = three(window.pads_begin, 0, 0);
  return s;
}

std::int64_t volume(const Three& t) { return t[0] * t[1] * t[2]; }

// One output of Conv; x and w point to the image's and the output channel's group.
template <typename T>
double conv_point(const ConvSizes& s, const T* x, const T* w, const Three& o) {
  double sum = 0;
  for (std::int64_t c = 0; c < s.c / s.group; ++c, x += volume(s.in))
    for (std::int64_t a = 0; a < s.kernel[0]; ++a)
      for (std::int64_t b = 0; b < s.kernel[1]; ++b)
        for (std::int64_t d = 0; d < s.kernel[2]; ++d, ++w) {
          const std::int64_t i = o[0] * s.stride[0] - s.begin[0] + a * s.dilation[0];
          const std::int64_t j = o[1] * s.stride[1] - s.begin[1] + b * s.dilation[1];
          const std::int64_t k = o[2] * s.stride[2] - s.begin[2] + d * s.dilation[2];
          if (i < 0 || i >= s.in[0] || j < 0 || j >= s.in[1] || k < 0 || k >= s.in[2]) continue;
          sum += static_cast<double>(x[(i * s.in[1] + j) * s.in[2] + k]) * static_cast<double>(*w);
        }
  return sum;
}

// One output of ConvTranspose: the inputs whose window covers it. w points to [C/G][M/G][k], at this output
// channel of the group's first input channel.
template <typename T>
double transposed_point(const ConvSizes& s, const T* x, const T* w, const Three& o) {
  double sum = 0;
  const std::int64_t channel_step = s.m / s.group * volume(s.kernel);
  for (std::int64_t c = 0; c < s.c / s.group; ++c, x += volume(s.in), w += channel_step) {
    const T* weight = w;
    for (std::int64_t a = 0; a < s.kernel[0]; ++a)
      for (std::int64_t b = 0; b < s.kernel[1]; ++b)
        for (std::int64_t d = 0; d < s.kernel[2]; ++d, ++weight) {
          const std::int64_t i = o[0] + s.begin[0] - a * s.dilation[0];
          const std::int64_t j = o[1] + s.begin[1] - b * s.dilation[1];
          const std::int64_t k = o[2] + s.begin[2] - d * s.dilation[2];
          if (i < 0 || j < 0 || k < 0 || i % s.stride[0] != 0 || j % s.stride[1] != 0 || k % s.stride[2] != 0)
            continue;
          const std::int64_t p = i / s.stride[0], q = j / s.stride[1], r = k / s.stride[2];
          if (p >= s.in[0] || q >= s.in[1] || r >= s.in[2]) continue;
          sum += static_cast<double>(x[(p * s.in[1] + q) * s.in[2] + r]) * static_cast<double>(*weight);
        }
  }
  return sum;
}

template <typename T>
void conv(const OpCall& call, const T* x, const T* w, const T* bias, T* y) {
  const ConvSizes s = conv_sizes(call);
  const bool transposed = call.node->op == "ConvTranspose";
  const std::int64_t group_c = s.c / s.group, group_m = s.m / s.group, window = volume(s.kernel);
  call.pool->parallel_for(s.n * s.m, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t plane = first; plane < last; ++plane) {
      const std::int64_t n = plane / s.m, m = plane % s.m, g = m / group_m;
      const T* image = x + (n * s.c + g * group_c) * volume(s.in);
      const T* weight =
          transposed ? w + (g * group_c * group_m + m % group_m) * window : w + m * group_c * window;
      T* out = y + plane * volume(s.out);
      Three o;
      for (o[0] = 0; o[0] < s.out[0]; ++o[0])
        for (o[1] = 0; o[1] < s.out[1]; ++o[1])
          for (o[2] = 0; o[2] < s.out[2]; ++o[2]) {
            const double sum =
                transposed ? transposed_point(s, image, weight, o) : conv_point(s, image, weight, o);
            *out++ = static_cast<T>(sum + (bias == nullptr ? 0.0 : static_cast<double>(bias[m])));
          }
    }
  });
}

// Calls body(x, w, third, y) in double, or in float with float16 and bfloat16 widened.
template <typename Body>
void in_floats(const OpCall& call, Body body) {
  const TensorView &x = call.in[0], &w = call.in[1], &third = call.input(2), &y = call.out[0];
  if (x.dtype == DType::kF64)
    return body(x.as<double>(), w.as<double>(), third.present() ? third.as<double>() : nullptr,
                y.mut<double>());
  std::vector<float> rooms[3], out;
  const float* px = all_floats(x, rooms[0]);
  const float* pw = all_floats(w, rooms[1]);
  const float* p3 = third.present() ? all_floats(third, rooms[2]) : nullptr;
  if (y.dtype == DType::kF32) return body(px, pw, p3, y.mut<float>());
  out.resize(static_cast<std::size_t>(y.size()));
  body(px, pw, p3, out.data());
  write_floats(y, 0, y.size(), out.data());
}

void run_conv(const OpCall& call) {
  in_floats(call,
            [&](const auto* x, const auto* w, const auto* bias, auto* y) { conv(call, x, w, bias, y); });
}

// --- products

std::string product_why_not(const OpCall& call) {
  return type_reason(call, 0,
                     {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32, DType::kI64,
                      DType::kU32, DType::kU64});
}

// Sums of integers wrap, which unsigned arithmetic does by itself.
template <typename T>
using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

template <typename T>
Sum<T> dot(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t n) {
  Sum<T> sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    sum += static_cast<Sum<T>>(a[i * a_step]) * static_cast<Sum<T>>(b[i * b_step]);
  return sum;
}

template <typename T>
void matmul(const OpCall& call, const T* a, const T* b, T* y) {
  Dims da = call.in[0].dims, db = call.in[1].dims, dy = call.out[0].dims;
  if (db.size() == 1) {
    db.push_back(1);
    dy.push_back(1);
  }
  if (da.size() == 1) {
    da.insert(da.begin(), 1);
    dy.insert(dy.end() - 1, 1);
  }
  const std::int64_t m = da[da.size() - 2], k = da.back(), n = db.back();
  const auto lead = [](const Dims& dims) { return Dims(dims.begin(), dims.end() - 2); };
  const Dims la = lead(da), lb = lead(db), ly = lead(dy);
  const Dims* inputs[] = {&la, &lb};
  const BroadcastPlan plan = plan_broadcast(ly, inputs, 2);
  const std::int64_t a_step = plan.repeats(0) ? 0 : 1, b_step = plan.repeats(1) ? 0 : 1;
  for_each_row(plan, 0, plan.count, [&](std::int64_t at, const auto& offset, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T* pa = a + (offset[0] + i * a_step) * m * k;
      const T* pb = b + (offset[1] + i * b_step) * k * n;
      T* py = y + (at + i) * m * n;
      call.pool->parallel_for(m, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          for (std::int64_t c = 0; c < n; ++c)
            py[r * n + c] = static_cast<T>(dot(pa + r * k, 1, pb + c, n, k));
      });
    }
  });
}

template <typename T>
void gemm(const OpCall& call, const T* a, const T* b, const T* c, T* y) {
  const bool ta = call.node->attr("transA", std::int64_t{0}) != 0,
             tb = call.node->attr("transB", std::int64_t{0}) != 0;
  const Dims &da = call.in[0].dims, &dy = call.out[0].dims;
  const std::int64_t m = dy[0], n = dy[1], k = da[ta ? 0 : 1];
  const auto alpha = static_cast<double>(call.node->attr("alpha", 1.0F));
  const auto beta = static_cast<double>(call.node->attr("beta", 1.0F));
  std::int64_t row_step = 0, column_step = 0;
  if (c != nullptr) {
    const Dims& dc = call.in[2].dims;
    const std::int64_t columns = dc.empty() ? 1 : dc.back(), rows = dc.size() < 2 ? 1 : dc[0];
    column_step = columns == 1 ? 0 : 1;
    row_step = rows == 1 ? 0 : columns;
  }
  call.pool->parallel_for(m, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t col = 0; col < n; ++col) {
        const Sum<T> sum = dot(ta ? a + r : a + r * k, ta ? m : 1, tb ? b + col * k : b + col, tb ? 1 : n, k);
        const T* add = c == nullptr ? nullptr : c + r * row_step + col * column_step;
        if constexpr (std::is_floating_point_v<T>) {
          y[r * n + col] =
              static_cast<T>(alpha * sum + (add == nullptr ? 0.0 : beta * static_cast<double>(*add)));
        } else {  // attributes are floats; integers take them when they are whole
          const auto whole = [](double v) {
            return static_cast<std::uint64_t>(static_cast<std::int64_t>(v));
          };
          y[r * n + col] = static_cast<T>(
              whole(alpha) * sum + (add == nullptr ? 0 : whole(beta) * static_cast<std::uint64_t>(*add)));
        }
      }
  });
}

std::string gemm_why_not(const OpCall& call) {
  const auto whole = [](float v) {
    return v >= -1e6F && v <= 1e6F && v == static_cast<float>(static_cast<int>(v));
  };
  if (is_integer(call.in[0].dtype) &&
      (!whole(call.node->attr("alpha", 1.0F)) || !whole(call.node->attr("beta", 1.0F))))
    return "integers times a fraction";
  return product_why_not(call);
}

void run_product(const OpCall& call) {
  const bool is_gemm = call.node->op == "Gemm";
  if (is_float(call.in[0].dtype))
    return in_floats(call, [&](const auto* a, const auto* b, const auto* c, auto* y) {
      if (is_gemm)
        gemm(call, a, b, c, y);
      else
        matmul(call, a, b, y);
    });
  with_native_type(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const TensorView& c = call.input(2);
    if (is_gemm)
      gemm(call, call.in[0].as<T>(), call.in[1].as<T>(), c.present() ? c.as<T>() : nullptr,
           call.out[0].mut<T>());
    else
      matmul(call, call.in[0].as<T>(), call.in[1].as<T>(), call.out[0].mut<T>());
  });
}

// --- determinant

std::string det_why_not(const OpCall& call) { return float_reason(call, {0}); }

// By elimination, the largest of a column as its pivot.
double determinant(std::vector<double> a, std::size_t n) {
  double det = 1;
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i)
      if (std::fabs(a[i * n + k]) > std::fabs(a[pivot * n + k])) pivot = i;
    if (pivot != k) {
      std::swap_ranges(a.begin() + static_cast<std::ptrdiff_t>(k * n),
                       a.begin() + static_cast<std::ptrdiff_t>((k + 1) * n),
                       a.begin() + static_cast<std::ptrdiff_t>(pivot * n));
      det = -det;
    }
    det *= a[k * n + k];
    if (a[k * n + k] == 0) return det;
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = a[i * n + k] / a[k * n + k];
      for (std::size_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  return det;
}

void run_det(const OpCall& call) {
  const auto n = static_cast<std::size_t>(call.in[0].dims.back());
  const std::vector<double> x = doubles_of(call.in[0]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(i * n * n);
    y[i] = determinant({first, first + static_cast<std::ptrdiff_t>(n * n)}, n);
  }
  write_doubles(call.out[0], y);
}

}  // namespace

void add_linear_references(Registry& registry) {
  add_kernel(registry, "Conv", "reference", conv_why_not, run_conv);
  add_kernel(registry, "ConvTranspose", "reference", conv_why_not, run_conv);
  add_kernel(registry, "MatMul", "reference", product_why_not, run_product);
  add_kernel(registry, "Gemm", "reference", gemm_why_not, run_product);
  add_kernel(registry, "Det", "reference", det_why_not, run_det);
}

}  // namespace pare
