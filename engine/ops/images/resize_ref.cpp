#include "engine/ops/images/resize.h"

#include "engine/numeric/convert.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare::resize {
namespace {

// Resizes one axis of `data` (sizes `dims`). An output without taps takes the extrapolation value, and keeps
// it through the axes that follow: all lines through it are made of it.
void resize_axis(std::vector<double>& data, Dims& dims, const AxisMap& m, const Attributes& a,
                 std::vector<std::uint8_t>& outside) {
  const std::int64_t outer = product_of(dims, 0, m.axis), inner = product_of(dims, m.axis + 1, dims.size());
  std::vector<double> result(static_cast<std::size_t>(outer * m.out * inner));
  std::vector<std::uint8_t> flags(result.size(), 0);
  for (std::int64_t i = 0; i < m.out; ++i) {
    const std::vector<Tap> all = taps(m, a, i);
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t k = 0; k < inner; ++k) {
        const auto to = static_cast<std::size_t>((o * m.out + i) * inner + k);
        double sum = 0;
        std::uint8_t flag = all.empty() ? 1 : 0;
        for (const Tap& tap : all) {
          const auto from = static_cast<std::size_t>((o * m.in + tap.place) * inner + k);
          if (tap.weight != 0) sum += tap.weight * data[from];
          flag |= outside[from];
        }
        flags[to] = flag;
        result[to] = flag != 0 ? a.extrapolation : sum;
      }
  }
  data = std::move(result);
  outside = std::move(flags);
  dims[m.axis] = m.out;
}

std::string why_not(const OpCall& call) {
  const std::string mode = call.node->attr("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic") return "mode " + mode;
  const DType type = call.in[0].dtype;
  if (is_small_float(type) || with_native_type(type, [](auto) {})) return {};
  return std::string("input 0 is ") + name(type) + ", needs a number";
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (y.size() == 0) return;
  const Attributes a = attributes(*call.node);
  std::vector<double> data(static_cast<std::size_t>(x.size()));
  convert(x, {DType::kF64, x.dims, data.data()});
  std::vector<std::uint8_t> outside(data.size(), 0);
  Dims dims = x.dims;
  for (const AxisMap& map : axis_maps(call)) {
    if (changes_nothing(map, a)) continue;
    resize_axis(data, dims, map, a, outside);
  }
  convert({DType::kF64, y.dims, data.data()}, y);
}

}  // namespace

Kernel reference_kernel() {
  return {"", "Resize", Backend::kCpu, "Resize/cpu:reference", why_not, nullptr, run};
}

}  // namespace pare::resize
