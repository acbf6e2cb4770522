#include "engine/base/memory.h"

#include <fcntl.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

namespace pare {

namespace {

// The start of a small file of /proc or /sys; "" if it is not there. No allocation: it is called while
// memory is being measured, and from the sampling thread.
struct SmallFile {
  explicit SmallFile(const char* path) {
    const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    const ssize_t count = ::read(descriptor, text, sizeof(text) - 1);
    ::close(descriptor);
    if (count > 0) text[count] = '\0';
  }
  char text[8192] = "";
};

// "VmHWM:     1234 kB" in bytes; 0 if there is no such line.
std::int64_t status_bytes(const char* key) {
  const SmallFile status("/proc/self/status");
  const char* line = std::strstr(status.text, key);
  return line == nullptr ? 0 : 1024 * std::strtoll(line + std::strlen(key), nullptr, 10);
}

std::atomic<std::int64_t> highest_anonymous{0}, recent_anonymous{0};

void raise_to(std::atomic<std::int64_t>& most, std::int64_t bytes) {
  std::int64_t highest = most.load();
  while (bytes > highest && !most.compare_exchange_weak(highest, bytes)) {
  }
}

void note_anonymous(std::int64_t bytes) {
  raise_to(highest_anonymous, bytes);
  raise_to(recent_anonymous, bytes);
}

// Ends with the process: joined in the destructor of a static.
class Sampler {
 public:
  Sampler() : thread_([this] { run(); }) {}
  ~Sampler() {
    stop_ = true;
    thread_.join();
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

 private:
  void run() {
    while (!stop_) {
      note_anonymous(status_bytes("\nRssAnon:"));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace

std::int64_t peak_rss_bytes() { return status_bytes("\nVmHWM:"); }

std::int64_t current_anonymous_bytes() {
  const std::int64_t bytes = status_bytes("\nRssAnon:");
  note_anonymous(bytes);
  return bytes;
}

std::int64_t peak_anonymous_bytes() {
  current_anonymous_bytes();
  return highest_anonymous.load();
}

void restart_recent_peak() {
  recent_anonymous = 0;
  current_anonymous_bytes();
}

std::int64_t recent_peak_anonymous_bytes() {
  current_anonymous_bytes();
  return recent_anonymous.load();
}

void release_freed_memory() {
#ifdef __GLIBC__
  constexpr std::int64_t kGrown = std::int64_t{32} << 20;
  static std::atomic<std::int64_t> after_last{0};
  if (current_anonymous_bytes() < after_last.load() + kGrown) return;
  ::malloc_trim(0);
  after_last = current_anonymous_bytes();
#endif
}

void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

void start_memory_sampling() { static Sampler sampler; }

std::int64_t total_memory_bytes() {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGE_SIZE);
  const std::int64_t physical = pages > 0 && page > 0 ? pages * page : 0;
  std::int64_t total = physical;
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const std::int64_t limit = std::strtoll(SmallFile(path).text, nullptr, 10);  // "max" gives 0
    if (limit > 0) total = std::min(total, limit);
  }
  return total;
}

}  // namespace pare
