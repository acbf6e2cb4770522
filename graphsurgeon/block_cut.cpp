#include "graphsurgeon/block_cut.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "engine/base/absent_tensor.h"
#include "engine/base/error.h"
#include "engine/ir/subgraph.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/checkpoint/finite.h"
#include "graphsurgeon/graph_copy.h"

namespace pare {
namespace {

// A constant, or one behind Transpose and Cast to float32.
struct Chain {
  ValueId base = ValueId::kNone;
  bool transposed = false, cast = false;
};

std::optional<Chain> chain_of(const Graph& graph, ValueId id) {
  Chain chain;
  for (int steps = 0; id != ValueId::kNone && steps < 4; ++steps) {
    if (graph.is_constant(id)) {
      chain.base = id;
      if ((chain.transposed || chain.cast) && graph.value(id).shape.rank() != 2) return std::nullopt;
      return chain;
    }
    const NodeId producer = graph.producer(id);
    if (producer == NodeId::kNone) return std::nullopt;
    const Node& node = graph.node(producer);
    if (node.is("Transpose") && graph.value(id).shape.rank() == 2 &&
        node.attr_ints("perm") == std::vector<std::int64_t>{1, 0} && !chain.transposed)
      chain.transposed = true;
    else if (node.is("Cast") && graph.value(id).dtype == DType::kF32 && !chain.cast)
      chain.cast = true;
    else
      return std::nullopt;
    id = node.in.at(0);
  }
  return std::nullopt;
}

bool is_linear(const Node& node) { return node.is("MatMul") || node.is("Gemm") || node.is("Conv"); }

bool has_weight(const Graph& graph, const Node& node) {
  if (is_linear(node)) return node.in.size() > 1 && chain_of(graph, node.in[1]).has_value();
  for (const std::string& key : subgraph_attributes(node)) {
    const Graph& inside = subgraph(node, key);
    for (const NodeId id : inside.nodes())
      if (has_weight(inside, inside.node(id))) return true;
  }
  return false;
}

std::vector<NodeId> main_nodes(const Graph& graph) {
  std::vector<bool> touched(graph.value_count(), false);
  std::vector<NodeId> nodes;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    const bool depends = std::any_of(node.in.begin(), node.in.end(), [&](ValueId in) {
      return in != ValueId::kNone && touched[static_cast<std::size_t>(in)];
    });
    if (!depends && !has_weight(graph, node)) continue;
    nodes.push_back(id);
    for (const ValueId out : node.out)
      if (out != ValueId::kNone) touched[static_cast<std::size_t>(out)] = true;
  }
  return nodes;
}

// By main node: the one value that is needed behind it, if it is one that can be a cut.
std::vector<ValueId> cuts_of(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::vector<std::size_t> last(graph.value_count(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const ValueId in : graph.node(nodes[i]).in)
      if (in != ValueId::kNone) last[static_cast<std::size_t>(in)] = i;
  for (const ValueId out : graph.outputs) last[static_cast<std::size_t>(out)] = nodes.size();
  std::vector<ValueId> cuts(nodes.size(), ValueId::kNone);
  std::set<ValueId> live;
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    for (const ValueId out : graph.node(nodes[i]).out)
      if (out != ValueId::kNone && last[static_cast<std::size_t>(out)] > i) live.insert(out);
    for (const ValueId in : graph.node(nodes[i]).in)
      if (in != ValueId::kNone && last[static_cast<std::size_t>(in)] == i) live.erase(in);
    if (live.size() != 1) continue;
    const Value& value = graph.value(*live.begin());
    if (value.dtype == DType::kF32 && value.kind == ValueKind::kTensor && value.shape.rank() >= 2 &&
        !graph.is_output(*live.begin()))
      cuts[i] = *live.begin();
  }
  return cuts;
}

// "model.layers.3.mlp.up_proj" -> ("model.layers", 3): the first part of a name that is a number.
std::optional<std::pair<std::string, std::int64_t>> layer_in(const std::string& name) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find_first_of("./", begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!part.empty() && part.size() < 6 && begin > 0 &&
        part.find_first_not_of("0123456789") == std::string::npos)
      return std::make_pair(name.substr(0, begin - 1), static_cast<std::int64_t>(std::stoll(part)));
    begin = end + 1;
  }
  return std::nullopt;
}

