// The weights of a checkpoint by name, whatever files they are in. Nothing is read before it is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/tensor.h"
#include "graphsurgeon/checkpoint/quantized.h"

namespace pare {

struct GgmlType;

class WeightStore {
 public:
  struct Entry {
    std::string name;  // as the model's family names it
    std::string type;  // "bfloat16"; GGUF: "Q4_1"
    Dims dims;
    std::int64_t bytes = 0;  // in the file
    std::string file;        // without its folder
  };

  virtual ~WeightStore() = default;
  const std::vector<Entry>& entries() const { return entries_; }  // sorted by name
  const Entry* find(const std::string& name) const;               // nullptr when there is none

  // The tensor as it is stored, mapped; of types that are no element type (GGUF's blocks, codes with scales)
  // the values in float32, in memory. Error kBadFile when there is none of that name.
  virtual Tensor get(const std::string& name) const = 0;

  // How MODULE.weight is coded, when it is codes and scales (read_quantized.h); else nullptr.
  virtual const LinearFormat* coded(const std::string& name) const;
  // Its codes. Only where coded() is not null.
  virtual QuantizedLinear codes(const std::string& name) const;
  // Scales of a quantized KV cache: of an attention module, or nullptr. `type` gets that of the cache.
  virtual const KvScales* kv_scales(const std::string& attention, DType& type) const;
  // The blocks of a matrix as they are stored, uint8 [rows, bytes of a row], mapped, with their type; empty
  // where it is not in a type that kernels keep (engine/numeric/ggml_codes.h).
  virtual Tensor blocks(const std::string&, const GgmlType*&) const { return {}; }

  std::int64_t bytes() const;       // of all entries
  std::int64_t parameters() const;  // elements of all entries

 protected:
  std::vector<Entry> entries_;
};

// A .safetensors file, or a folder with model.safetensors, or shards with an index. Errors, kBadFile with
// the file and tensor: those of safetensors.h; an index that names a file which is missing, lies outside of
// the folder, or does not hold the tensor (with the file that does); without an index: shards 'i of N' that
// are not all there, a tensor in two files.
std::unique_ptr<WeightStore> open_safetensors_weights(const std::string& path);

struct NonfiniteWeights {
  std::string name;
  std::int64_t nan = 0, inf = 0;
};
// Reads every float tensor; those with NaN or infinities, by name.
std::vector<NonfiniteWeights> find_nonfinite(const WeightStore& store);

}  // namespace pare
