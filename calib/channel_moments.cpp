#include "calib/channel_moments.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "engine/base/error.h"
#include "engine/numeric/quantize.h"
#include "engine/run/session.h"

namespace pare {
namespace {

// |x| / unit stays below 2^21, so 2^42 values fit a sum of int64; squares have a unit of their own.
double unit_for(double largest) {
  int exponent = 0;
  std::frexp(largest, &exponent);
  return std::ldexp(1.0, exponent - 21);
}

}  // namespace

void MomentCollector::attach(Session& session, const std::vector<MomentRequest>& requests) {
  for (const MomentRequest& request : requests) {
    PARE_ASSERT(request.value.channel_axis >= 0 && request.amax > 0);
    auto slot = std::make_unique<Slot>();
    slot->request = request;
    slot->unit = unit_for(request.amax);
    slot->square_unit = unit_for(request.amax * request.amax);
    Slot* raw = slot.get();
    slots_.push_back(std::move(slot));
    session.watch(request.value.id,
                  [this, raw](ValueId, const TensorView& values) { collect(*raw, values); });
  }
}

void MomentCollector::collect(Slot& slot, const TensorView& values) {
  const auto axis = static_cast<std::size_t>(slot.request.value.channel_axis);
  if (values.dtype != DType::kF32 || axis >= values.dims.size() || values.size() == 0) return;
  const std::int64_t channels = values.dims[axis];
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < values.dims.size(); ++i) inner *= values.dims[i];
  const std::int64_t rows = values.size() / (channels * inner);  // outer positions
  const auto n = static_cast<std::size_t>(channels);
  if (slot.sum.empty()) {
    slot.sum.resize(n);
    slot.square.resize(n);
    slot.error.resize(n);
  }
  if (slot.sum.size() != n)
    fail(ErrorCode::kUsage, "'{}' changes its number of channels", slot.request.value.name);
  slot.count += static_cast<std::uint64_t>(rows * inner);

  const float limit = static_cast<float>(slot.request.amax);
  const double inv_unit = 1 / slot.unit, inv_square = 1 / slot.square_unit;  // powers of two: exact
  const bool quantized = slot.request.scale > 0;
  QuantTarget target;
  target.type = slot.request.code_dtype;
  std::mutex mutex;
  pool_.parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> sum(n), square(n), error(n);
    std::vector<float> image(static_cast<std::size_t>(channels * inner));
    for (std::int64_t r = begin; r < end; ++r) {
      const float* x = values.as<float>() + r * channels * inner;
      if (quantized)
        fake_quantize(x, ScaleLayout::per_tensor(channels * inner), &slot.request.scale,
                      slot.request.zero_point != 0 ? &slot.request.zero_point : nullptr, target,
                      image.data());
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto k = static_cast<std::size_t>(c);
        for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) {
          if (!std::isfinite(x[i])) continue;
          const double v = static_cast<double>(std::clamp(x[i], -limit, limit));
          sum[k] += static_cast<std::int64_t>(std::nearbyint(v * inv_unit));
          square[k] += static_cast<std::int64_t>(std::nearbyint(v * v * inv_square));
          if (quantized)
            error[k] += static_cast<std::int64_t>(std::nearbyint(
                (static_cast<double>(image[static_cast<std::size_t>(i)]) - static_cast<double>(x[i])) *
                inv_unit));
        }
      }
    }
    const std::lock_guard<std::mutex> lock(mutex);  // integer sums: any order gives the same
    for (std::size_t k = 0; k < n; ++k) {
      slot.sum[k] += sum[k];
      slot.square[k] += square[k];
      slot.error[k] += error[k];
    }
  });
}

std::vector<ChannelMoments> MomentCollector::moments() const {
  std::vector<ChannelMoments> all;
  for (const std::unique_ptr<Slot>& slot : slots_) {
    ChannelMoments m;
    m.name = slot->request.value.name;
    m.count = slot->count;
    const double count = static_cast<double>(std::max<std::uint64_t>(slot->count, 1));
    for (std::size_t c = 0; c < slot->sum.size(); ++c) {
      m.mean.push_back(static_cast<double>(slot->sum[c]) * slot->unit / count);
      m.mean_square.push_back(static_cast<double>(slot->square[c]) * slot->square_unit / count);
      if (slot->request.scale > 0)
        m.mean_error.push_back(static_cast<double>(slot->error[c]) * slot->unit / count);
    }
    all.push_back(std::move(m));
  }
  return all;
}

}  // namespace pare
