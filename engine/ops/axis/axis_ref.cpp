// ArgMax, ArgMin, CumSum, CumProd, TopK: along one axis (reduce.h).
#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/grain.h"
#include "engine/ops/add_kernel.h"
#include "engine/ops/axis/reduce.h"
#include "engine/ops/elementwise/elementwise_binary.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

struct Line {
  std::int64_t outer = 1, n = 1, inner = 1;
};

Line line_of(const Dims& dims, std::int64_t axis) {
  const auto rank = static_cast<std::int64_t>(dims.size());
  if (axis < -rank || axis >= rank)
    throw make_error(ErrorCode::kBadFile, "axis {} is outside rank {}", axis, rank);
  const auto at = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  return {product_of(dims, 0, at), dims[at], product_of(dims, at + 1, dims.size())};
}

// body(x, y as T*): float16 and bfloat16 as float.
template <typename Body>
void with_numbers(const OpCall& call, bool has_number_output, Body body) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (with_native_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        body(x.as<T>(), has_number_output ? y.mut<T>() : nullptr);
      }))
    return;
  std::vector<float> in, out(static_cast<std::size_t>(y.size()));
  body(all_floats(x, in), out.data());
  if (has_number_output) write_floats(y, 0, y.size(), out.data());
}

// The lines, cut over threads.
template <typename Body>
void for_lines(const OpCall& call, const Line& line, Body body) {
  call.pool->parallel_for(line.outer * line.inner, grain_for(kElementGrain / 4, line.n), body);
}

template <typename T>
bool is_nan(T value) {
  return value != value;
}

// Does `a` come before `b` when the largest (or smallest) is looked for? NaN comes first, as in NumPy.
template <typename T>
bool better(T a, T b, bool largest) {
  if (is_nan(b)) return false;
  if (is_nan(a)) return true;
  return largest ? a > b : a < b;
}

void run_arg(const OpCall& call) {
  const Line line = line_of(call.in[0].dims, call.node->attr("axis", std::int64_t{0}));
  const bool largest = call.node->op == "ArgMax",
             last = call.node->attr("select_last_index", std::int64_t{0}) != 0;
  std::int64_t* indices = call.out[0].mut<std::int64_t>();
  with_numbers(call, false, [&](const auto* x, const auto*) {
    for_lines(call, line, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t place = begin; place < end; ++place) {
        const std::int64_t o = place / line.inner, i = place % line.inner;
        const auto* row = x + o * line.n * line.inner + i;
        std::int64_t best = 0;
        for (std::int64_t k = 1; k < line.n; ++k) {
          const auto value = row[k * line.inner], top = row[best * line.inner];
          const bool tie = value == top || (is_nan(value) && is_nan(top));
          if (better(value, top, largest) || (last && tie)) best = k;
        }
        indices[o * line.inner + i] = best;
      }
    });
  });
}

void run_cumulative(const OpCall& call) {
  const std::vector<std::int64_t> axis = ints_of(call.in[1]);
  if (axis.size() != 1) throw make_error(ErrorCode::kBadFile, "the axis must be one number");
  const Line line = line_of(call.in[0].dims, axis[0]);
  const bool exclusive = call.node->attr("exclusive", std::int64_t{0}) != 0;
  const bool reverse = call.node->attr("reverse", std::int64_t{0}) != 0, sum = call.node->op == "CumSum";
  with_numbers(call, true, [&](const auto* x, auto* y) {
    using T = std::remove_pointer_t<decltype(y)>;
    const auto combine = [&](T a, T b) {
      if constexpr (std::is_floating_point_v<T>)
        return sum ? a + b : a * b;
      else
        return integer_binary_value(sum ? BinaryOp::kAdd : BinaryOp::kMul, a, b);
    };
    for (std::int64_t o = 0; o < line.outer; ++o)
      for (std::int64_t i = 0; i < line.inner; ++i) {
        T all = sum ? T{0} : T{1};
        for (std::int64_t k = 0; k < line.n; ++k) {
          const std::int64_t at = (o * line.n + (reverse ? line.n - 1 - k : k)) * line.inner + i;
          const T value = x[at];
          if (exclusive) y[at] = all;
          all = combine(all, value);
          if (!exclusive) y[at] = all;
        }
      }
  });
}

void run_top_k(const OpCall& call) {
  const Line line = line_of(call.in[0].dims, call.node->attr("axis", std::int64_t{-1}));
  const bool largest = call.node->attr("largest", std::int64_t{1}) != 0;
  const std::int64_t k = line_of(call.out[0].dims, call.node->attr("axis", std::int64_t{-1})).n;
  std::int64_t* indices =
      call.out.size() > 1 && call.out[1].present() ? call.out[1].mut<std::int64_t>() : nullptr;
  with_numbers(call, true, [&](const auto* x, auto* y) {
    for_lines(call, line, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(line.n));
      for (std::int64_t place = begin; place < end; ++place) {
        const std::int64_t o = place / line.inner, i = place % line.inner;
        const auto* row = x + o * line.n * line.inner + i;
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int64_t a, std::int64_t b) {
          const auto va = row[a * line.inner], vb = row[b * line.inner];
          return better(va, vb, largest) || (!better(vb, va, largest) && a < b);
        });
        for (std::int64_t r = 0; r < k; ++r) {
          const std::int64_t at = (o * k + r) * line.inner + i;
          y[at] = row[order[static_cast<std::size_t>(r)] * line.inner];
          if (indices != nullptr) indices[at] = order[static_cast<std::size_t>(r)];
        }
      }
    });
  });
}

}  // namespace

void add_axis_references(Registry& registry) {
  add_kernel(registry, "ArgMax", "reference", why_no_numbers, run_arg);
  add_kernel(registry, "ArgMin", "reference", why_no_numbers, run_arg);
  add_kernel(registry, "CumSum", "reference", why_no_numbers, run_cumulative);
  add_kernel(registry, "CumProd", "reference", why_no_numbers, run_cumulative);
  add_kernel(registry, "TopK", "reference", why_no_numbers, run_top_k);
}

}  // namespace pare
