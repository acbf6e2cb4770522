#include "tests/conformance/compare.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"

namespace pare::conformance {
namespace {

double element(const Tensor& t, std::int64_t i) {
  double wide = 0;
  const int size = bits(t.dtype());
  if (size < 8) {  // its code, alone in a byte
    std::uint8_t code = packed_code(size, t.data(), i);
    convert({t.dtype(), {1}, &code}, {DType::kF64, {1}, &wide});
    return wide;
  }
  convert({t.dtype(), {1}, const_cast<std::byte*>(t.as<std::byte>()) + i * size / 8},
          {DType::kF64, {1}, &wide});
  return wide;
}

struct Count {  // of draws that came out, and what was to be expected
  double seen = 0, mean = 0, variance = 0;
  bool fair() const { return std::fabs(seen - mean) <= 5 * std::sqrt(variance) + 1e-9; }
};

// Bernoulli: 1 with the input's probability.
std::string bernoulli(const Tensor& p, const Tensor& got) {
  Count count;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double value = element(got, i), chance = element(p, i);
    if (value != 0 && value != 1) return fmt::format("element {} is {}, neither 0 nor 1", i, value);
    count.seen += value, count.mean += chance, count.variance += chance * (1 - chance);
  }
  return count.fair() ? "" : fmt::format("{} ones where {} are to be expected", count.seen, count.mean);
}

// Dropout in training: x / (1 - ratio) or 0 with chance `ratio`; the mask says which.
std::string dropout(const std::vector<Tensor>& in, const std::vector<Tensor>& got) {
  const double ratio = in.size() > 1 ? element(in[1], 0) : 0.5;
  Count count;
  for (std::int64_t i = 0; i < got[0].size(); ++i) {
    const double y = element(got[0], i), kept = element(in[0], i) / (1 - ratio);
    const bool dropped = y == 0;
    if (!dropped && std::fabs(y - kept) > 1e-3 * std::fabs(kept))
      return fmt::format("element {} is {}, neither 0 nor {}", i, y, kept);
    if (got.size() > 1 && (element(got[1], i) == 0) != dropped) return fmt::format("mask {} is wrong", i);
    count.seen += dropped ? 1 : 0, count.mean += ratio, count.variance += ratio * (1 - ratio);
  }
  return count.fair() ? "" : fmt::format("{} zeros where {} are to be expected", count.seen, count.mean);
}

bool holds(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

std::string shape_difference(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype())
    return fmt::format("is {}, should be {}", name(got.dtype()), name(want.dtype()));
  if (got.dims() != want.dims())
    return "is " + to_string(got.dims()) + ", should be " + to_string(want.dims());
  return "";
}

std::string difference(const Tensor& got, const Tensor& want, const Tolerance& tolerance) {
  if (std::string why = shape_difference(got, want); !why.empty()) return why;
  if (got.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < got.size(); ++i)
      if (got.as<std::string>()[i] != want.as<std::string>()[i]) return fmt::format("string {} differs", i);
    return "";
  }
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = element(got, i), b = element(want, i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::fabs(a - b) <= tolerance.relative * std::fabs(b) + tolerance.absolute) continue;
    return fmt::format("element {} is {}, should be {}", i, a, b);
  }
  return "";
}

bool is_random(const std::string& test) {
  return holds(test, "bernoulli") || (holds(test, "training_dropout") && !holds(test, "zero_ratio"));
}

std::string random_difference(const std::string& test, const std::vector<Tensor>& in,
                              const std::vector<Tensor>& got) {
  return holds(test, "bernoulli") ? bernoulli(in[0], got[0]) : dropout(in, got);
}

}  // namespace pare::conformance
