// What every linear layer of a checkpoint will be, by the rules of a spec and the sizes of its weights alone:
// nothing of the weights is read. What its files cannot hold is refused here, before any work.
#pragma once

#include <string>
#include <vector>

#include "graphsurgeon/checkpoint/checkpoint.h"
#include "graphsurgeon/checkpoint/quantized.h"
#include "graphsurgeon/families/linear_modules.h"
#include "quant/placement/spec.h"

namespace pare {

struct LeftFloat {
  std::string module, why;
};

struct PlannedLayer {
  LinearModule module;
  quant::Format weights;  // with groups that fit
  quant::Format inputs;
  std::string method;
};

struct PlannedLayers {
  std::vector<PlannedLayer> layers;
  std::vector<LeftFloat> left;
  Graph graph;  // that the modules' nodes are of; weights as views
};

// Why checkpoint formats leave a layer float that no rule names: it chooses experts, or is the head. "": no
// reason.
std::string why_float(const LinearModule& module, bool quantize_head);

// `spec` by rules for module names. Error kUsage for a group size that was asked for and does not divide.
PlannedLayers planned_layers(const Checkpoint& checkpoint, const quant::Spec& spec, bool quantize_head);

// Error kUnsupported when the files of `dialect` cannot hold these layers, a cache of that type
// (kUndefined: none), or for GGUF the model.
void check_held(const Checkpoint& checkpoint, Dialect dialect, const PlannedLayers& planned, DType kv_cache);

}  // namespace pare
