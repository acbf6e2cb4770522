// Makes the graph of a checkpoint out of standard ONNX operators (opset 23: RMSNormalization,
// RotaryEmbedding, Attention). One object builds one graph; families (family.h) call its parts in the order
// of their layers.
//
// Nodes carry the names of the modules that they are ("model.layers.0.self_attn.q_proj"), weights those of
// the checkpoint. Two forms:
//   whole       input_ids [batch, sequence] -> logits [batch, sequence, vocabulary]
//   with_cache  beside them past_key_values.I.key and .value [batch, kv_heads, past, head_size] in, and
//               present.I.key and .value [..., past + sequence, ...] out
//   stepwise    for generation on the CPU: past (int64 scalar), cache.I.key and .value in as
//               pare.CachedAttention has them; new.I.key and .value out, the rows to append ([batch,
//               sequence, kv_heads * head_size]); logits of the last position alone. GGUF's blocks stay
//               blocks.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/numeric/ggml_blocks.h"
#include "graphsurgeon/checkpoint/config.h"
#include "graphsurgeon/checkpoint/weights.h"

namespace pare {

struct BuildOptions {
  bool with_cache = false;
  bool stepwise = false;  // not beside with_cache or views
  // Linear weights as the views that the file holds, with Transpose and Cast behind them: nothing is read,
  // and memory is that of the file's pages. Otherwise float32 constants [in, out], as quantizers take them;
  // NaN and infinities are then Error kBadFile, named and counted.
  bool views = false;
  // Weights that the checkpoint holds as codes become float32 constants too, and its inputs stay float.
  // Otherwise they are DequantizeLinear of low-bit constants, with what the config says of the layers' inputs
  // in front of the products (quantized_linear.cpp). With `views`, such constants are places without numbers:
  // the store's get() has them.
  bool dequantize = false;
  std::int64_t context = 0;  // positions in the tables of cos and sin; 0: the model's
  // Not null: no weight is looked for; the names of those that the model needs come here, and the graph is of
  // no use.
  std::vector<std::string>* needed = nullptr;
};

class NetBuilder {
 public:
  NetBuilder(const ModelConfig& config, const WeightStore& store, const BuildOptions& options);

  const ModelConfig& config() const { return config_; }
  const BuildOptions& options() const { return options_; }

  // --- any operator
  ValueId op(const char* op, const std::vector<ValueId>& in, Attributes attrs = {},
             const std::string& name = "");
  std::vector<ValueId> ops(const char* op, const std::vector<ValueId>& in, std::size_t outs, Attributes attrs,
                           const std::string& name);
  ValueId ints(const std::vector<std::int64_t>& values);  // int64, rank 1
  ValueId number(std::int64_t value);                     // int64 scalar
  ValueId number(float value);                            // float32 scalar
  ValueId constant(const std::string& name, Tensor tensor);

  // --- weights; sizes are those that the config promises (Error kBadFile naming both shapes)
  bool has(const std::string& weight) const;
  ValueId floats(const std::string& weight, const Dims& dims, float offset = 0);  // float32 of w + offset
  // x W^T + b of module.weight [outs, ins] (in_first: [ins, outs]); module.bias when `bias`.
  ValueId linear(ValueId x, const std::string& module, std::int64_t ins, std::int64_t outs, bool bias = false,
                 bool in_first = false);
  // The same with a weight of another name, for heads that share the embedding.
  ValueId linear_with(ValueId x, const std::string& module, const std::string& weight, std::int64_t ins,
                      std::int64_t outs);
  // The rank of what linear() is given from here on: 3, or 2 for the rows of experts. Returns the one before.
  std::int64_t set_rank(std::int64_t rank) { return std::exchange(rank_, rank); }
  ValueId embedding(ValueId ids, const std::string& module, std::int64_t rows, std::int64_t columns);
  ValueId rms_norm(ValueId x, const std::string& module, std::int64_t size, float offset = 0);
  ValueId layer_norm(ValueId x, const std::string& module, std::int64_t size);
  ValueId activate(ValueId x, const std::string& kind, const std::string& name);  // kUnsupported: not known
  // down(act(gate(x)) * up(x)) of module.gate, module.up, module.down
  ValueId gated_mlp(ValueId x, const std::string& module, std::int64_t intermediate,
                    const char* gate = "gate_proj", const char* up = "up_proj",
                    const char* down = "down_proj");

  // --- positions and attention
  ValueId input_ids();
  ValueId input(const std::string& name);  // int64 [batch, sequence]
  ValueId positions();                     // int64 [sequence]: past .. past + sequence - 1
  ValueId position_rows();                 // the same for each of the batch: [batch, sequence]
  ValueId rotate(ValueId x, std::int64_t heads, bool local, const std::string& name);
  // Of x [batch, sequence, heads * size], each head by itself (Qwen 3, Gemma 3).
  ValueId norm_heads(ValueId x, const std::string& module, std::int64_t heads, float offset = 0);
  // Causal attention of a layer over its keys and those of the past; q, k, v [batch, sequence, heads * size].
  ValueId attend(ValueId q, ValueId k, ValueId v, std::int64_t layer, const std::string& name);

  // The form stepwise: the last position of x [batch, sequence, size]; else x.
  ValueId last_position(ValueId x);

  Graph finish(ValueId output, const std::string& name);  // nothing may be called behind it

 private:
  Tensor stored(const std::string& weight, const Dims& dims) const;
  ValueId matrix(const std::string& weight, std::int64_t ins, std::int64_t outs, bool in_first);
  ValueId product(ValueId x, const std::string& module, const std::string& weight, std::int64_t ins,
                  std::int64_t outs, bool in_first);
  // Of weights that are codes.
  ValueId quantized_matrix(const QuantizedLinear& layer, const std::string& name);
  ValueId quantized_steps(const QuantizedLinear& layer, const std::string& name);
  ValueId quantized_input(ValueId x, const QuantizedLinear& layer, const std::string& module);
  ValueId quantized_value(ValueId x, const QuantizedLinear& layer, const std::string& module);
  ValueId quantized_cache(ValueId x, float scale, DType type, const std::string& name);
  // The rows of a weight in GGUF's blocks, kNone where they do not stay so.
  ValueId blocks(const std::string& weight, const Dims& dims, const GgmlType*& type);
  ValueId attend_stepwise(const std::vector<ValueId>& in, Attributes attrs, std::int64_t layer,
                          const std::string& name);
  ValueId scalar_input(const std::string& name);
  ValueId past(std::int64_t layer, const char* what);
  ValueId window_mask();
  ValueId past_length();

  ModelConfig config_;
  const WeightStore& store_;
  BuildOptions options_;
  Graph graph_;
  std::vector<ValueId> presents_;
  std::int64_t rank_ = 3;
  std::map<std::string, ValueId> quantized_inputs_;  // by value and format: shared by q, k and v
  ValueId ids_ = ValueId::kNone, positions_ = ValueId::kNone, rows_ = ValueId::kNone, mask_ = ValueId::kNone,
          past_length_ = ValueId::kNone;
  ValueId cos_[2] = {ValueId::kNone, ValueId::kNone}, sin_[2] = {ValueId::kNone, ValueId::kNone};
};

// Tables of cos and sin, float32 [positions, pairs] of one head; `context`: positions of the model. As
// transformers' modeling_rope_utils.py, frequencies in float32.
struct RopeTables {
  Tensor cosines, sines;
};
RopeTables make_rope_tables(const RopeConfig& rope, std::int64_t head_size, std::int64_t context,
                            std::int64_t positions);

}  // namespace pare
