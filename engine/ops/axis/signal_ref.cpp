#include "engine/ops/axis/signal.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

using Complex = std::complex<double>;

constexpr double kPi = 3.14159265358979323846;

std::vector<Complex> roots_of_unity(std::size_t n, bool inverse) {
  constexpr Complex kQuarters[] = {
      {1, 0}, {0, 1}, {-1, 0}, {0, -1}};  // exact, which sin and cos of pi are not
  std::vector<Complex> roots(n);
  for (std::size_t k = 0; k < n; ++k) {
    const double angle = 2 * kPi * static_cast<double>(k) / static_cast<double>(n);
    roots[k] = 4 * k % n == 0 ? kQuarters[4 * k / n] : Complex(std::cos(angle), std::sin(angle));
    if (!inverse) roots[k] = std::conj(roots[k]);
  }
  return roots;
}

std::size_t least_factor(std::size_t n) {
  for (std::size_t p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

// y[k] = sum_j x[j step] root^(j k step), n of them; roots.size() = n * step.
void transform(const Complex* x, Complex* y, std::size_t n, std::size_t step,
               const std::vector<Complex>& roots) {
  if (n <= 1) {
    if (n == 1) y[0] = x[0];
    return;
  }
  const std::size_t p = least_factor(n), m = n / p;
  std::vector<Complex> parts(n);
  for (std::size_t r = 0; r < p; ++r) transform(x + r * step, parts.data() + r * m, m, step * p, roots);
  for (std::size_t k = 0; k < n; ++k) {
    Complex sum = 0;
    for (std::size_t r = 0; r < p; ++r) {
      const Complex a = parts[r * m + k % m], w = roots[r * k % n * step];
      // Written out: std::complex's product looks for infinities.
      sum += Complex(a.real() * w.real() - a.imag() * w.imag(), a.real() * w.imag() + a.imag() * w.real());
    }
    y[k] = sum;
  }
}

std::vector<Complex> transformed(const std::vector<Complex>& x, const std::vector<Complex>& roots) {
  std::vector<Complex> y(x.size());
  transform(x.data(), y.data(), x.size(), 1, roots);
  return y;
}

std::string dft_why_not(const OpCall& call) {
  const std::int64_t parts = call.in[0].dims.back();
  const bool one = call.node->attr("onesided", std::int64_t{0}) != 0,
             inverse = call.node->attr("inverse", std::int64_t{0}) != 0;
  if (parts != 1 && parts != 2) return "the last axis holds neither 1 nor 2 numbers";
  if (one && inverse && parts != 2) return "real numbers for a one-sided inverse";
  return float_reason(call, {0});
}

void run_dft(const OpCall& call) {
  const Dims &x_dims = call.in[0].dims, &y_dims = call.out[0].dims;
  const auto rank = static_cast<std::int64_t>(x_dims.size());
  std::int64_t axis = call.has(2) ? ints_of(call.in[2]).at(0) : -2;
  if (axis < 0) axis += rank;
  const auto at = static_cast<std::size_t>(axis);
  const bool inverse = call.node->attr("inverse", std::int64_t{0}) != 0,
             one = call.node->attr("onesided", std::int64_t{0}) != 0;
  const std::int64_t have = x_dims[at];
  std::int64_t n = inverse && one ? 2 * (have - 1) : have;
  if (call.has(1)) n = ints_of(call.in[1]).at(0);
  const std::int64_t inner = product_of(x_dims, at + 1, x_dims.size() - 1), outer = product_of(x_dims, 0, at),
                     parts = x_dims.back(), y_parts = y_dims.back(), kept = y_dims[at];
  const std::vector<double> x = doubles_of(call.in[0]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()));
  const std::vector<Complex> roots = roots_of_unity(static_cast<std::size_t>(n), inverse);
  call.pool->parallel_for(outer * inner, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Complex> line(static_cast<std::size_t>(n));
    for (std::int64_t l = begin; l < end; ++l) {
      std::fill(line.begin(), line.end(), Complex(0));
      const std::int64_t used = std::min(have, inverse && one ? n / 2 + 1 : n);
      for (std::int64_t k = 0; k < used; ++k) {
        const auto from = static_cast<std::size_t>(((l / inner * have + k) * inner + l % inner) * parts);
        line[static_cast<std::size_t>(k)] = {x[from], parts == 2 ? x[from + 1] : 0.0};
      }
      if (inverse && one && n > 0) {
        line[0].imag(0);
        if (n % 2 == 0) line[static_cast<std::size_t>(n / 2)].imag(0);
        for (std::int64_t k = n / 2 + 1; k < n; ++k)
          line[static_cast<std::size_t>(k)] = std::conj(line[static_cast<std::size_t>(n - k)]);
      }
      const std::vector<Complex> result = transformed(line, roots);
      for (std::int64_t k = 0; k < kept; ++k) {
        const auto to = static_cast<std::size_t>(((l / inner * kept + k) * inner + l % inner) * y_parts);
        const Complex value = result[static_cast<std::size_t>(k)] / (inverse ? static_cast<double>(n) : 1.0);
        y[to] = value.real();
        if (y_parts == 2) y[to + 1] = value.imag();
      }
    }
  });
  write_doubles(call.out[0], y);
}

