// The walk of make_plan, cut into files by what a node becomes. Private to engine/build.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/plan_view.h"
#include "engine/build/plan/program.h"

namespace pare::planning {

enum class NodeClass : std::uint8_t {
  kUnknown,
  kView,
  kPointwise,
  kRows,
  kLinear,
  kPool,
  kAttention,
  kTaken
};

struct AttentionMatch {
  ValueId q, k, v, mask = ValueId::kNone;
  ValueId p_codes = ValueId::kNone;  // what a FakeQuant makes of the probabilities
  NodeId scores_node = NodeId::kNone, values_node = NodeId::kNone;  // the two products
  bool k_transposed = false;                                        // k is [..., D, T]
  float alpha = 1;
  bool nan_zero = false;
  ValueId out;
  std::vector<std::string> nodes;
};

void merge_products(Graph& graph);  // planner_merge.cpp
void quantize_before_pools(Graph& graph);
void absorb_shortcuts(EnginePlan& plan);  // planner_shortcut.cpp

class Planner {
 public:
  Planner(Graph graph, const PlanOptions& options);
  EnginePlan run();
  // By node: how what Q/DQ ask for runs where no integer kernel does it, yet exactly (attention).
  const std::map<std::string, std::string>& realized() const { return realized_; }

 private:
  // planner.cpp
  void classify();
  void assign_regions();
  void emit_outputs();
  // How a value is stored: floats in the engine's precision, but in float32 what is computed of sums alone
  // and what is only summed (means of squares: float16 ends at 65504, and a small difference of two of them
  // would be lost).
  DType storage(ValueId value) const;
  bool is_statistic(ValueId value) const;    // of reductions and constants, and read by no product
  bool is_summed_only(ValueId value) const;  // every reader is a ReduceSum
  bool feeds_product(ValueId value) const;   // or a pool, or a quantizer, perhaps moved in between
  int add_tensor(std::string name, DType dtype, Dims dims, PlanRole role = PlanRole::kActivation);
  int weight(std::string name, Tensor data);
  int weight_as(std::string name, const Tensor& data, DType dtype);  // converted
  // A new tensor for a value, or the engine's output when the value is one and nothing speaks against it.
  int tensor_for(ValueId value, const Dims& dims);
  PlanTensor& tensor(int id) { return plan_.tensors[static_cast<std::size_t>(id)]; }
  Dims sizes(ValueId value) const;
  PlanLayer start_layer(LayerKind kind, const Node& node) const;
  NodeClass class_of(NodeId id) const { return classes_[static_cast<std::size_t>(id)]; }

  // planner_views.cpp: where a value is, made there if it is not yet
  PlanView view_of(ValueId value);
  bool view_node(const Node& node, PlanView& view);  // in: of input 0
  PlanView apply_view_node(ValueId value);
  // Dense, of this type, last axis padded with zeros to a multiple of `pad`.
  PlanView dense_operand(ValueId value, DType dtype, const Dims& dims);
  PlanView copy(const PlanView& from, DType dtype, const std::string& what, std::int64_t pad = 1,
                const ProgramStep* step = nullptr);
  // A value that must be copied anyway, when it is movement of what a quantizer gives and nobody has asked
  // for that yet: the same movement of what the quantizer reads, and its step. Else the value and no step
  // ("").
  PlanView view_before_quantizer(ValueId value, ProgramStep& step);
  bool is_view_node(const Node& node, std::string& why) const;

  // planner_regions.cpp
  void emit_region(NodeId root);
  int expression(Program& program, PlanLayer& layer, ValueId value, NodeId root,
                 std::map<ValueId, int>& done);
  int leaf(Program& program, PlanLayer& layer, PlanView view);
  bool is_rows(const Node& node) const;
  bool is_pointwise(const Node& node, std::string& why) const;
  void emit_pool(NodeId id);

  // planner_linear.cpp
  void emit_conv(NodeId id);
  void emit_product(NodeId id);
  bool emit_patches(NodeId id, PlanLayer& layer, const Tensor& w, DType type);
  void finish_linear(const Node& node, PlanLayer& layer, std::int64_t columns);
  PlanView residual_operand(const Node& node, int slot, DType dtype, const Dims& dims);

  // planner_quantize.cpp: quantizers of a layer's result, behind nothing but movement and constant factors,
  // move into the layer. `view` is where `value` will lie; columns > 0: scales may differ from column to
  // column.
  struct Codes {
    DType type = DType::kUndefined;
    double scale = 1, zero = 0;
    std::vector<float> inverse;  // by column: 1 / step; empty when all are `scale`
    std::vector<std::pair<ValueId, PlanView>> placed;
    std::vector<std::pair<ValueId, double>> fake;  // FakeQuants among them, with their scales
  };
  // mixed: the result stays float; columns whose FakeQuant feeds attention hold its codes, others what they
  // were.
  bool absorb_quantizers(ValueId value, const PlanView& view, std::int64_t columns, Codes& codes,
                         bool mixed = false);
  // Quantizers that read `value` beside others, all of one step: the layer leaves its result in their codes
  // too.
  bool copied_quantizers(ValueId value, const PlanView& view, Codes& codes);
  void place_codes(const Codes& codes, int tensor);
  bool is_attention_operand(ValueId value) const;

  // planner_norm.cpp: a LayerNormalization between products is no layer: the product in front leaves sums of
  // its rows, the ones behind multiply by weights that hold gamma and correct their sums.
  struct FoldedNorm {
    ValueId x = ValueId::kNone;
    int sums = -1;       // tensor
    Tensor gamma, beta;  // float32 [columns], empty when absent
    double epsilon = 0;
  };
  bool fold_norm(NodeId id);
  bool reaches_product(ValueId value, int depth) const;
  const FoldedNorm* folded_operand(ValueId value, PlanView& view);
  PlanView sums_of(const FoldedNorm& norm, const PlanView& rows, std::int64_t columns);
  void normalize_operand(const FoldedNorm& norm, PlanLayer& layer, const Node& node);
  void normalize_residual(const FoldedNorm& norm, PlanLayer& layer);

  // planner_attention.cpp
  void match_attention();
  void peel_transpose(AttentionMatch& match) const;
  void peel_around(AttentionMatch& match, ValueId shaped) const;
  void emit_attention(const AttentionMatch& match);

  Graph graph_;
  PlanOptions options_;
  EnginePlan plan_;
  std::vector<NodeClass> classes_;
  std::vector<NodeId> region_;                      // by node: the root whose kernel computes it
  std::vector<bool> post_;                          // by node: stands behind its rows node
  std::map<NodeId, std::vector<ValueId>> exports_;  // by root: what else is stored
  std::map<ValueId, PlanView> placed_;
  std::map<std::pair<ValueId, int>, PlanView> copies_;  // by value and type
  std::map<std::pair<ValueId, int>, int> weights_;
  mutable std::map<ValueId, bool> statistics_;
  std::map<NodeId, AttentionMatch> attention_;
  std::set<NodeId> emitted_;
  std::map<NodeId, std::string> refused_;
  struct FakeCodes {
    PlanView view;
    double scale = 1;
  };
  std::map<ValueId, FakeCodes> fake_codes_;  // results of FakeQuants that lie as codes (zero point 0)
  std::map<std::string, std::string> realized_;
  std::map<ValueId, FoldedNorm> folded_;
  Tensor folded_bias_;  // of the product being emitted
};

}  // namespace pare::planning
