// A checkpoint: config.json with its weights in safetensors files, or one GGUF file. Opening reads headers
// only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/tokenizer_spec.h"
#include "engine/ir/graph.h"
#include "graphsurgeon/checkpoint/config.h"
#include "graphsurgeon/checkpoint/quantization_config.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/checkpoint/weights.h"
#include "graphsurgeon/families/family.h"

namespace pare {

struct Checkpoint {
  std::string path;
  ModelConfig config;
  const Family* family = nullptr;              // nullptr: not known
  std::shared_ptr<const WeightStore> weights;  // by the names of a float checkpoint
  std::shared_ptr<const WeightStore> stored;   // as the files have them; the same where nothing is quantized
  QuantizationConfig quantization;
  std::shared_ptr<const QuantizedSource> quantized;  // nullptr: all weights are floats, or blocks with minima
};

// A folder with config.json, or a GGUF file. Errors: those of weights.h, config.h, quantization_config.h and
// read_linear.h. An unknown family is none here: require_family() says it.
Checkpoint open_checkpoint(const std::string& path);
// That of the checkpoint: tokenizer.json of a folder, or what the GGUF file holds. Errors as tokenizer_json.h
// and gguf_model.h say.
TokenizerSpec checkpoint_tokenizer(const std::string& path);
const Family& require_family(const Checkpoint& checkpoint);

// Errors: an unknown family; weights that are not those of the config; NaN in them (builder.h).
Graph build_graph(const Checkpoint& checkpoint, const BuildOptions& options = {});

}  // namespace pare
