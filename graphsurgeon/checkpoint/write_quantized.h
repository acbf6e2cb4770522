// Writes a quantized checkpoint: shards, index, config.json, what the format wants beside it, and the files
// of the source that go along (tokenizer, licences, generation config).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

struct WriteQuantizedOptions {
  std::int64_t shard_bytes = std::int64_t{5} << 30;  // a larger tensor has a shard of its own
};

struct WrittenCheckpoint {
  std::vector<std::string> files;  // names in the folder
  std::int64_t bytes = 0;          // of tensors
  std::int64_t tensors = 0;
};

// Layers are asked for one after the other and are gone when the next one comes. Every file is complete or
// absent; config.json is the last, so a folder without it is no model. `path` is a folder, made if it is
// missing (GGUF: a file); one that holds another model: Error kUsage. Errors: those of check_dialect, before
// anything is written; kDevice (disk full), which leaves nothing under a final name.
WrittenCheckpoint write_quantized(const QuantizedSource& source, Dialect dialect, const std::string& path,
                                  const WriteQuantizedOptions& options = {});

}  // namespace pare