// By main node the number of its layer, -1 for those outside of all; {} where names tell of less than two.
std::vector<std::int64_t> layers_of(const Graph& graph, const std::vector<NodeId>& nodes,
                                    std::string& prefix) {
  std::map<std::string, std::set<std::int64_t>> found;
  const auto layer = [&](NodeId id) {
    const Node& node = graph.node(id);
    return layer_in(!node.name.empty() || node.out.empty() || node.out[0] == ValueId::kNone
                        ? node.name
                        : graph.value(node.out[0]).name);
  };
  for (const NodeId id : nodes)
    if (const auto known = layer(id)) found[known->first].insert(known->second);
  std::size_t most = 1;
  for (const auto& [name, numbers] : found)
    if (numbers.size() > most) most = numbers.size(), prefix = name;
  std::vector<std::int64_t> numbers;
  if (most < 2) return numbers;
  for (const NodeId id : nodes) {
    const auto known = layer(id);
    numbers.push_back(known && known->first == prefix ? known->second : -1);
  }
  return numbers;
}

struct Cutter {
  const Graph& graph;
  const std::vector<NodeId>& nodes;
  const std::vector<ValueId>& cuts;
  std::vector<GraphBlock> blocks;
  std::size_t first = 0;

  bool weights_behind(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i)
      if (has_weight(graph, graph.node(nodes[i]))) return true;
    return false;
  }
  // Closes a block behind main node `i`.
  void cut(std::size_t i, std::string name) {
    if (!weights_behind(first, i + 1) || !weights_behind(i + 1, nodes.size())) return;
    add(i + 1, std::move(name), cuts[i]);
  }
  void add(std::size_t end, std::string name, ValueId out) {
    GraphBlock block;
    block.name = std::move(name);
    block.in = blocks.empty() ? ValueId::kNone : blocks.back().out;
    block.out = out;
    block.nodes.assign(nodes.begin() + static_cast<std::ptrdiff_t>(first),
                       nodes.begin() + static_cast<std::ptrdiff_t>(end));
    blocks.push_back(std::move(block));
    first = end;
  }
};

void cut_by_names(Cutter& cutter, const std::string& prefix, const std::vector<std::int64_t>& layers) {
  std::int64_t current = -1;
  std::size_t last = 0;  // main node of a layer
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (layers[i] >= 0) last = i;
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    if (layers[i] >= 0) current = layers[i];
    const bool ends = i == last || (layers[i + 1] >= 0 && layers[i + 1] != current);
    if (ends && cutter.cuts[i] != ValueId::kNone) cutter.cut(i, fmt::format("{}.{}", prefix, current));
  }
  if (cutter.blocks.empty()) return;
  const bool head = last < cutter.first;
  cutter.add(layers.size(), head ? std::string("head") : fmt::format("{}.{}", prefix, current),
             ValueId::kNone);
}

bool mixes_positions(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return node.is("Softmax") || node.is("Attention");
}

void cut_by_attention(Cutter& cutter) {
  const std::vector<NodeId>& nodes = cutter.nodes;
  std::vector<std::size_t> places;  // of cuts
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
    if (cutter.cuts[i] != ValueId::kNone) places.push_back(i);
  std::size_t begin = 0, previous = 0;
  bool any = false, attention = false;
  const auto name = [&] { return fmt::format("block {}", cutter.blocks.size()); };
  for (const std::size_t place : places) {
    bool mixes = false;
    for (std::size_t i = begin; i <= place; ++i) mixes = mixes || mixes_positions(cutter.graph, nodes[i]);
    if (mixes && any && attention) cutter.cut(previous, name());
    attention = attention || mixes;
    any = true;
    previous = place;
    begin = place + 1;
  }
  if (cutter.blocks.empty()) return;
  // What is left behind the last cut: the head.
  cutter.cut(previous, name());
  cutter.add(nodes.size(), "head", ValueId::kNone);
}

// The weight behind a view.
void check_finite(const Graph& graph, ValueId base) {
  refuse_nonfinite(graph.value(base).name, graph.value(base).constant, "");
}

// Tables that rows are taken from, as embeddings: samples reach some of the rows, a model all. Other
// constants may have infinities, as masks do.
void check_tables(const Graph& part) {
  for (const NodeId id : part.nodes()) {
    const Node& node = part.node(id);
    if (node.is("Gather") && part.is_constant(node.in[0]) &&
        part.value(node.in[0]).constant.dims().size() == 2)
      check_finite(part, node.in[0]);
  }
}

