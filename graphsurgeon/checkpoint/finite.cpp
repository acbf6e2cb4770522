#include "graphsurgeon/checkpoint/finite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"

namespace pare {
namespace {

constexpr std::int64_t kPart = 4096;  // elements

// Whether all exponents are below that of infinity. Parts of one size, so that the loop is vector
// instructions.
template <typename Int>
bool all_finite(const std::byte* values, std::int64_t n, Int infinity) {
  using Loose __attribute__((aligned(1), may_alias)) = Int;
  const Loose* bits = reinterpret_cast<const Loose*>(values);
  const auto magnitude = [&](std::int64_t i) {
    return static_cast<Int>(bits[i] & std::numeric_limits<Int>::max());
  };
  Int largest = 0;
  if (n == kPart)
    for (std::int64_t i = 0; i < kPart; ++i) largest = std::max(largest, magnitude(i));
  else
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(i));
  return largest < infinity;
}

bool all_finite(DType type, const std::byte* values, std::int64_t n) {
  if (type == DType::kBF16) return all_finite<std::int16_t>(values, n, 0x7F80);
  if (type == DType::kF16) return all_finite<std::int16_t>(values, n, 0x7C00);
  if (type == DType::kF32) return all_finite<std::int32_t>(values, n, 0x7F800000);
  return false;
}

}  // namespace

NonfiniteWeights count_nonfinite(const std::string& name, const Tensor& tensor) {
  NonfiniteWeights sum{name, 0, 0};
  const DType type = tensor.dtype();
  if (!is_float(type) || bits(type) < 8 || bits(type) > 32) return sum;
  std::array<float, kPart> part;
  for (std::int64_t i = 0; i < tensor.size(); i += kPart) {
    const std::int64_t n = std::min(kPart, tensor.size() - i);
    const auto* bytes = tensor.as<std::byte>() + i * bits(type) / 8;
    if (all_finite(type, bytes, n)) continue;
    decode(type, bytes, part.data(), n);
    for (std::int64_t j = 0; j < n; ++j) {
      sum.nan += std::isnan(part[static_cast<std::size_t>(j)]) ? 1 : 0;
      sum.inf += std::isinf(part[static_cast<std::size_t>(j)]) ? 1 : 0;
    }
  }
  return sum;
}

void refuse_nonfinite(const std::string& name, const Tensor& tensor, const std::string& where) {
  const NonfiniteWeights bad = count_nonfinite(name, tensor);
  if (bad.nan + bad.inf > 0)
    throw make_error(ErrorCode::kBadFile, "the weight '{}' has {} NaN and {} infinite values of {}", name,
                     bad.nan, bad.inf, tensor.size())
        .at(where)
        .hint("the checkpoint is damaged; `pare inspect MODEL --verify-data` lists all such weights");
}

}  // namespace pare
