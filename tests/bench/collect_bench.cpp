// How fast the collector counts, by instruction class and by what the values look like; checked against the
// scalar class. GB/s are of float32 read; 4 divided by them is ns a value.
//
//   collect_bench [THREADS]
#include <cstdlib>

#include "calib/collector.h"
#include "engine/base/isa.h"
#include "tests/bench/bench.h"
#include "tests/unit/calib/values.h"

namespace pare {
namespace {

TensorView view_of(const std::vector<float>& values) {
  return {DType::kF32, {static_cast<std::int64_t>(values.size())}, const_cast<float*>(values.data())};
}

TensorStats collect_once(ThreadPool& pool, Isa isa, const std::vector<float>& values) {
  set_isa(isa);
  Collector collector(pool);
  collector.collect(collector.add("x"), view_of(values));
  return collector.stats()[0];
}

bool run(int threads) {
  struct Case {
    const char* name;
    std::vector<float> values;
  };
  ThreadPool pool(threads);
  const std::int64_t n = 64 * 64 * 28 * 28;  // an early activation of a small ResNet, batch 64: 12.8 MB
  const Case cases[] = {{"normal", normal_values(n, 1)},
                        {"relu", normal_values(n, 2, 1, true)},
                        {"constant", std::vector<float>(static_cast<std::size_t>(n), -0.81f)},
                        {"few", normal_values(4096, 3)}};
  bool all_correct = true;
  for (const Case& c : cases) {
    const TensorStats expected = collect_once(pool, Isa::kScalar, c.values);
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      if (isa > best_isa()) continue;
      set_isa(isa);
      Collector collector(pool);
      const int index = collector.add("x");
      const auto bytes = static_cast<std::int64_t>(c.values.size()) * 4;
      const std::int64_t calls = std::max<std::int64_t>(1, (std::int64_t{4} << 20) / bytes);
      all_correct &=
          bench::measure({fmt::format("collect/{}/{}/threads:{}", c.name, name(isa), threads),
                          [&] {
                            for (std::int64_t k = 0; k < calls; ++k)
                              collector.collect(index, view_of(c.values));
                          },
                          [&] { return collect_once(pool, isa, c.values) == expected; }, bytes * calls})
              .correct;
    }
  }
  return all_correct;
}

}  // namespace
}  // namespace pare

int main(int argc, char** argv) { return pare::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1) ? 0 : 1; }
