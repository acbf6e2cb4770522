#include "engine/build/bench_contexts.h"

#include <chrono>
#include <exception>
#include <functional>
#include <thread>

#include "engine/base/error.h"

namespace pare {
namespace {

// body(i) for each context, on a thread each; the first exception is thrown here.
double seconds_together(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failed(count);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::exception_ptr& error : failed)
    if (error) std::rethrow_exception(error);
  return seconds;
}

}  // namespace

ContextTimes bench_contexts(const std::vector<EngineRunner*>& contexts, const std::vector<Tensor>& inputs,
                            int repeats) {
  PARE_ASSERT(!contexts.empty() && repeats > 0);
  ContextTimes times;
  const std::vector<Tensor> alone = contexts[0]->run(inputs);
  std::vector<std::vector<Tensor>> outputs(contexts.size());
  seconds_together(contexts.size(), [&](std::size_t i) { outputs[i] = contexts[i]->run(inputs); });
  for (const std::vector<Tensor>& list : outputs)
    for (std::size_t o = 0; o < alone.size(); ++o)
      times.same_bits = times.same_bits && equal_bytes(alone[o], list[o]);
  const auto rate = [&](std::size_t count) {
    const double seconds = seconds_together(count, [&](std::size_t i) { contexts[i]->repeat(repeats); });
    return static_cast<double>(count) * repeats / seconds;
  };
  rate(contexts.size());  // everything warm
  times.one_per_second = rate(1);
  times.all_per_second = rate(contexts.size());
  return times;
}

}  // namespace pare
