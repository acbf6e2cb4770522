// A checkpoint: config.json with its weights in safetensors files, or one GGUF file. open_checkpoint.h opens
// one.
#pragma once

#include <memory>
#include <string>

#include "graphsurgeon/checkpoint/config.h"
#include "graphsurgeon/checkpoint/quantization_config.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/checkpoint/weights.h"

namespace pare {

struct Family;  // families/family.h

struct Checkpoint {
  std::string path;
  ModelConfig config;
  const Family* family = nullptr;              // nullptr: not known
  std::shared_ptr<const WeightStore> weights;  // by the names of a float checkpoint
  std::shared_ptr<const WeightStore> stored;   // as the files have them; the same where nothing is quantized
  QuantizationConfig quantization;
  std::shared_ptr<const QuantizedSource> quantized;  // nullptr: all weights are floats, or blocks with minima
};

}  // namespace pare
