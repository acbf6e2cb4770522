// One value while a graph runs. Internal to engine/run.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/run/buffer_pool.h"

namespace pare {

// Its tensors own their memory and are never written to.
struct TensorSequence {
  DType dtype = DType::kUndefined;
  std::vector<Tensor> tensors;
};

// A tensor in `view`, a sequence in `sequence`, or neither: an optional without a value.
//
// The memory of `view` is a block of the pool (one reference held by each slot that names it), or belongs to
// a graph input, a constant or `owner`; then buffer is -1 and it is never written to.
struct Slot {
  TensorView view;
  int buffer = -1;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const TensorSequence> sequence;

  bool has_value() const { return view.present() || sequence != nullptr; }
};

// The same value in a second slot.
inline Slot share(const Slot& slot, BufferPool& pool) {
  if (slot.buffer >= 0) pool.add_reference(slot.buffer);
  return slot;
}

inline void release(Slot& slot, BufferPool& pool) {
  if (slot.buffer >= 0) pool.release(slot.buffer);
  slot = Slot{};
}

// A slot with memory of its own.
inline Slot make_slot(DType dtype, Dims dims, BufferPool& pool) {
  Slot slot;
  slot.buffer = pool.acquire(dtype, dims, byte_count(dtype, dims));
  slot.view = {dtype, std::move(dims), pool.data(slot.buffer)};
  return slot;
}

}  // namespace pare
