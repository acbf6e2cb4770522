// Each axis as sums of whole rows, cut over threads.
#include <algorithm>

#include "engine/ops/resize.h"
#include "engine/ops/support.h"

namespace pare::resize {
namespace {

std::string why_not(const OpCall& call) {
  const Attributes a = attributes(*call.node);
  if (a.mode != "nearest" && a.mode != "linear" && a.mode != "cubic") return "mode " + a.mode;
  if (a.coordinates == "tf_crop_and_resize") return "places outside of the input take another value";
  return type_reason(call, 0, {DType::kF32});
}

// Taps without weight left out: a row of an upsampled image often has but one.
std::vector<std::vector<Tap>> all_taps(const AxisMap& m, const Attributes& a) {
  std::vector<std::vector<Tap>> all;
  for (std::int64_t i = 0; i < m.out; ++i) {
    std::vector<Tap> kept;
    for (const Tap& tap : taps(m, a, i))
      if (tap.weight != 0) kept.push_back(tap);
    all.push_back(std::move(kept));
  }
  return all;
}

void sum_rows(const float* x, std::int64_t inner, const std::vector<Tap>& taps_of_row, float* y) {
  std::fill_n(y, inner, 0.0F);
  for (const Tap& tap : taps_of_row) {
    const auto weight = static_cast<float>(tap.weight);
    const float* from = x + tap.place * inner;
    for (std::int64_t k = 0; k < inner; ++k) y[k] += weight * from[k];
  }
}

void resize_axis(const OpCall& call, const float* x, const Dims& dims, const AxisMap& m, const Attributes& a,
                 float* y) {
  const std::int64_t outer = product_of(dims, 0, m.axis), inner = product_of(dims, m.axis + 1, dims.size());
  const std::vector<std::vector<Tap>> all = all_taps(m, a);
  const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain / 4 / std::max<std::int64_t>(1, inner));
  call.pool->parallel_for(outer * m.out, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = x + r / m.out * m.in * inner;
      const std::vector<Tap>& row = all[static_cast<std::size_t>(r % m.out)];
      if (inner > 1) {
        sum_rows(from, inner, row, y + r * inner);
        continue;
      }
      float sum = 0;
      for (const Tap& tap : row) sum += static_cast<float>(tap.weight) * from[tap.place];
      y[r] = sum;
    }
  });
}

void run(const OpCall& call) {
  const Attributes a = attributes(*call.node);
  const TensorView& y = call.out[0];
  if (y.size() == 0) return;
  std::vector<AxisMap> maps;
  for (const AxisMap& map : axis_maps(call))
    if (!changes_nothing(map, a)) maps.push_back(map);
  Dims dims = call.in[0].dims;
  const float* from = call.in[0].as<float>();
  if (maps.empty()) std::copy_n(from, y.size(), y.mut<float>());
  std::vector<float> last;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    Dims next = dims;
    next[maps[i].axis] = maps[i].out;
    std::vector<float> room(i + 1 < maps.size() ? static_cast<std::size_t>(element_count(next)) : 0);
    float* to = i + 1 < maps.size() ? room.data() : y.mut<float>();
    resize_axis(call, from, dims, maps[i], a, to);
    last = std::move(room);
    from = last.data();
    dims = next;
  }
}

}  // namespace

Kernel rows_kernel() { return {"", "Resize", Backend::kCpu, "Resize/cpu:rows", why_not, nullptr, run}; }

}  // namespace pare::resize
