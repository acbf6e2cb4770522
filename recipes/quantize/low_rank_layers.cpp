#include "recipes/quantize/low_rank_layers.h"

#include <algorithm>

#include "engine/base/error.h"
#include "quant/rounding/low_rank.h"

namespace pare {
namespace {

bool is_row_add(const Graph& graph, NodeId id) {
  if (id == NodeId::kNone || !graph.node(id).is("Add")) return false;
  for (const ValueId in : graph.node(id).in)
    if (graph.is_constant(in) && graph.value(in).constant.dims().size() <= 1) return true;
  return false;
}

ValueId like(Graph& graph, ValueId id, const std::string& name) {
  Value value;
  value.name = name;
  value.dtype = graph.value(id).dtype;
  value.shape = graph.value(id).shape;
  return graph.add_value(std::move(value));
}

// [rows, cols] given row by row, transposed.
Tensor transposed(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, float factor) {
  Tensor t = Tensor::allocate(DType::kF32, {cols, rows});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      t.mut<float>()[c * rows + r] = factor * values[static_cast<std::size_t>(r * cols + c)];
  return t;
}

// Adds the two products to what the node (with the row behind it) gives.
void add_products(Graph& graph, NodeId id, const quant::LowRank& part, std::int64_t outs, std::int64_t ins) {
  const Node node = graph.node(id);
  const NodeId next = graph.only_user(node.out[0]);
  const NodeId last = node.is("MatMul") && is_row_add(graph, next) ? next : id;
  const ValueId y = graph.node(last).out[0];
  const std::string base = graph.value(node.out[0]).name;
  const ValueId inner = like(graph, y, base + "_without_low_rank");
  graph.set_output(last, 0, inner);
  Shape thin = graph.value(node.in[0]).shape;
  thin.dims.back() = Dim::of(part.rank);
  Value small;
  small.name = base + "_low_rank";
  small.dtype = DType::kF32;
  small.shape = thin;
  Node down, up, add;
  down.name = base + "_low_rank_down";
  down.op = "MatMul";
  down.in = {node.in[0], graph.add_constant(base + "_low_rank_A", transposed(part.a, part.rank, ins, 1))};
  down.out = {graph.add_value(std::move(small))};
  up.name = base + "_low_rank_up";
  up.op = "MatMul";
  const float alpha = node.is("Gemm") ? node.attr("alpha", 1.0f) : 1.0f;
  up.in = {down.out[0], graph.add_constant(base + "_low_rank_B", transposed(part.b, outs, part.rank, alpha))};
  up.out = {like(graph, node.out[0], base + "_low_rank_product")};
  add.name = base + "_low_rank_add";
  add.op = "Add";
  add.in = {inner, up.out[0]};
  add.out = {y};
  const NodeId at_down = graph.insert_after(last, std::move(down));
  const NodeId at_up = graph.insert_after(at_down, std::move(up));
  graph.insert_after(at_up, std::move(add));
}

std::vector<double> widened(const Gram& gram) {
  const std::vector<float> dense = gram.dense(0);
  return {dense.begin(), dense.end()};
}

}  // namespace

LowRankResult add_low_rank(const Graph& whole, const quant::Placement& placement, const LayerGrams& grams,
                           std::int64_t rank, const SolveOptions& options, ThreadPool& pool) {
  LowRankResult result;
  result.graph = whole;
  for (std::size_t i = 0; i < placement.weights.size(); ++i) {
    const quant::WeightSite& site = placement.weights[i];
    if (site.method != "low_rank") continue;
    const std::string name = value_label(whole, site.path, site.value);
    const Graph& graph = subgraph_at(result.graph, site.path);
    const Node& node = graph.node(site.uses.front().node);
    quant::WeightView view;
    if (site.uses.size() != 1 || (!node.is("MatMul") && !node.is("Gemm")) ||
        !quant::view_weight(graph, node, view) || site.format.granularity == quant::Granularity::kTensor) {
      result.notes.push_back(
          fmt::format("'{}': no low-rank correction: it is no linear layer of its own", name));
      continue;
    }
    const std::shared_ptr<const GramPair> pair = grams.find(site);
    const Tensor weight = graph.value(site.value).constant;  // shares the memory
    const quant::WeightRows rows = quant::site_rows(weight, site);
    const std::vector<double> gram = pair == nullptr ? std::vector<double>{} : widened(pair->fit);
    const quant::GridFormat format = quant::grid_format(site.format);
    const auto solve = [&](const quant::WeightRows& target) {
      return solve_rows(name, site, target, pair.get(), 0, options, pool);
    };
    const Gram* moments = pair == nullptr ? nullptr : &pair->fit;
    const double power =
        quant::layer_loss(rows, std::vector<float>(rows.values.size(), 0.0f).data(), moments, pool, 0).loss;
    quant::LowRankChoice choice = quant::choose_low_rank(
        rows, gram.empty() ? nullptr : gram.data(), rank,
        [&](quant::WeightRows& target) {
          const SolvedRows solved = solve(target);
          quant::decode(format, target.shape, solved.grid, solved.codes.data(), target.values.data(), pool);
        },
        [&](const quant::WeightRows& error) {
          const std::vector<float> none(error.values.size(), 0.0f);
          return quant::layer_loss(error, none.data(), moments, pool, 0).loss;
        },
        pool);
    const double unit = power > 0 ? 1 / power : 0;
    result.layers.push_back({name, choice.part.rank, choice.plain_loss * unit, choice.loss * unit});
    if (choice.part.rank == 0) continue;
    SolvedRows solved = solve(choice.target);
    Graph& scope = own_subgraph_at(result.graph, site.path);
    const NodeId id = site.uses.front().node;
    add_products(scope, id, choice.part, rows.shape.rows, rows.shape.cols);
    // The weight keeps its name: it is what codes are compared with.
    scope.value(site.value).constant = quant::scatter_rows(choice.residual, view, weight.dims());
    solved.nearest = false;
    result.codes.push_back({i, std::move(choice.residual), std::move(solved)});
  }
  return result;
}

}  // namespace pare
