// Writes a quantized checkpoint: shards, index, config.json, what the format wants beside it, and the files
// of the source that go along (tokenizer, licences, generation config).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

struct WriteQuantizedOptions {
  std::int64_t shard_bytes = std::int64_t{5} << 30;  // a larger layer has a shard of its own
};

struct WrittenCheckpoint {
  std::vector<std::string> files;  // names in the folder
  std::int64_t bytes = 0;          // of tensors
  std::int64_t tensors = 0;
  // By layer, in the order of the model: a hash of what the layer's codes mean (hash_of_values), for the
  // proof that the files hold it.
  std::vector<std::uint64_t> values;
};

// Layers are asked for one after the other, in the natural order of their names, and are gone when the next
// one comes. Every file is complete or absent, and all appear together at the end, config.json last. `path`
// is a folder, made if it is missing. Errors, all before anything is written but the last: those of
// check_dialect; kUsage for a folder that holds a model; kDevice (disk full), after which no file is left.
WrittenCheckpoint write_quantized(const QuantizedSource& source, Dialect dialect, const std::string& path,
                                  const WriteQuantizedOptions& options = {});

// The floats of a model without layers, as a checkpoint without a quantization_config.
WrittenCheckpoint write_floats(const QuantizedSource& source, const std::string& path,
                               const WriteQuantizedOptions& options = {});

// Error kUsage when a checkpoint cannot be written to `path`: it holds a model, or is a file.
void check_checkpoint_output(const std::string& path);

// Of the dequantized weight: every bit counts but the sign of zero.
std::uint64_t hash_of_values(const QuantizedLinear& layer);

// "layer 2" before "layer 10".
bool natural_less(const std::string& a, const std::string& b);

}  // namespace pare
