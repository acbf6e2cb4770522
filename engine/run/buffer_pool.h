// Memory for intermediate values, reused from node to node and from run to run.
//
// Best fit among the free blocks. When none is large enough, the largest free one is given back to the
// system before a new one is taken, so the pool does not hold what it outgrew.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/tensor.h"

namespace pare {

class BufferPool {
 public:
  // A block of at least `bytes` with one reference. Strings get a block of their own kind.
  int acquire(DType dtype, const Dims& dims, std::int64_t bytes);
  void add_reference(int block) { ++blocks_[static_cast<std::size_t>(block)].references; }
  int references(int block) const { return blocks_[static_cast<std::size_t>(block)].references; }
  void release(int block);
  void release_all();  // every block becomes free
  void* data(int block);
  std::int64_t bytes() const;  // held, free ones included

 private:
  struct Block {
    Tensor memory;
    int references = 0;
  };
  void free(int block);

  std::vector<Block> blocks_;
  std::set<std::pair<std::int64_t, int>> free_;  // bytes and number of free blocks that hold memory
  std::vector<int> vacant_;                      // blocks without memory
};

}  // namespace pare
