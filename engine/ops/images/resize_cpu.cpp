// Each axis as sums of whole rows, cut over threads.
#include <algorithm>

#include "engine/base/grain.h"
#include "engine/ops/images/resize.h"
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

void resize_axis(const OpCall& call, const float* x, const Dims& dims, const AxisMap& m, const Attributes& a,
                 float* y) {
  const std::int64_t outer = product_of(dims, 0, m.axis), inner = product_of(dims, m.axis + 1, dims.size());
  const std::vector<std::vector<Tap>> all = all_taps(m, a);
  std::vector<std::int64_t> places;  // of all taps, one after the other
  std::vector<float> weights;
  std::vector<std::size_t> starts;
  for (const std::vector<Tap>& row : all) {
    starts.push_back(places.size());
    for (const Tap& tap : row) {
      places.push_back(tap.place);
      weights.push_back(static_cast<float>(tap.weight));
    }
  }
  const auto sum_rows = PARE_SIMD_PICK(weighted_rows);
  const std::int64_t grain = grain_for(kElementGrain / 4, inner);
  call.pool->parallel_for(outer * m.out, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = x + r / m.out * m.in * inner;
      const std::vector<Tap>& row = all[static_cast<std::size_t>(r % m.out)];
      if (inner > 1) {
        const std::size_t first = starts[static_cast<std::size_t>(r % m.out)];
        sum_rows(from, inner, places.data() + first, weights.data() + first, static_cast<int>(row.size()),
                 y + r * inner);
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
  std::vector<std::vector<float>> rooms(maps.size());
  for (std::size_t i = 0; i < maps.size(); ++i) {
    Dims next = dims;
    next[maps[i].axis] = maps[i].out;
    const bool last = i + 1 == maps.size();
    if (!last) rooms[i].resize(static_cast<std::size_t>(element_count(next)));
    float* to = last ? y.mut<float>() : rooms[i].data();
    resize_axis(call, from, dims, maps[i], a, to);
    if (i > 0) rooms[i - 1] = {};
    from = to;
    dims = next;
  }
}

}  // namespace

Kernel rows_kernel() { return {"", "Resize", Backend::kCpu, "Resize/cpu:rows", why_not, nullptr, run}; }

}  // namespace pare::resize
