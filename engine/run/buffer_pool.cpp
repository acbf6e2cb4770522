#include "engine/run/buffer_pool.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {

int BufferPool::acquire(DType dtype, const Dims& dims, std::int64_t bytes) {
  int chosen = -1;
  bool fits = false;
  if (dtype != DType::kString && !free_.empty()) {
    auto it = free_.lower_bound({bytes, 0});
    fits = it != free_.end();
    if (!fits) it = free_.lower_bound({free_.rbegin()->first, 0});  // the largest
    chosen = it->second;
    free_.erase(it);
  } else if (!vacant_.empty()) {
    chosen = vacant_.back();
    vacant_.pop_back();
  } else {
    chosen = static_cast<int>(blocks_.size());
    blocks_.emplace_back();
  }
  Block& block = blocks_[static_cast<std::size_t>(chosen)];
  block.references = 1;  // also when there is no memory to be had: release_all() makes it free again
  if (fits) return chosen;
  block.memory = {};  // before the new one is taken
  block.memory = dtype == DType::kString ? Tensor::allocate(dtype, dims)
                                         : Tensor::allocate(DType::kU8, {std::max<std::int64_t>(bytes, 64)});
  return chosen;
}

void BufferPool::free(int block) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  b.references = 0;
  if (!b.memory.empty() && b.memory.dtype() == DType::kString) b.memory = {};
  if (b.memory.empty())
    vacant_.push_back(block);
  else
    free_.emplace(b.memory.bytes(), block);
}

void BufferPool::release(int block) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  PARE_ASSERT(b.references > 0);
  if (--b.references == 0) free(block);
}

void BufferPool::release_all() {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].references != 0) free(static_cast<int>(i));
}

void* BufferPool::data(int block) {
  Tensor& memory = blocks_[static_cast<std::size_t>(block)].memory;
  return memory.dtype() == DType::kString ? static_cast<void*>(memory.mut<std::string>())
                                          : memory.mut<std::byte>();
}

std::int64_t BufferPool::bytes() const {
  std::int64_t sum = 0;
  for (const Block& block : blocks_)
    if (!block.memory.empty() && block.memory.dtype() != DType::kString) sum += block.memory.bytes();
  return sum;
}

}  // namespace pare
