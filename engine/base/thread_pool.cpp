#include "engine/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace pare {
namespace {

// Long enough to bridge the gap between two layers, short enough not to disturb a shared machine.
constexpr int kSpins = 4000;

thread_local bool inside_a_body = false;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// One loop at a time is open. A worker counts itself in (`inside`) before it looks whether the loop is open;
// the caller closes the loop before it looks who is inside. So whoever comes late finds it closed, and the
// caller waits only for workers that took part: a worker that the system has not woken yet holds nobody up.
struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<std::uint64_t> generation{0};  // one a parallel_for
  std::atomic<bool> open{false};
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};

  // The loop that is open; written before it opens.
  const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;
  std::int64_t count = 0, step = 1;
  std::atomic<std::int64_t> next{0};
  std::exception_ptr error;

  std::vector<std::thread> workers;
  std::mutex one_loop;  // calls from several threads take turns

  void take_pieces() {
    inside_a_body = true;
    try {
      for (;;) {
        const std::int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
        if (begin >= count) break;
        (*body)(begin, std::min(begin + step, count));
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
      next.store(count);
    }
    inside_a_body = false;
  }

  void work() {
    std::uint64_t seen = 0;
    for (;;) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen && !stop.load(std::memory_order_relaxed)) {
        if (++spins < kSpins) {
          pause_cpu();
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return generation.load() != seen || stop.load(); });
      }
      if (stop.load()) return;
      seen = generation.load(std::memory_order_acquire);
      inside.fetch_add(1);  // sequentially consistent, as is the read of `open` behind it
      if (open.load()) take_pieces();
      inside.fetch_sub(1);
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  PARE_ASSERT(threads >= 1);
  for (int i = 1; i < threads; ++i) state_->workers.emplace_back([this] { state_->work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (threads_ == 1 || inside_a_body || count <= grain) {
    body(0, count);
    return;
  }
  State& s = *state_;
  const std::lock_guard<std::mutex> turn(s.one_loop);
  // A few pieces a thread, so that a thread that is held up elsewhere does not hold up the loop.
  const std::int64_t pieces = static_cast<std::int64_t>(threads_) * 4;
  const std::int64_t units = (count + grain - 1) / grain;
  s.body = &body;
  s.count = count;
  s.step = std::max<std::int64_t>(1, (units + pieces - 1) / pieces) * grain;
  s.error = nullptr;
  s.next.store(0, std::memory_order_relaxed);
  s.open.store(true);
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.take_pieces();
  s.open.store(false);
  int spins = 0;
  while (s.inside.load() != 0) {
    if (++spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
  if (s.error) std::rethrow_exception(s.error);
}

namespace {

// cgroup v2 "max 100000" or "150000 100000": the quota in processors, or 0 when there is none.
int cgroup_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  char* end = nullptr;
  const double value = std::strtod(quota.c_str(), &end);
  return end == quota.c_str() ? 0 : std::max(1, static_cast<int>(value / period + 0.5));
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = std::max(1, CPU_COUNT(&set));
  const int quota = cgroup_quota();
  return quota > 0 ? std::min(count, quota) : count;
}

}  // namespace pare
