// What the blocks of a model read: for every calibration sample the model's own inputs, and the activations
// that the block before has left. They are held in memory, or, above a limit, in a file without a name that
// is mapped, so that pages which nobody needs at present leave memory.
//
// In bfloat16 activations take half of the room; each is rounded once where a block ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"

namespace pare {

struct ActivationOptions {
  DType type = DType::kF32;                           // or kBF16
  std::int64_t memory_bytes = std::int64_t{2} << 30;  // what activations may take before they go to a file
  std::string folder;                                 // of that file
};

class ActivationStore {
 public:
  // Reads all samples of `data`. Error kUnsupported where their shapes differ, or where the model's own
  // outputs are fed back.
  ActivationStore(Dataset& data, const ActivationOptions& options, ThreadPool& pool);
  ~ActivationStore();
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  // Of the samples, as they were read: what statistics files call the data's hash.
  const DigestSum& data_hash() const;
  std::int64_t count() const;

  // Samples 0 .. samples-1 (0: all) for a graph that reads model inputs, and the activations under the name
  // that put() was given last. What it lends is valid until the next put() of these samples.
  std::unique_ptr<Dataset> data(const std::vector<InputSpec>& inputs, std::int64_t samples) const;

  // Activations of samples begin .. begin+k-1, float32 [k, ...], under a name: in place of the former ones,
  // which were of the same shape or are dropped. All samples get theirs, in order, before data() is called
  // again with that name. Errors: kUsage for another shape than that of the first sample; kDevice when the
  // disk is full.
  void put(const std::string& name, std::int64_t begin, const Tensor& values);

  std::int64_t bytes() const;  // of activations held now
  bool in_file() const;

 private:
  struct Held;
  std::shared_ptr<Held> held_;
  ActivationOptions options_;
};

}  // namespace pare
