#include "eval/compare.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"

namespace pare {
namespace {

constexpr int kLanes = 8;  // partial sums of one sample; fixed, so that the order of additions is too

struct Sums {
  double signal = 0, noise = 0, product = 0, candidate = 0, largest = 0;
};

Sums sums_of(const float* r, const float* c, std::int64_t count) {
  double signal[kLanes] = {}, noise[kLanes] = {}, product[kLanes] = {}, candidate[kLanes] = {};
  double largest[kLanes] = {};
  std::int64_t i = 0;
  const auto step = [&](int k, std::int64_t at) {
    const double x = r[at], y = c[at], d = x - y;
    signal[k] += x * x;
    noise[k] += d * d;
    product[k] += x * y;
    candidate[k] += y * y;
    largest[k] = std::fabs(d) > largest[k] ? std::fabs(d) : largest[k];
  };
  for (; i + kLanes <= count; i += kLanes)
    for (int k = 0; k < kLanes; ++k) step(k, i + k);
  for (int k = 0; i < count; ++i, ++k) step(k, i);
  Sums total;
  for (int k = 0; k < kLanes; ++k) {
    total.signal += signal[k];
    total.noise += noise[k];
    total.product += product[k];
    total.candidate += candidate[k];
    total.largest = largest[k] > total.largest ? largest[k] : total.largest;
  }
  return total;
}

std::int64_t count_not_finite(const float* values, std::int64_t count) {
  std::int64_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) bad += std::isfinite(values[i]) ? 0 : 1;
  return bad;
}

std::int64_t per_sample(const TensorView& view) {
  if (view.dims.empty()) return 1;
  const std::int64_t n = view.dims[0];
  return n == 0 ? 0 : view.size() / n;
}

std::int64_t sample_count(const TensorView& view) { return view.dims.empty() ? 1 : view.dims[0]; }

}  // namespace

void Comparison::add_sample(const float* r, const float* c, std::int64_t count) {
  const Sums s = sums_of(r, c, count);
  signal_ += s.signal;
  noise_ += s.noise;
  const double norms = std::sqrt(s.signal) * std::sqrt(s.candidate);
  if (s.signal == 0 && s.candidate == 0)
    cosine_ += 1;
  else if (norms != 0)  // NaN passes, so that it stays visible
    cosine_ += s.product / norms;
  max_abs_ = s.largest > max_abs_ ? s.largest : max_abs_;
  ++samples_;
  // A NaN or infinity anywhere shows in these sums; only then is it worth counting.
  if (std::isfinite(s.signal) && std::isfinite(s.candidate)) return;
  not_finite_reference_ += count_not_finite(r, count);
  not_finite_candidate_ += count_not_finite(c, count);
}

void Comparison::add(const TensorView& reference, const TensorView& candidate) {
  const std::int64_t n = sample_count(reference), size = per_sample(reference);
  if (sample_count(candidate) != n || per_sample(candidate) != size)
    fail(ErrorCode::kInternal, "comparing values of shapes {} and {}", to_string(reference.dims),
         to_string(candidate.dims));
  const Tensor r = to_float32(reference), c = to_float32(candidate);
  for (std::int64_t i = 0; i < n; ++i) add_sample(r.as<float>() + i * size, c.as<float>() + i * size, size);
}

double Comparison::sqnr_db() const {
  if (not_finite_reference_ + not_finite_candidate_ > 0) return std::nan("");
  if (noise_ == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal_ / noise_);
}

double Comparison::cosine() const {
  if (not_finite_reference_ + not_finite_candidate_ > 0) return std::nan("");
  return samples_ == 0 ? 1 : cosine_ / static_cast<double>(samples_);
}

double Comparison::max_abs() const {
  return not_finite_reference_ + not_finite_candidate_ > 0 ? std::nan("") : max_abs_;
}

void TopK::add(const TensorView& outputs, const TensorView& labels) {
  const std::int64_t n = sample_count(outputs), classes = per_sample(outputs);
  if (labels.size() != n) fail(ErrorCode::kInternal, "{} labels for {} samples", labels.size(), n);
  const Tensor values = to_float32(outputs);
  for (std::int64_t i = 0; i < n; ++i) {
    const float* row = values.as<float>() + i * classes;
    const std::int64_t label = labels.as<std::int64_t>()[i];
    ++samples_;
    if (label < 0 || label >= classes) continue;
    std::int64_t before = 0;
    bool nan = false;
    for (std::int64_t j = 0; j < classes; ++j) {
      nan = nan || std::isnan(row[j]);
      before += row[j] > row[label] || (row[j] == row[label] && j < label) ? 1 : 0;
    }
    if (!nan && before < k_) ++right_;
  }
}

void ClipCount::add(const TensorView& values) {
  const Tensor floats = to_float32(values);
  const float* x = floats.as<float>();
  const std::int64_t count = floats.size();
  std::int64_t inside = 0;
  for (std::int64_t i = 0; i < count; ++i) inside += x[i] >= low && x[i] <= high ? 1 : 0;
  outside += count - inside;
  seen += count;
}

Tensor to_float32(const TensorView& values) {
  if (values.dtype == DType::kF32) return Tensor::share(DType::kF32, values.dims, values.data, nullptr);
  Tensor floats = Tensor::allocate(DType::kF32, values.dims);
  convert(values, floats.view());
  return floats;
}

Tensor to_plain_order(const TensorView& view) {
  const std::size_t rank = view.dims.size();
  if (rank < 3) return Tensor::share(view.dtype, view.dims, view.data, nullptr);
  Dims dims = {view.dims[0], view.dims[rank - 1]};
  dims.insert(dims.end(), view.dims.begin() + 1, view.dims.end() - 1);
  const std::int64_t n = dims[0], channels = dims[1],
                     pixels = n * channels == 0 ? 0 : view.size() / (n * channels);
  Tensor plain = Tensor::allocate(view.dtype, dims);
  const std::size_t item = static_cast<std::size_t>(bits(view.dtype)) / 8;
  const auto* from = static_cast<const std::byte*>(view.data);
  auto* to = plain.mut<std::byte>();
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t p = 0; p < pixels; ++p)
      for (std::int64_t c = 0; c < channels; ++c)
        std::memcpy(to + static_cast<std::size_t>((i * channels + c) * pixels + p) * item,
                    from + static_cast<std::size_t>((i * pixels + p) * channels + c) * item, item);
  return plain;
}

}  // namespace pare
