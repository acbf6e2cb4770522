#include <algorithm>

#include "engine/base/error.h"
#include "engine/ir/einsum.h"
#include "engine/ops/matmul/einsum.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  const DType type = call.in[0].dtype;
  if (is_small_float(type) || (type != DType::kBool && with_native_type(type, [](auto) {}))) return {};
  return std::string("input 0 is ") + name(type) + ", needs a number";
}

struct Loops {
  Dims sizes;                          // of each label
  std::vector<Dims> steps;             // a label, of each input
  std::int64_t outputs = 1, sums = 1;  // how many there are, and terms of each
};

Loops loops_of(const OpCall& call) {
  std::vector<int> ranks;
  for (const TensorView& x : call.in) ranks.push_back(static_cast<int>(x.dims.size()));
  const EinsumLabels labels = parse_einsum(call.node->attr("equation", ""), ranks);
  Loops loops;
  loops.sizes.assign(static_cast<std::size_t>(labels.count), 1);
  for (std::size_t i = 0; i < call.in.size(); ++i)
    for (std::size_t a = 0; a < labels.in[i].size(); ++a)
      if (call.in[i].dims[a] != 1)
        loops.sizes[static_cast<std::size_t>(labels.in[i][a])] = call.in[i].dims[a];
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    Dims steps(loops.sizes.size(), 0);
    const Dims strides = row_major_strides(call.in[i].dims);
    for (std::size_t a = 0; a < labels.in[i].size(); ++a)
      if (call.in[i].dims[a] != 1) steps[static_cast<std::size_t>(labels.in[i][a])] += strides[a];
    loops.steps.push_back(std::move(steps));
  }
  const std::size_t outer = labels.out.size();
  loops.outputs = product_of(loops.sizes, 0, outer);
  loops.sums = product_of(loops.sizes, outer, loops.sizes.size());
  return loops;
}

// Sum: double, or unsigned 64 bit, which wraps.
template <typename T, typename Sum>
void contract(const OpCall& call, const std::vector<const T*>& in, T* y) {
  const Loops loops = loops_of(call);
  const std::size_t labels = loops.sizes.size();
  call.pool->parallel_for(loops.outputs, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> offsets(in.size());
    for (std::int64_t o = begin; o < end; ++o) {
      Sum sum = 0;
      for (std::int64_t s = 0; s < loops.sums; ++s) {
        std::int64_t rest = o * loops.sums + s;
        std::fill(offsets.begin(), offsets.end(), 0);
        for (std::size_t l = labels; l-- > 0;) {
          const std::int64_t at = rest % loops.sizes[l];
          rest /= loops.sizes[l];
          for (std::size_t i = 0; i < in.size(); ++i) offsets[i] += at * loops.steps[i][l];
        }
        Sum product = 1;
        for (std::size_t i = 0; i < in.size(); ++i) product *= static_cast<Sum>(in[i][offsets[i]]);
        sum += product;
      }
      y[o] = static_cast<T>(sum);
    }
  });
}

void run(const OpCall& call) {
  if (is_float(call.in[0].dtype)) {
    std::vector<std::vector<double>> values;
    std::vector<const double*> in;
    for (const TensorView& x : call.in) values.push_back(doubles_of(x));
    for (const auto& x : values) in.push_back(x.data());
    std::vector<double> y(static_cast<std::size_t>(call.out[0].size()));
    contract<double, double>(call, in, y.data());
    return write_doubles(call.out[0], y);
  }
  with_native_type(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) {
      std::vector<const T*> in;
      for (const TensorView& x : call.in) in.push_back(x.as<T>());
      contract<T, std::uint64_t>(call, in, call.out[0].mut<T>());
    }
  });
}

}  // namespace

void add_einsum_kernels(Registry& registry) {
  registry.add(einsum_product_kernel());
  registry.add({"", "Einsum", Backend::kCpu, "Einsum/cpu:reference", why_not, nullptr, run});
}

}  // namespace pare
