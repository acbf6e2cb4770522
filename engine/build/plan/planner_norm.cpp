// LayerNormalization inside of the products around it:
//   W (gamma (x - mean) / deviation + beta) + b = (W' x - mean sum(W')) / deviation + (b + W beta),  W' = W
//   gamma
// The sums of W' are those of its rounded values, so what the mean contributes cancels but for float32
// rounding.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"
#include "engine/numeric/convert.h"

namespace pare::planning {
namespace {

Tensor vector_of(const Graph& graph, const Node& node, std::size_t slot, std::int64_t columns) {
  if (slot >= node.in.size() || node.in[slot] == ValueId::kNone) return {};
  const Tensor& t = graph.value(node.in[slot]).constant;
  Tensor f = Tensor::allocate(DType::kF32, {columns});
  convert(t.reshaped({columns}).view(), f.view());
  return f;
}

}  // namespace

// Behind nothing but movement: a product with constant weights, which reads it whole.
bool Planner::reaches_product(ValueId value, int depth) const {
  if (graph_.is_output(value) || graph_.users(value).empty() || depth > 4) return false;
  for (const Use& use : graph_.users(value)) {
    const Node& node = graph_.node(use.node);
    if (use.slot == 0 && class_of(use.node) == NodeClass::kView && node.out.size() == 1) {
      if (!reaches_product(node.out[0], depth + 1)) return false;
      continue;
    }
    const bool product = node.is("pare", "MatMul") && class_of(use.node) == NodeClass::kLinear;
    if (!product || !graph_.is_constant(node.in[1]) || graph_.value(node.in[1]).shape.rank() != 2)
      return false;
    const bool operand = use.slot == 0 && node.attr("alpha", 1.0f) == 1.0f;
    const bool residual = use.slot == 3 && depth == 0 && sizes(node.out[0]) == sizes(value);
    if (!operand && !residual) return false;
  }
  return true;
}

bool Planner::fold_norm(NodeId id) {
  const Node& node = graph_.node(id);
  if (!options_.fold_norms || !node.is("LayerNormalization") ||
      (options_.precision != DType::kF16 && options_.precision != DType::kBF16))
    return false;
  const ValueId x = node.in[0];
  const NodeId before = graph_.producer(x);
  const auto at = placed_.find(x);
  if (before == NodeId::kNone || class_of(before) != NodeClass::kLinear || at == placed_.end() ||
      !exports_[id].empty() || !reaches_product(node.out[0], 0))
    return false;
  const std::int64_t columns = sizes(x).back();
  for (std::size_t slot = 1; slot < node.in.size(); ++slot)
    if (node.in[slot] != ValueId::kNone &&
        (!graph_.is_constant(node.in[slot]) || graph_.value(node.in[slot]).constant.size() != columns))
      return false;
  if (columns % 32 != 0 || columns > 4096) return false;
  for (auto layer = plan_.layers.rbegin(); layer != plan_.layers.rend(); ++layer) {
    if (layer->out[0].tensor != at->second.tensor) continue;
    const PlanView& y = layer->out[0];
    if (layer->kind != LayerKind::kGemm || layer->out.size() != 1 || y.dims[0] != 1 || y.dims[2] != columns ||
        !is_dense(y) || tensor(y.tensor).dtype != options_.precision ||
        tensor(y.tensor).role != PlanRole::kActivation)
      return false;
    FoldedNorm norm;
    norm.x = x;
    norm.sums = add_tensor(graph_.value(x).name + "_sums", DType::kF32, {y.dims[1], columns / 32, 2});
    norm.gamma = vector_of(graph_, node, 1, columns);
    norm.beta = vector_of(graph_, node, 2, columns);
    norm.epsilon = static_cast<double>(node.attr("epsilon", 1e-5f));
    layer->out.push_back(whole(plan_, norm.sums));
    layer->nodes.push_back(node.name);
    folded_[node.out[0]] = std::move(norm);
    return true;
  }
  return false;
}

const Planner::FoldedNorm* Planner::folded_operand(ValueId value, PlanView& view) {
  std::vector<NodeId> chain;
  while (folded_.count(value) == 0) {
    const NodeId id = graph_.producer(value);
    if (placed_.count(value) != 0 || id == NodeId::kNone || class_of(id) != NodeClass::kView ||
        chain.size() > 4)
      return nullptr;
    chain.push_back(id);
    value = graph_.node(id).in[0];
  }
  const FoldedNorm& norm = folded_.at(value);
  view = view_of(norm.x);
  for (auto id = chain.rbegin(); id != chain.rend(); ++id)
    if (!view_node(graph_.node(*id), view)) return nullptr;
  return &norm;
}

// The sums of the rows that a view [1, rows, columns] of x walks.
PlanView Planner::sums_of(const FoldedNorm& norm, const PlanView& rows, std::int64_t columns) {
  PlanView sums = whole(plan_, norm.sums);
  sums.dims[0] = rows.dims[1];
  sums.strides[0] = rows.strides[1] / columns * (columns / 32) * 2;
  sums.offset = rows.offset / columns * (columns / 32) * 2;
  return sums;
}

// layer.in has the operand and place for weights: they are packed here.
void Planner::normalize_operand(const FoldedNorm& norm, PlanLayer& layer, const Node& node) {
  const Tensor& w = graph_.value(node.in[1]).constant;
  const bool trans_b = node.attr("trans_b", std::int64_t{0}) != 0;
  const std::int64_t n = w.dims()[trans_b ? 0 : 1], k = w.dims()[trans_b ? 1 : 0];
  Tensor source = Tensor::allocate(DType::kF32, w.dims());
  convert(w.view(), source.view());
  Tensor scaled = Tensor::allocate(DType::kF32, {n, k}),
         packed = Tensor::allocate(options_.precision, {n, k});
  Tensor bias = Tensor::allocate(DType::kF32, {n}), columns = Tensor::allocate(DType::kF32, {n});
  const ValueId given = node.in.size() > 2 ? node.in[2] : ValueId::kNone;
  for (std::int64_t i = 0; i < n; ++i) {
    double shift = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const float v = source.as<float>()[trans_b ? i * k + j : j * n + i];
      scaled.mut<float>()[i * k + j] = norm.gamma.empty() ? v : v * norm.gamma.as<float>()[j];
      if (!norm.beta.empty()) shift += static_cast<double>(v) * static_cast<double>(norm.beta.as<float>()[j]);
    }
    bias.mut<float>()[i] = static_cast<float>(shift);
  }
  if (given != ValueId::kNone) {
    Tensor old = Tensor::allocate(DType::kF32, {n});
    convert(graph_.value(given).constant.reshaped({n}).view(), old.view());
    for (std::int64_t i = 0; i < n; ++i) bias.mut<float>()[i] += old.as<float>()[i];
  }
  convert(scaled.view(), packed.view());
  convert(packed.view(), scaled.view());  // as rounded
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += static_cast<double>(scaled.as<float>()[i * k + j]);
    columns.mut<float>()[i] = static_cast<float>(sum);
  }
  const std::string name = graph_.value(node.in[1]).name;
  PlanView weights = whole(plan_, weight(name + "_gamma", std::move(packed)));
  view_reshape(weights, {1, n, k});
  layer.in.resize(std::max<std::size_t>(layer.in.size(), kNormColumns + 1));
  layer.in[1] = weights;
  layer.in[kNormStats] = sums_of(norm, layer.in[0], k);
  layer.in[kNormColumns] = whole(plan_, weight(name + "_sums", std::move(columns)));
  layer.epsilon = norm.epsilon;
  folded_bias_ = std::move(bias);
}

void Planner::normalize_residual(const FoldedNorm& norm, PlanLayer& layer) {
  layer.in.resize(std::max<std::size_t>(layer.in.size(), kResidualBeta + 1));
  const std::string name = graph_.value(norm.x).name;
  layer.in[kResidualStats] = sums_of(norm, layer.in[3], layer.in[3].dims[2]);
  if (!norm.gamma.empty()) layer.in[kResidualGamma] = whole(plan_, weight(name + "_gamma", norm.gamma));
  if (!norm.beta.empty()) layer.in[kResidualBeta] = whole(plan_, weight(name + "_beta", norm.beta));
  layer.r_epsilon = norm.epsilon;
}

}  // namespace pare::planning
