#include "datasets/random.h"

#include <numeric>
#include <utility>

namespace pare {

std::uint64_t SplitMix::next() {
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint64_t SplitMix::below(std::uint64_t bound) {
  const std::uint64_t uneven = (0 - bound) % bound;  // 2^64 mod bound: so many numbers are too many
  for (;;) {
    const std::uint64_t number = next();
    if (number >= uneven) return number % bound;
  }
}

double SplitMix::unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

float SplitMix::normal() {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += unit();
  return static_cast<float>(sum - 6);
}

std::vector<std::int64_t> shuffled_rows(std::int64_t count, std::optional<std::uint64_t> seed) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  if (!seed) return rows;
  SplitMix random(*seed);
  for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.below(i)]);
  return rows;
}

}  // namespace pare
