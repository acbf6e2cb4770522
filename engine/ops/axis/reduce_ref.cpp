// Reductions in double (integers in 64 bits), element by element.
#include <cmath>
#include <limits>

#include "engine/ops/axis/reduce.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {

std::string why_no_numbers(const OpCall& call) {
  const DType type = call.in[0].dtype;
  if (is_small_float(type) || with_native_type(type, [](auto) {})) return {};
  return std::string("input 0 is ") + name(type) + ", needs a number";
}

namespace {

// Which output element input element i belongs to.
std::int64_t place(std::int64_t i, const Dims& dims, const std::vector<bool>& reduced) {
  std::int64_t at = 0, stride = 1;
  for (std::size_t k = dims.size(); k-- > 0;) {
    if (!reduced[k]) {
      at += i % dims[k] * stride;
      stride *= dims[k];
    }
    i /= dims[k];
  }
  return at;
}

template <typename Number>
Number start_of(std::string_view op, Number lowest, Number largest) {
  if (op == "ReduceMax") return lowest;
  if (op == "ReduceMin") return largest;
  return op == "ReduceProd" ? Number{1} : Number{0};
}

// --- floats

double combine(std::string_view op, double all, double x) {
  if (op == "ReduceMax") return all != all || !(x > all || x != x) ? all : x;
  if (op == "ReduceMin") return all != all || !(x < all || x != x) ? all : x;
  if (op == "ReduceProd") return all * x;
  if (op == "ReduceL1") return all + std::fabs(x);
  if (op == "ReduceL2" || op == "ReduceSumSquare") return all + x * x;
  return all + x;
}

template <typename T>
void reduce_floats(const OpCall& call, const T* x, T* y) {
  const std::string_view op = call.node->op;
  const Dims& dims = call.in[0].dims;
  const std::vector<bool> reduced = reduced_axes(call);
  const std::int64_t count = call.in[0].size(), outputs = call.out[0].size();
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> all(static_cast<std::size_t>(outputs), start_of(op, -infinity, infinity)),
      members(all.size(), 0);
  const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(place(i, dims, reduced)); };
  if (op == "ReduceLogSumExp") {
    std::vector<double> largest(all.size(), -infinity);
    for (std::int64_t i = 0; i < count; ++i)
      largest[at(i)] = combine("ReduceMax", largest[at(i)], static_cast<double>(x[i]));
    for (double& m : largest)
      if (std::isinf(m)) m = 0;
    for (std::int64_t i = 0; i < count; ++i)
      all[at(i)] += std::exp(static_cast<double>(x[i]) - largest[at(i)]);
    for (std::size_t k = 0; k < all.size(); ++k) y[k] = static_cast<T>(largest[k] + std::log(all[k]));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    all[at(i)] = combine(op, all[at(i)], static_cast<double>(x[i]));
    members[at(i)] += 1;
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    double value = all[k];
    if (op == "ReduceMean") value /= members[k];
    if (op == "ReduceL2") value = std::sqrt(value);
    if (op == "ReduceLogSum") value = std::log(value);
    y[k] = static_cast<T>(value);
  }
}

// --- integers

template <typename T>
std::int64_t combine_integers(std::string_view op, std::int64_t all, std::int64_t x) {
  const auto ua = static_cast<std::uint64_t>(all), ux = static_cast<std::uint64_t>(x);
  const bool less = std::is_signed_v<T> ? x < all : ux < ua;
  if (op == "ReduceMax") return less ? all : x;
  if (op == "ReduceMin") return less ? x : all;
  if (op == "ReduceProd") return static_cast<std::int64_t>(ua * ux);
  if (op == "ReduceL1") return static_cast<std::int64_t>(ua + (std::is_signed_v<T> && x < 0 ? 0 - ux : ux));
  if (op == "ReduceL2" || op == "ReduceSumSquare") return static_cast<std::int64_t>(ua + ux * ux);
  return static_cast<std::int64_t>(ua + ux);
}

template <typename T>
void reduce_integers(const OpCall& call, const T* x, T* y) {
  const std::string_view op = call.node->op;
  const std::vector<bool> reduced = reduced_axes(call);
  const std::int64_t count = call.in[0].size();
  if (op == "ReduceLogSum" || op == "ReduceLogSumExp" || op == "ReduceL2") {  // computed as float, cut
    std::vector<double> in(static_cast<std::size_t>(count)),
        out(static_cast<std::size_t>(call.out[0].size()));
    for (std::int64_t i = 0; i < count; ++i) in[static_cast<std::size_t>(i)] = static_cast<double>(x[i]);
    reduce_floats(call, in.data(), out.data());
    for (std::size_t k = 0; k < out.size(); ++k) {
      const bool fits = std::fabs(out[k]) < 9e18;  // NaN and infinity of empty sums: 0
      y[k] = fits ? static_cast<T>(static_cast<std::int64_t>(out[k])) : T{0};
    }
    return;
  }
  const auto lowest = static_cast<std::int64_t>(std::numeric_limits<T>::lowest());
  const auto largest = static_cast<std::int64_t>(std::numeric_limits<T>::max());
  const auto outputs = static_cast<std::size_t>(call.out[0].size());
  std::vector<std::int64_t> all(outputs, start_of(op, lowest, largest)), members(outputs, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(place(i, call.in[0].dims, reduced));
    all[at] = combine_integers<T>(op, all[at], static_cast<std::int64_t>(x[i]));
    ++members[at];
  }
  for (std::size_t k = 0; k < outputs; ++k)
    y[k] = static_cast<T>(op == "ReduceMean" ? (members[k] == 0 ? 0 : all[k] / members[k]) : all[k]);
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (with_native_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_floating_point_v<T>)
          reduce_floats(call, x.as<T>(), y.mut<T>());
        else
          reduce_integers(call, x.as<T>(), y.mut<T>());
      }))
    return;
  std::vector<float> in, out(static_cast<std::size_t>(y.size()));
  reduce_floats(call, all_floats(x, in), out.data());
  write_floats(y, 0, y.size(), out.data());
}

}  // namespace

void add_reduce_references(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_no_numbers;
  kernel.run = run;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMax",
                         "ReduceMin", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "reference");
    registry.add(kernel);
  }
}

}  // namespace pare
