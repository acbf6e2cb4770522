// The walk of make_plan, cut into files by what a node becomes. Private to engine/build.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/build/make_plan.h"
#include "engine/build/plan_view.h"
#include "engine/build/program.h"

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
  bool k_transposed = false;  // k is [..., D, T]
  float alpha = 1;
  bool nan_zero = false;
  ValueId out;
  std::vector<std::string> nodes;
};

void merge_products(Graph& graph);  // planner_attention.cpp

class Planner {
 public:
  Planner(Graph graph, const PlanOptions& options);
  EnginePlan run();

 private:
  // planner.cpp
  void classify();
  void assign_regions();
  void emit_outputs();
  DType storage(ValueId value) const;
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
  PlanView copy(const PlanView& from, DType dtype, const std::string& what, std::int64_t pad = 1);
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
  bool emit_patches(NodeId id, PlanLayer& layer, const Tensor& w);
  void finish_linear(const Node& node, PlanLayer& layer, std::int64_t columns);
  PlanView residual_operand(const Node& node, int slot, DType dtype, const Dims& dims);

  // planner_attention.cpp
  void match_attention();
  void peel_transpose(AttentionMatch& match) const;
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
  std::map<NodeId, AttentionMatch> attention_;
  std::set<NodeId> emitted_;
  std::map<NodeId, std::string> refused_;
};

}  // namespace pare::planning