// --- STFT

std::string stft_why_not(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  if (dims.size() != 3 || (dims[2] != 1 && dims[2] != 2)) return "the signal is not [batch, length, 1 or 2]";
  return float_reason(call, {0, 2});
}

void run_stft(const OpCall& call) {
  const Dims &x_dims = call.in[0].dims, &y_dims = call.out[0].dims;  // [batch, frames, kept, 2]
  const std::int64_t step = ints_of(call.in[1]).at(0), length = x_dims[1], parts = x_dims[2];
  std::vector<double> window;
  if (call.has(2)) window = doubles_of(call.in[2]);
  std::int64_t n = call.has(2) ? static_cast<std::int64_t>(window.size()) : length;
  if (call.has(3)) n = ints_of(call.in[3]).at(0);
  if (window.empty()) window.assign(static_cast<std::size_t>(n), 1);
  const auto taken = std::min<std::int64_t>(n, static_cast<std::int64_t>(window.size()));
  const std::vector<double> x = doubles_of(call.in[0]);
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()));
  const std::vector<Complex> roots = roots_of_unity(static_cast<std::size_t>(n), false);
  call.pool->parallel_for(y_dims[0] * y_dims[1], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Complex> line(static_cast<std::size_t>(n));
    for (std::int64_t f = begin; f < end; ++f) {
      std::fill(line.begin(), line.end(), Complex(0));
      const std::int64_t start = f % y_dims[1] * step;
      for (std::int64_t k = 0; k < taken && start + k < length; ++k) {
        const auto from = static_cast<std::size_t>((f / y_dims[1] * length + start + k) * parts);
        const double w = window[static_cast<std::size_t>(k)];
        line[static_cast<std::size_t>(k)] = {x[from] * w, parts == 2 ? x[from + 1] * w : 0.0};
      }
      const std::vector<Complex> result = transformed(line, roots);
      for (std::int64_t k = 0; k < y_dims[2]; ++k) {
        const auto to = static_cast<std::size_t>((f * y_dims[2] + k) * 2);
        y[to] = result[static_cast<std::size_t>(k)].real();
        y[to + 1] = result[static_cast<std::size_t>(k)].imag();
      }
    }
  });
  write_doubles(call.out[0], y);
}

// --- MelWeightMatrix

std::string mel_why_not(const OpCall& call) {
  if (call.out[0].dtype == DType::kBool || call.out[0].dtype == DType::kString) return "no such output type";
  return float_reason(call, {3, 4});
}

void run_mel(const OpCall& call) {
  const std::int64_t bins = ints_of(call.in[0]).at(0), length = ints_of(call.in[1]).at(0),
                     rate = ints_of(call.in[2]).at(0), spectrum = call.out[0].dims[0];
  const auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  const double low = mel(doubles_of(call.in[3]).at(0)), high = mel(doubles_of(call.in[4]).at(0));
  if (rate <= 0 || !(high >= low))
    throw make_error(ErrorCode::kBadFile, "a sample rate of {}, or edges in disorder", rate);
  const double each = (high - low) / static_cast<double>(bins + 2);
  std::vector<std::int64_t> corners;
  for (std::int64_t i = 0; i < bins + 2; ++i) {
    const double f = 700 * (std::pow(10.0, (static_cast<double>(i) * each + low) / 2595) - 1);
    const double corner = std::floor(static_cast<double>(length + 1) * f / static_cast<double>(rate));
    if (!(corner >= 0 && corner < static_cast<double>(spectrum)))
      throw make_error(ErrorCode::kBadFile, "{} Hz is outside a spectrum of {} bins at {} Hz", f, spectrum,
                       rate);
    corners.push_back(static_cast<std::int64_t>(corner));
  }
  std::vector<double> y(static_cast<std::size_t>(call.out[0].size()), 0);
  for (std::int64_t i = 0; i < bins; ++i) {
    const auto* corner = corners.data() + i;
    const auto at = [&](std::int64_t j) -> double& { return y[static_cast<std::size_t>(j * bins + i)]; };
    const auto rise = static_cast<double>(corner[1] - corner[0]),
               fall = static_cast<double>(corner[2] - corner[1]);
    if (rise == 0) at(corner[1]) = 1;
    for (std::int64_t j = corner[0]; rise > 0 && j <= corner[1]; ++j)
      at(j) = static_cast<double>(j - corner[0]) / rise;
    for (std::int64_t j = corner[1]; j < corner[2]; ++j) at(j) = static_cast<double>(corner[2] - j) / fall;
  }
  write_doubles(call.out[0], y);
}

}  // namespace

std::vector<Complex> fourier(const std::vector<Complex>& x, bool inverse) {
  return transformed(x, roots_of_unity(x.size(), inverse));
}

void add_signal_references(Registry& registry) {
  registry.add({"", "DFT", Backend::kCpu, "DFT/cpu:reference", dft_why_not, nullptr, run_dft});
  registry.add({"", "STFT", Backend::kCpu, "STFT/cpu:reference", stft_why_not, nullptr, run_stft});
  registry.add(
      {"", "MelWeightMatrix", Backend::kCpu, "MelWeightMatrix/cpu:reference", mel_why_not, nullptr, run_mel});
}

}  // namespace pare
