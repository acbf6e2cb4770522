// Operators of com.microsoft become standard ones where their meaning is exactly that of a few standard
// nodes. What remains (GroupQueryAttention) has a schema and a kernel of its own.
//
//   QuantizeLinear, DequantizeLinear, Gelu, Trilu, Pad, QLinearConv    the standard operator
//   FastGelu, BiasGelu, QuickGelu                                      (bias,) Gelu; x sigmoid(alpha x)
//   FusedMatMul, TransposeMatMul, FusedGemm, FusedConv                 transposes, product, alpha, activation
//   SimplifiedLayerNormalization (also of ai.onnx),                    sums, gathers,
//   SkipLayerNormalization, SkipSimplifiedLayerNormalization,          Layer- or RMSNormalization
//   EmbedLayerNormalization
//   QLinearAdd, Mul, Sigmoid, LeakyRelu, Softmax, Concat, Where,       dequantize, operate, quantize
//   AveragePool, GlobalAveragePool, ReduceMean, QGemm
//   DynamicQuantizeMatMul, MatMulIntegerToFloat                        MatMulInteger and scales
//   MatMulNBits, GatherBlockQuantized                                  DequantizeLinear of 2, 4 or 8 bits
//   NhwcMaxPool                                                        between transposes
//   MultiHeadAttention, Attention, QAttention, RotaryEmbedding         the standard ones, masks as numbers
//
// Error kUnsupported names what has no standard form (packed QKV, shared buffers, rotated keys ...).
// Source: onnxruntime docs/ContribOperators.md, version 1.32.
#pragma once

#include <string_view>
#include <vector>

#include "graphsurgeon/onnx/raise/raise_rules.h"

namespace pare {

// The rule of an operator of com.microsoft (or of SimplifiedLayerNormalization), or nullptr.
RaiseRule microsoft_rule(std::string_view domain, std::string_view op);

// Writes nodes in place of one.
class Steps {
 public:
  Steps(Raiser& raiser, const Node& node) : r_(raiser), node_(node) {}

  const Node& node() const { return node_; }
  Raiser& raiser() { return r_; }
  const Value& value(ValueId id) { return r_.known(id); }

  ValueId in(std::size_t i) const { return i < node_.in.size() ? node_.in[i] : ValueId::kNone; }
  ValueId need(std::size_t i) const;  // Error kBadFile when left out
  bool wants(std::size_t i) const { return i < node_.out.size() && node_.out[i] != ValueId::kNone; }

  // A node with one output, named after `what` it is of the node. Trailing inputs that are kNone are dropped.
  ValueId make(const char* what, const char* op, std::vector<ValueId> in, Attributes attrs = {});
  // The last node: its outputs are those of the node from 0 on, or as given.
  void last(const char* op, std::vector<ValueId> in, Attributes attrs = {});
  void last(const char* op, std::vector<ValueId> in, Attributes attrs, std::vector<ValueId> out);

  ValueId ints(const char* what, std::vector<std::int64_t> values);
  ValueId number(const char* what, float value, ValueId like);  // a scalar of the type of `like`
  ValueId dequantized(const char* what,
                      std::size_t first);  // inputs first, first + 1 (scale), first + 2 (zero)
  // The node's output 0 is `x` quantized by inputs first (scale) and first + 1 (zero; else 0 of the type of
  // `like`).
  void quantized(ValueId x, std::size_t first, ValueId like);
  ValueId shape_part(const char* what, ValueId x, std::int64_t from, std::int64_t to);
  // Swaps the last two axes, whatever the rank.
  ValueId swapped(const char* what, ValueId x);
  [[noreturn]] void refuse(const char* what) const;

 private:
  Raiser& r_;
  const Node& node_;
};

// Families of rules; each entry's `below` is unused.
std::vector<RaiseEntry> microsoft_quantized_rules();  // raise_microsoft_quantized.cpp
std::vector<RaiseEntry> microsoft_attention_rules();  // raise_microsoft_attention.cpp

}  // namespace pare
