// What is asked for: formats, target and rules, as plain data. recipes fills it from YAML or flags.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "quant/grid/grid.h"

namespace pare::quant {

// Whose fusions decide where Q/DQ stand (docs/placement.md):
//   tensorrt     explicit quantization: inputs of Conv, ConvTranspose, Gemm, MatMul; the residual input of
//                a skip Add behind a Conv; outputs and biases stay float
//   onnxruntime  what its QDQ fusions need: inputs and outputs of those operators, int32 bias
//   pare         as tensorrt, but residuals stay float: our integer kernels add them so
enum class Target { kPare, kTensorRT, kOnnxRuntime };
Target target_from_name(const std::string& text);  // Error kUsage with the list
const char* name(Target target);

enum class Granularity { kTensor, kChannel, kBlock, kToken };  // kToken: activations, rows of the last axis
const char* name(Granularity granularity);

struct Format {
  DType dtype = DType::kUndefined;  // of the codes; kUndefined: stays float
  Granularity granularity = Granularity::kTensor;
  int block = 0;  // kBlock only: neighbours along the axis that the product sums over
  bool symmetric = true;
  // How scales are written. Blocks also have E4M3FN: two levels, below a float32 for the tensor (NVFP4), and
  // E8M0: powers of two (MX).
  DType scales = DType::kF32;
  int bits = 0;           // integers: fewer than the type holds (3, in int4); 0: all of them
  bool positive = false;  // scales above zero only
  bool dynamic = false;   // activations: scales are computed at run time
  bool fitted = false;    // activations in blocks: scales of least error at run time (block_scales.h)
  bool asked = false;     // the block size was asked for by name: another one is an error
  int rows = 1;           // kBlock, weights of linear layers: outputs that share a block's scale (FP8: 128)

  bool active() const { return dtype != DType::kUndefined; }
  bool operator==(const Format&) const = default;
};
// "int8, per channel", "float4_e2m1, per block of 16, scales float8_e4m3fn in two levels"
std::string to_string(const Format& format);

// The grid that a weight of this format lies on. A tensor's one scale is that of one row that holds it all.
GridFormat grid_format(const Format& format);

// A format by the name that recipes use: int8, uint8, int16, fp8, fp8_e5m2, int4, uint4, int3, int2, nvfp4,
// mxfp4, mxfp8 ("none" and the names of engine/numeric's table, too). For a weight: with its granularity,
// block and scales as the scheme of that name has them. Error kUnsupported with the list.
Format weight_format(const std::string& text);
Format activation_format(const std::string& text);

// Patterns are literal, or full matches of a regular expression behind "re:". Lists mean any.
struct Match {
  std::vector<std::string> name;        // the node's name, or that of a value it computes
  std::vector<std::string> op;          // Conv, Gemm, MatMul ...
  std::vector<std::string> tensor;      // any of the node's inputs
  std::vector<std::string> dtype = {};  // element type of a constant that the node reads: "float16"
  // Number of its block in a language model: what follows "layers", "layer", "blocks", "block" or "h" in a
  // name ("model.layers.3.mlp").
  std::vector<std::string> block = {};
};

struct Rule {
  Match match;
  std::optional<bool> quantize;
  std::optional<Format> weights, activations;
  std::optional<std::string> method = std::nullopt;
  std::string origin =
      {};                // where it was asked for, in the words of the user: "quantize.ignore". "": "rule N"
  std::string why = {};  // that it leaves layers float, of rules that nobody wrote; "": origin says so
};

struct Spec {
  Target target = Target::kPare;
  Format weights{DType::kI8, Granularity::kChannel, 0, true};
  Format activations{DType::kI8, Granularity::kTensor, 0, true};
  std::vector<Rule> rules;         // in order, later wins
  std::vector<std::string> ops;    // only these operators; {}: all that the target can use
  std::vector<std::string> share;  // kinds of layers that are fused later: "qkv", "gate_up" (share.h)
  std::string method = "auto";     // how codes of a layer's weight are chosen; one of methods()
  Format kv_cache;  // keys and values of every Attention, one scale each; target pare. Inactive: float
};

// auto, rtn, search, local_hessian, gptq, awq, smoothquant, equalize, learned, low_rank
// (docs/weight-methods.md).
const std::vector<std::string>& methods();

// Error kUsage or kUnsupported for what this build cannot do, before any work.
void check(const Spec& spec);

// The two formats behind a scheme name ("int8", "nvfp4"). Error kUsage with the list.
struct Scheme {
  const char* name;
  const char* meaning;
  Format weights, activations;
};
const std::vector<Scheme>& schemes();
const Scheme& scheme_from_name(const std::string& text);
// What to do about a name that is none: the nearest one, with what it is, and one that differs from it by
// case alone; or all of them.
std::string scheme_hint(const std::string& text);
// "NVFP4 quantizes inputs too" for nvfp4: a scheme of the same letters that is another one; "" where there is
// none.
std::string same_letters(const Scheme& scheme);

// The block that a weight with `ins` inputs a product and `taps` gets:
//   one that divides, or is not smaller than, the inputs   stays
//   an asked-for one that does not divide                   Error kUsage with the dividing ones
//   else                                                    the largest power of two that divides, from 16
//   on;
//                                                           where there is none a short last block, which
//                                                           TensorRT does not take: Error kUnsupported
// Integers of fewer than 16 inputs (first layers, depthwise ones) get one scale an output channel instead,
// and so do blocks of several outputs where there are taps.
// `layer` is named by the errors.
Format fit_block(const Format& format, std::int64_t ins, std::int64_t taps, Target target,
                 const std::string& layer = {});

struct LayerGroups {
  std::string layer;
  std::int64_t ins = 0, taps = 1;
  Format format;
};
// Would fit_block() refuse it as an asked-for size that does not divide?
bool groups_misfit(const LayerGroups& one);
// Error kUsage for the first layer that does, with the sizes that divide the inputs of all that asked for the
// same: what one layer takes is no help when the next one refuses it.
void check_groups(const std::vector<LayerGroups>& layers);

}  // namespace pare::quant
