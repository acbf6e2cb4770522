// Hands each running piece of a parallel_for a slot number below the number of threads, so that pieces
// can share one scratch allocation without knowing which thread they run on.
#pragma once

#include <atomic>
#include <memory>

#include "engine/base/thread_pool.h"

namespace pare {

class ThreadSlots {
 public:
  explicit ThreadSlots(const ThreadPool& pool)
      : count_(pool.threads()),
        busy_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(count_))) {}

  class Slot {
   public:
    explicit Slot(ThreadSlots& slots) : slots_(slots) {
      for (index_ = 0;
           slots_.busy_[static_cast<std::size_t>(index_)].exchange(true, std::memory_order_acquire);)
        index_ = (index_ + 1) % slots_.count_;
    }
    ~Slot() { slots_.busy_[static_cast<std::size_t>(index_)].store(false, std::memory_order_release); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    int index() const { return index_; }

   private:
    ThreadSlots& slots_;
    int index_ = 0;
  };

 private:
  int count_;
  std::unique_ptr<std::atomic<bool>[]> busy_;  // all false
};

}  // namespace pare
