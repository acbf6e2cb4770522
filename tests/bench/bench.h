// Measuring a piece of work: refuse to time a wrong answer, warm up, take the median, print one JSON line.
//
// The median, because other work on the machine only ever makes a call slower. `bytes` is the least that any
// implementation must read plus write, so that GB/s can be held against the memory and the hardware.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace pare::bench {

struct Work {
  std::string name;               // "encode/float8_e4m3fn/avx2"
  std::function<void()> run;      // one call, finished when it returns
  std::function<bool()> correct;  // checked once, after the warm-up
  std::int64_t bytes = 0;         // read plus written in one call
};

struct Timing {
  bool correct = false;
  double median_s = 0, min_s = 0, p90_s = 0;
};

// Prints {"name", "median_s", "min_s", "p90_s", "gb_per_s"}, or {"name", "error"} if the result was wrong.
inline Timing measure(const Work& work, int warmup = 3, int repeats = 21) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < warmup; ++i) work.run();
  Timing timing;
  if (!work.correct()) {
    fmt::print("{{\"name\":\"{}\",\"error\":\"wrong result\"}}\n", work.name);
    return timing;
  }
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    work.run();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  timing = {true, seconds[seconds.size() / 2], seconds.front(), seconds[seconds.size() * 9 / 10]};
  fmt::print(
      "{{\"name\":\"{}\",\"median_s\":{:.3e},\"min_s\":{:.3e},\"p90_s\":{:.3e},\"gb_per_s\":{:.2f}}}\n",
      work.name, timing.median_s, timing.min_s, timing.p90_s,
      static_cast<double>(work.bytes) / timing.median_s * 1e-9);
  std::fflush(stdout);
  return timing;
}

}  // namespace pare::bench
