#include "graphsurgeon/open_checkpoint.h"

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "graphsurgeon/checkpoint/read_quantized.h"
#include "graphsurgeon/checkpoint/tokenizer_json.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/gguf/gguf_model.h"

namespace pare {

Checkpoint open_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  if (!is_directory(path)) {
    const auto file = std::make_shared<const GgufFile>(open_gguf(path));
    checkpoint.config = gguf_config(*file);
    checkpoint.weights = checkpoint.stored = gguf_weights(file);
    checkpoint.family = find_family(checkpoint.config.model_type);
    return checkpoint;
  }
  const std::string config = join_path(path, "config.json");
  if (!is_regular_file(config))
    throw make_error(ErrorCode::kBadFile, "there is no config.json, which says what the weights are")
        .at(path)
        .hint("download it with the weights");
  checkpoint.config = read_model_config(config);
  // Chat models end a turn with tokens that only this file names.
  const std::string generation = join_path(path, "generation_config.json");
  if (is_regular_file(generation)) {
    const Json json = read_json_file(generation);
    const auto ends = json.is_object() ? json.find("eos_token_id") : json.end();
    if (ends != json.end())
      for (const Json& id : ends->is_array() ? *ends : Json::array({*ends}))
        if (id.is_number_integer()) checkpoint.config.eos.push_back(id.get<std::int64_t>());
  }
  checkpoint.quantization = read_quantization_config(path);
  checkpoint.weights = checkpoint.stored = open_safetensors_weights(path);
  if (checkpoint.quantization.active()) {
    checkpoint.quantized = make_quantized_source(path, checkpoint.stored, checkpoint.quantization);
    checkpoint.weights = make_dequantizing_weights(checkpoint.quantized, checkpoint.stored);
  }
  checkpoint.family = find_family(checkpoint.config.model_type);
  return checkpoint;
}

TokenizerSpec checkpoint_tokenizer(const std::string& path) {
  return is_directory(path) ? read_tokenizer(path) : gguf_tokenizer(open_gguf(path));
}

}  // namespace pare
