// Every index exactly once, whatever the counts; exceptions come back; nested calls run inline.
#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace pare {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> hits(static_cast<std::size_t>(count));
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, RethrowsAndGoesOn) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(100, 1,
                                 [](std::int64_t begin, std::int64_t) {
                                   if (begin >= 0) throw std::runtime_error("piece");
                                 }),
               std::runtime_error);
  std::atomic<std::int64_t> sum{0};
  pool.parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  EXPECT_EQ(sum.load(), 4950);
}

TEST(ThreadPool, NestedCallsRunInline) {
  ThreadPool pool(2);
  std::atomic<int> inner{0};
  pool.parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      pool.parallel_for(10, 1, [&](std::int64_t b, std::int64_t e) { inner += static_cast<int>(e - b); });
  });
  EXPECT_EQ(inner.load(), 80);
}

}  // namespace
}  // namespace pare
