#include "engine/ops/kernel.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

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

bool OpCall::wants(int i) const {
  return i >= 0 && static_cast<std::size_t>(i) < out.size() && out[static_cast<std::size_t>(i)].present();
}

bool OpCall::has_open_sizes() const {
  return std::any_of(out.begin(), out.end(), [](const TensorView& view) {
    return view.present() && std::any_of(view.dims.begin(), view.dims.end(), [](auto d) { return d < 0; });
  });
}

TensorView OpCall::allocate(int i, Dims dims) const {
  PARE_ASSERT(allocator != nullptr && wants(i));
  const TensorView& promised = out[static_cast<std::size_t>(i)];
  PARE_ASSERT(promised.dims.size() == dims.size());
  for (std::size_t k = 0; k < dims.size(); ++k)
    PARE_ASSERT(promised.dims[k] < 0 || promised.dims[k] == dims[k]);
  void* const data = allocator->allocate(i, dims);
  return {promised.dtype, std::move(dims), data};
}

}  // namespace pare
