#include "engine/run/buffer_pool.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {

int BufferPool::acquire(DType dtype, const Dims& dims, std::int64_t bytes) {
  int best = -1, largest = -1, vacant = -1;
  const auto size_of = [&](int i) { return blocks_[static_cast<std::size_t>(i)].memory.bytes(); };
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    if (block.references != 0) continue;
    if (block.memory.empty()) {
      vacant = i;
    } else if (block.memory.dtype() != DType::kString && dtype != DType::kString) {
      if (size_of(i) >= bytes && (best < 0 || size_of(i) < size_of(best))) best = i;
      if (largest < 0 || size_of(i) > size_of(largest)) largest = i;
    }
  }
  int chosen = best;
  if (chosen < 0) {
    if (largest >= 0) blocks_[static_cast<std::size_t>(largest)].memory = {};
    chosen = largest >= 0 ? largest : vacant;
    if (chosen < 0) {
      chosen = static_cast<int>(blocks_.size());
      blocks_.emplace_back();
    }
    blocks_[static_cast<std::size_t>(chosen)].memory =
        dtype == DType::kString ? Tensor::allocate(dtype, dims)
                                : Tensor::allocate(DType::kU8, {std::max<std::int64_t>(bytes, 64)});
  }
  blocks_[static_cast<std::size_t>(chosen)].references = 1;
  return chosen;
}

void BufferPool::release(int block) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  PARE_ASSERT(b.references > 0);
  if (--b.references == 0 && b.memory.dtype() == DType::kString) b.memory = {};
}

void BufferPool::release_all() {
  for (Block& block : blocks_) {
    block.references = 0;
    if (!block.memory.empty() && block.memory.dtype() == DType::kString) block.memory = {};
  }
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
