// What a kernel is. One operator has an ordered list of them (registry.h): fastest first, the plain
// reference last; each says why it declines, so a failure can quote every reason.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"
#include "engine/ir/graph.h"

namespace pare {

enum class Backend : std::uint8_t { kCpu, kCuda };

// Grow-only memory that a session lends to one call at a time; contents are undefined at each call.
class Scratch {
 public:
  // At least `bytes`, 64-byte aligned. Valid until the next take() or the end of the call.
  void* take(std::size_t bytes);
  template <typename T>
  T* take(std::int64_t count) {
    return static_cast<T*>(take(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  Tensor memory_;
};

// Gives a kernel, while it runs, the memory of an output whose sizes only the data decides.
class OutputAllocator {
 public:
  virtual ~OutputAllocator() = default;
  // For output i, which is wanted. The dtype is as decided, sizes the rule gave must come back unchanged.
  virtual void* allocate(int i, const Dims& dims) = 0;
};

struct OpCall {
  const Node* node = nullptr;
  // In why_not and prepare, `data` is null unless the input is a constant. In run, it is there.
  std::span<const TensorView> in;  // !present(): an optional input left out
  // dtype and dims are decided, data is there in run. !present(): unwanted. Where sizes follow from the data
  // alone (NonZero, Unique) they are -1 and data is null: run calls allocate() for each such output.
  std::span<const TensorView> out;
  ThreadPool* pool = nullptr;
  Scratch* scratch = nullptr;
  // In run, what prepare returned. In prepare of a kernel that shares constants: what it returned for other
  // shapes of the same node's inputs, or null.
  const void* prepared = nullptr;
  void* stream = nullptr;  // backends other than the CPU
  OutputAllocator* allocator = nullptr;
  std::uint64_t seed = 0;  // of the session, for random operators without a seed of their own

  const TensorView& input(int i) const;  // an absent view when i is out of range
  bool has(int i) const { return input(i).present(); }
  bool wants(int i) const;      // output i is there to be computed
  bool has_open_sizes() const;  // of any wanted output
  // In run, once for each wanted output with open sizes: the output as it is now, with memory.
  TensorView allocate(int i, Dims dims) const;
};

// How much of what prepare returns holds for other shapes of the inputs that are no constants.
enum class PreparedShare : std::uint8_t {
  kNothing,
  kConstants,  // what it packed of constants, which it takes from OpCall::prepared
  kAll,        // everything: it is called once for a node
};

struct Kernel {
  std::string_view domain, op;
  Backend backend = Backend::kCpu;
  std::string_view name;  // "Conv/cpu:winograd", shown by `pare ops` and in profiles
  // "" = can run. Depends on dtypes, dims, attributes and constants only, never on other data. Never throws.
  std::string (*why_not)(const OpCall&) = nullptr;
  // Optional, once for each (node, input shapes): packs constant weights, resolves attributes.
  std::shared_ptr<const void> (*prepare)(const OpCall&) = nullptr;
  void (*run)(const OpCall&) = nullptr;  // only after why_not() came back empty

  // The result of one sample depends on neither batch size, its slot in the batch, nor threads.
  bool invariant = true;
  // Output 0 is input `alias` in other clothes (Reshape): the session shares the memory, run is not called.
  int alias = -1;
  // Where in input `alias` it begins, in bytes (a slice of whole rows); nullptr: at its start. Asked once for
  // each (node, input shapes), so it may depend on what why_not may depend on.
  std::int64_t (*alias_offset)(const OpCall&) = nullptr;
  // Bit i: output 0 may be written over input i when they have the same bytes and nobody else reads it.
  unsigned in_place = 0;
  // run() decides the sizes that the shape rule leaves open, by OpCall::allocate. Others are never asked
  // then.
  bool allocates = false;
  PreparedShare share = PreparedShare::kNothing;
};

}  // namespace pare
