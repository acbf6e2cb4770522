#include "engine/ops/kernel.h"

#include <algorithm>

namespace pare {

void* Scratch::take(std::size_t bytes) {
  if (memory_.empty() || static_cast<std::size_t>(memory_.bytes()) < bytes) {
    memory_ = {};  // give the old block back before asking for the larger one
    memory_ = Tensor::allocate(DType::kU8, {static_cast<std::int64_t>(std::max<std::size_t>(bytes, 4096))});
  }
  return memory_.mut<std::byte>();
}

const TensorView& OpCall::input(int i) const {
  static const TensorView absent;
  return i >= 0 && static_cast<std::size_t>(i) < in.size() ? in[static_cast<std::size_t>(i)] : absent;
}

}  // namespace pare