Tensor materialized(const Graph& graph, const Chain& chain, ThreadPool& pool) {
  const Tensor& from = graph.value(chain.base).constant;
  const std::int64_t rows = from.dims().at(0), columns = from.dims().at(1), width = bits(from.dtype());
  Tensor to = Tensor::allocate(DType::kF32, chain.transposed ? Dims{columns, rows} : Dims{rows, columns});
  float* out = to.mut<float>();
  const auto* bytes = from.as<std::byte>();
  constexpr std::int64_t kStep = 64;
  check_finite(graph, chain.base);
  pool.parallel_for((rows + kStep - 1) / kStep, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> block(static_cast<std::size_t>(kStep * kStep));
    for (std::int64_t b = begin; b < end; ++b)
      for (std::int64_t c = 0; c < columns; c += kStep) {
        const std::int64_t r = b * kStep, m = std::min(kStep, rows - r), n = std::min(kStep, columns - c);
        for (std::int64_t i = 0; i < m; ++i) {
          decode(from.dtype(), bytes + ((r + i) * columns + c) * width / 8, block.data() + i * kStep, n);
        }
        for (std::int64_t j = 0; j < n; ++j)
          for (std::int64_t i = 0; i < m; ++i)
            out[chain.transposed ? (c + j) * rows + r + i : (r + i) * columns + c + j] =
                block[static_cast<std::size_t>(i * kStep + j)];
      }
  });
  return to;
}

// Nodes that the block needs, in the graph's order, and the chains in front of them.
struct Needed {
  std::vector<NodeId> nodes;
  std::map<ValueId, Chain> chains;
  std::set<ValueId> inputs;
};

Dims dims_of(const Graph& graph, const Chain& chain) {
  const Dims& dims = graph.value(chain.base).constant.dims();
  return chain.transposed ? Dims{dims.at(1), dims.at(0)} : dims;
}

// `views`: the nodes of chains are needed too.
Needed needed_of(const Graph& graph, const GraphBlock& block, bool views = false) {
  Needed needed;
  std::set<NodeId> nodes;
  std::set<ValueId> seen;
  std::vector<ValueId> open;
  if (block.out != ValueId::kNone)
    open = {block.out};
  else
    open = graph.outputs;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id == ValueId::kNone || id == block.in || !seen.insert(id).second || graph.is_constant(id)) continue;
    const NodeId producer = graph.producer(id);
    if (producer == NodeId::kNone) {
      needed.inputs.insert(id);
      continue;
    }
    if (const auto chain = chain_of(graph, id)) {
      needed.chains.emplace(id, *chain);
      if (!views) continue;
    }
    nodes.insert(producer);
    for (const ValueId in : graph.node(producer).in) open.push_back(in);
  }
  for (const NodeId id : graph.nodes())
    if (nodes.count(id) != 0) needed.nodes.push_back(id);
  return needed;
}

}  // namespace

std::vector<GraphBlock> find_blocks(const Graph& graph) {
  const std::vector<NodeId> nodes = main_nodes(graph);
  if (nodes.empty()) return {};
  const std::vector<ValueId> cuts = cuts_of(graph, nodes);
  Cutter cutter{graph, nodes, cuts, {}, 0};
  std::string prefix;
  const std::vector<std::int64_t> layers = layers_of(graph, nodes, prefix);
  if (!layers.empty()) cut_by_names(cutter, prefix, layers);
  if (cutter.blocks.size() < 2) {
    cutter.blocks.clear();
    cutter.first = 0;
    cut_by_attention(cutter);
  }
  if (cutter.blocks.size() < 2) return {};
  return std::move(cutter.blocks);
}

Graph extract_block(const Graph& graph, const GraphBlock& block, ThreadPool& pool, BlockWeights weights) {
  const bool views = weights == BlockWeights::kViews;
  const Needed needed = needed_of(graph, block, views);
  Graph part;
  part.name = block.name;
  part.opset = graph.opset;
  GraphCopy copy(graph, part);
  if (block.in != ValueId::kNone) part.inputs.push_back(copy.value(block.in));
  for (const ValueId id : graph.inputs)
    if (needed.inputs.count(id) != 0) part.inputs.push_back(copy.value(id));
  std::set<ValueId> checked;
  for (const auto& [id, chain] : needed.chains) {
    if (views) {
      if (checked.insert(chain.base).second) check_finite(graph, chain.base);
      continue;
    }
    const ValueId made =
        part.add_constant(graph.value(chain.base).name,
                          weights == BlockWeights::kSizes ? absent_tensor(DType::kF32, dims_of(graph, chain))
                                                          : materialized(graph, chain, pool));
    part.value(made).origin = graph.value(chain.base).origin;
    copy.bind(id, made);
  }
  for (const NodeId id : needed.nodes) copy.node(id);
  if (block.out != ValueId::kNone)
    part.outputs.push_back(copy.twin(block.out));
  else
    for (const ValueId id : graph.outputs) part.outputs.push_back(copy.twin(id));
  if (weights != BlockWeights::kSizes) check_tables(part);
  verify(part);
  return part;
}

std::int64_t block_weight_bytes(const Graph& graph, const GraphBlock& block) {
  std::int64_t bytes = 0;
  for (const auto& [id, chain] : needed_of(graph, block).chains)
    bytes += graph.value(chain.base).constant.size() * 4;
  return bytes;
}

}  // namespace pare
