// A quantized checkpoint in memory, whatever files it was read from or goes to: what compressed-tensors,
// AutoAWQ, GPTQ, Model Optimizer and GGUF hold, in one form. Readers make it, writers (dialect.h) take it,
// conversions between file formats are changes of it.
//
// A layer is a linear weight W [outs, ins] as codes, one a byte, and steps:
//
//   W[r][c] = (code[r][c] - zero[R][g]) * step[R][g]        in float32, rounded once
//   step    = scale                                         one level
//             float32(scale * global)                       two levels, as Model Optimizer and ONNX have them
//             float32(scale / global)                       two levels, as compressed-tensors has them
//   R = r / row_group, g = c / group (group_of[c] when it is there)
//
// Integer codes are numbers: int8_t(byte) of signed types, byte of unsigned ones, sign-extended whatever
// their bits. E4M3FN and E2M1 codes are bit patterns in the low bits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/tensor.h"

namespace pare {

// How a weight, or the input of a layer, is coded.
struct CodeFormat {
  DType codes = DType::kUndefined;  // kI8, kU8, kI4, kU4, kI2, kU2, kE4M3FN, kE2M1; kUndefined: stays float
  int bits = 0;                     // of an integer: 2 to 8 (3 in a kI4); of others those of the type
  bool symmetric = true;            // false: zero points, integers only
  DType scales = DType::kF32;       // as stored: kF32, kF16, kBF16, kE8M0, kE4M3FN (two levels)
  std::int64_t row_group = 1;       // outputs that share a scale; 0: all. Inputs of layers: 0 is static or
                                    // one for the tensor, 1 is a scale a token
  std::int64_t group = 0;           // inputs that share a scale; 0: all of a row
  bool dynamic = false;             // of inputs: scales at run time

  bool active() const { return codes != DType::kUndefined; }
  bool two_levels() const { return scales == DType::kE4M3FN; }
  bool operator==(const CodeFormat&) const = default;
};
// "int4, symmetric, groups of 128, scales bfloat16"
std::string to_string(const CodeFormat& format);

// Which layer, and how it is coded: all that a writer must know before it sees codes.
struct LinearFormat {
  std::string module;  // "model.layers.0.self_attn.q_proj": the tensor is MODULE.weight
  std::int64_t outs = 0, ins = 0;
  bool in_first =
      false;  // the float checkpoint stores [ins, outs] (GPT-2); codes here are [outs, ins] always
  CodeFormat weights, inputs;
  bool act_order = false;      // group_of is there: groups follow another order than the inputs
  bool input_factors = false;  // the layer's input is multiplied before (Model Optimizer's pre_quant_scale)
};

struct QuantizedLinear : LinearFormat {
  std::vector<std::uint8_t> codes;        // [outs, ins]
  std::vector<float> scales;              // [row groups, groups]; exact in weights.scales
  std::vector<std::int32_t> zero_points;  // as scales; empty when symmetric (the zero point is then 0)
  float global = 1;                       // two levels
  bool global_divides = false;            // step = scale / global
  // Inputs that are not dynamic: one scale and zero point; of two-level inputs the global scale, which
  // divides or multiplies as that of the weight does.
  float input_scale = 0;
  std::int32_t input_zero = 0;
  std::vector<std::int32_t> group_of;  // [ins], g_idx; empty: c / group
  std::vector<float> factors;          // [ins] pre_quant_scale; empty: none
};

// Groups down the outputs, and along the inputs.
std::int64_t row_groups(const LinearFormat& layer);
std::int64_t column_groups(const LinearFormat& layer);
// Sizes, codes within their range, steps finite, group_of within the groups. Error kBadFile naming the
// module.
void check_linear(const QuantizedLinear& layer);
// W in float32, row-major [outs, ins], by the formulas above; `to` holds outs * ins. Rows [begin, end) alone:
// `to` begins with row `begin`.
void dequantize_linear(const QuantizedLinear& layer, float* to);
void dequantize_linear(const QuantizedLinear& layer, std::int64_t begin, std::int64_t end, float* to);

// Symmetric integers as unsigned codes with the middle zero point (2^(bits-1)), and back: the same values.
// to_signed also moves zero points of asymmetric codes by 2^(bits-1).
void to_unsigned(QuantizedLinear& layer);
void to_signed(QuantizedLinear& layer);
// Makes `global` multiply (divide) where it divides (multiplies), if that keeps every step in every bit.
// False, and nothing is changed, where no float32 near 1 / global does.
bool turn_global(QuantizedLinear& layer, bool divides);

// The float32 nearest to `global` that turn_global can turn for every E4M3 scale: multiplying by it and
// dividing by a neighbour of its inverse give the same bits. A change of a few units in the last place.
float turnable_global(float global);
// The same for inputs, whose divisor means its inverse: a float32 that is the inverse of its inverse.
float turnable_input(float scale);

enum class Dialect { kCompressedTensors, kAutoAwq, kGptq, kGptqV2, kModelOpt, kGguf };
const char* name(Dialect dialect);  // "compressed_tensors", "autoawq", "gptq", "gptq_v2", "modelopt", "gguf"
bool dialect_from_name(const std::string& text, Dialect& out);  // "awq" is autoawq

// Scales of a quantized KV cache, of one attention module.
struct KvScales {
  std::string attention;  // "model.layers.0.self_attn"
  float key = 1, value = 1;
};

struct FloatTensor {
  std::string name;
  DType dtype = DType::kUndefined;
  Dims dims;
};

struct QuantizedModel {
  std::string folder;                // config.json, tokenizer and whatever else goes along unchanged
  std::vector<LinearFormat> layers;  // in the order in which they are written
  std::vector<FloatTensor> floats;   // that stay as they are: embeddings, norms, biases, ignored layers
  // Linear modules among `floats` (lm_head, a router): files name what they left alone.
  std::vector<std::string> ignored;
  bool untied = false;                 // the head has codes of its own now: config.json must say so
  DType kv_cache = DType::kUndefined;  // kE4M3FN, kI8: the cache is quantized by kv_scales
  std::vector<KvScales> kv_scales;
  std::vector<std::pair<std::string, std::string>> provenance;  // for config.json: pare version, hashes
};

// A model with its numbers, which come when they are asked for: memory is that of one layer.
class QuantizedSource {
 public:
  virtual ~QuantizedSource() = default;
  virtual const QuantizedModel& model() const = 0;
  virtual QuantizedLinear layer(std::size_t index) const = 0;      // of model().layers
  virtual Tensor float_tensor(const std::string& name) const = 0;  // of model().floats
};

}  // namespace pare
