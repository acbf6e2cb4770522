// Collects equal tensors, one an iteration, into one with a new axis. Internal to engine/run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/run/slot.h"

namespace pare {

class Stack {
 public:
  // `each`: what the subgraph declares of one tensor, for the case that there is none. `axis`: the place of
  // the new axis, counted from the back when negative. `backwards`: the last one comes first.
  Stack(const Value& each, std::int64_t axis, bool backwards)
      : each_(each), axis_(axis), backwards_(backwards) {}

  void reserve(std::int64_t count) { expected_ = count; }
  // Copies. Error kBadFile when dtype or shape differ from those before; kUnsupported below 8 bits.
  void push(const TensorView& view);
  Slot finish(BufferPool& pool);

 private:
  const Value& each_;
  std::int64_t axis_ = 0;
  bool backwards_ = false;
  DType dtype_ = DType::kUndefined;
  Dims dims_;
  std::int64_t count_ = 0, expected_ = 0;
  Tensor memory_;  // bytes, of all so far
  std::vector<std::string> strings_;
};

}  // namespace pare
