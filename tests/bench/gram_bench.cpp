// Gram matrices: seconds for 4,096 positions, and the multiply-adds of one triangle a second (n (n + 1) / 2 a
// position); one line a size. Wrong sums are refused.
#include <cmath>
#include <random>

#include "calib/gram.h"
#include "tests/bench/bench.h"

int main() {
  using namespace pare;
  ThreadPool pool(1);
  for (const auto& [n, groups] :
       {std::pair<std::int64_t, std::int64_t>{192, 1}, {512, 1}, {1408, 1}, {9, 512}}) {
    const std::int64_t positions = 4096, width = n * groups;
    std::vector<float> x(static_cast<std::size_t>(positions * width));
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random);
    Gram got;
    bench::Work work;
    work.name = fmt::format("gram/{}x{}", n, groups);
    work.bytes = static_cast<std::int64_t>(x.size() * sizeof(float));
    work.run = [&, n = n, groups = groups] {
      GramAccumulator sum("x", n, groups, pool);
      for (std::int64_t at = 0; at < positions;) {
        std::int64_t k = positions - at;
        float* out = sum.rows(k);
        std::copy_n(x.data() + at * width, k * width, out);
        sum.commit(k);
        at += k;
      }
      got = sum.take();
    };
    work.correct = [&, n = n, groups = groups] {
      // The first column with all others of the first group; interleaved groups lie column by column.
      const std::int64_t step = groups > 1 ? groups : 1;
      for (std::int64_t j = 0; j < n; ++j) {
        double want = 0;
        for (std::int64_t p = 0; p < positions; ++p)
          want += static_cast<double>(x[static_cast<std::size_t>(p * width)]) *
                  static_cast<double>(x[static_cast<std::size_t>(p * width + j * step)]);
        if (std::fabs(got.at(0, 0, j) - want) > 1e-3 * static_cast<double>(positions)) return false;
      }
      return true;
    };
    const bench::Timing timing = bench::measure(work, 1, 5);
    const double steps = static_cast<double>(positions) * static_cast<double>(Gram::triangle(n) * groups);
    if (timing.correct)
      fmt::print("{{\"name\":\"{}\",\"gmac_per_s\":{:.1f}}}\n", work.name, steps / timing.min_s * 1e-9);
  }
  return 0;
}
