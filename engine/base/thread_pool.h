// A pool of threads for loops whose pieces do not depend on each other.
//
// No result may depend on the number of threads: a kernel gives each output element to one piece and
// sums in an order that does not know how the pieces were cut.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace pare {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1; the caller's thread is one of them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(begin, end) over pieces that cover [0, count) once each, pieces a multiple of `grain`
  // long (the last may be shorter), and returns when all are done. The first exception is rethrown here.
  // A call from inside a body runs inline. Waiting workers spin for a few microseconds, then sleep.
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

// The processors this process may use (affinity and cgroup quota considered), at least 1.
int available_threads();

}  // namespace pare
