// The data sets' own random numbers: the same on every machine and with every compiler.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pare {

// splitmix64 (Steele, Lea, Flood 2014).
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound), without bias; bound > 0
  double unit();                             // uniform in [0, 1), 53 bits
  float normal();                            // mean 0, variance 1: sum of 12 uniform numbers minus 6

 private:
  std::uint64_t state_;
};

// 0 .. count-1, in order, or permuted by Fisher-Yates from the last place down.
std::vector<std::int64_t> shuffled_rows(std::int64_t count, std::optional<std::uint64_t> seed);

}  // namespace pare
