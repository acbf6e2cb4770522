#include "calib/channel_moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "engine/base/error.h"
#include "engine/base/grain.h"
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

constexpr std::int64_t kChunk = 8192;  // elements

struct Units {
  double inverse, inverse_square;
  float limit;
};

// To the nearest whole number, ties to even, for |v| < 2^51: adding 1.5 * 2^52 leaves no bits behind the
// point.
double whole(double v) {
  constexpr double kShift = 6755399441055744.0;
  return (v + kShift) - kShift;
}

// Sums stay whole numbers below 2^53 (values below 2^22, fewer than 2^31 of them in a piece), so they are
// exact.
void add_row(const float* __restrict x, const float* __restrict image, std::int64_t channels,
             std::int64_t inner, const Units& units, double* __restrict sum, double* __restrict square,
             double* __restrict error) {
  const auto add = [&](std::int64_t c, std::int64_t i) {
    // NaN and infinities count as 0: they have a count of their own in the histogram.
    const float finite = std::fabs(x[i]) <= std::numeric_limits<float>::max() ? x[i] : 0.0f;
    const float bounded = std::min(std::max(finite, -units.limit), units.limit);
    const double v = static_cast<double>(bounded);
    sum[c] += whole(v * units.inverse);
    square[c] += whole(v * v * units.inverse_square);
    if (image != nullptr) {
      const double e = static_cast<double>(image[i]) - static_cast<double>(x[i]);
      error[c] += std::fabs(x[i]) <= std::numeric_limits<float>::max() ? whole(e * units.inverse) : 0.0;
    }
  };
  if (inner == 1) {
    for (std::int64_t c = 0; c < channels; ++c) add(c, c);
  } else {
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) add(c, i);
  }
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
    session.watch(request.value.path, request.value.id,
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
    throw make_error(ErrorCode::kUsage, "'{}' changes its number of channels", slot.request.value.name)
        .hint("leave the layer out (ignore, --exclude)");
  slot.count += static_cast<std::uint64_t>(rows * inner);

  const float limit = static_cast<float>(slot.request.amax);
  const bool quantized = slot.request.scale > 0;
  QuantTarget target;
  target.type = slot.request.code_dtype;
  // Rows are taken a few at a time, so that what fake_quantize wrote is still in the cache.
  const std::int64_t row = channels * inner, together = grain_for(kChunk, row);
  std::mutex mutex;
  pool_.parallel_for(rows, together, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sum(n), square(n), error(n);
    std::vector<float> image(static_cast<std::size_t>(quantized ? together * row : 0));
    for (std::int64_t first = begin; first < end; first += together) {
      const std::int64_t count = std::min(together, end - first);
      const float* x = values.as<float>() + first * row;
      if (quantized)
        fake_quantize(x, ScaleLayout::per_tensor(count * row), &slot.request.scale,
                      slot.request.zero_point != 0 ? &slot.request.zero_point : nullptr, target,
                      image.data());
      const Units units{1 / slot.unit, 1 / slot.square_unit, limit};  // powers of two: exact
      for (std::int64_t r = 0; r < count; ++r)
        add_row(x + r * row, quantized ? image.data() + r * row : nullptr, channels, inner, units, sum.data(),
                square.data(), error.data());
    }
    const std::lock_guard<std::mutex> lock(mutex);  // whole numbers: any order gives the same
    for (std::size_t k = 0; k < n; ++k) {
      slot.sum[k] += static_cast<std::int64_t>(sum[k]);
      slot.square[k] += static_cast<std::int64_t>(square[k]);
      slot.error[k] += static_cast<std::int64_t>(error[k]);
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
