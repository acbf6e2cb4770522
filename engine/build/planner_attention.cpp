// Attention, found around each Softmax, and products of one input packed into one.
#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/build/planner.h"
#include "engine/numeric/convert.h"

namespace pare::planning {
namespace {

bool is_packable(const Graph& graph, const Node& node) {
  return node.is("pare", "MatMul") && graph.is_constant(node.in[1]) &&
         graph.value(node.in[1]).shape.rank() == 2 && graph.value(node.in[1]).dtype == DType::kF32 &&
         node.in.size() <= 3 && node.attr("activation", "").empty() && node.attr("alpha", 1.0f) == 1.0f;
}

bool one_number(const Graph& graph, ValueId id, float& out) {
  if (id == ValueId::kNone || !graph.is_constant(id) || graph.value(id).constant.size() != 1 ||
      graph.value(id).dtype != DType::kF32)
    return false;
  out = *graph.value(id).constant.as<float>();
  return true;
}

bool all_zero(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id)) return false;
  const auto bytes = graph.value(id).constant.byte_span();
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void pack(Graph& graph, const std::vector<NodeId>& group) {
  std::int64_t total = 0, k = 0;
  std::vector<std::int64_t> widths;
  const bool biased = graph.node(group[0]).in.size() > 2;
  for (const NodeId id : group) {
    const Node& node = graph.node(id);
    const Dims& d = graph.value(node.in[1]).constant.dims();
    const bool trans = node.attr("trans_b", std::int64_t{0}) != 0;
    widths.push_back(trans ? d[0] : d[1]);
    k = trans ? d[1] : d[0];
    total += widths.back();
  }
  Tensor w = Tensor::allocate(DType::kF32, {total, k}), bias = Tensor::allocate(DType::kF32, {total});
  std::int64_t at = 0;
  for (std::size_t g = 0; g < group.size(); ++g) {
    const Node& node = graph.node(group[g]);
    const float* from = graph.value(node.in[1]).constant.as<float>();
    const bool trans = node.attr("trans_b", std::int64_t{0}) != 0;
    for (std::int64_t n = 0; n < widths[g]; ++n)
      for (std::int64_t i = 0; i < k; ++i)
        w.mut<float>()[(at + n) * k + i] = trans ? from[n * k + i] : from[i * widths[g] + n];
    if (biased)
      std::memcpy(bias.mut<float>() + at, graph.value(node.in[2]).constant.data(),
                  static_cast<std::size_t>(widths[g]) * sizeof(float));
    at += widths[g];
  }
  const Node first = graph.node(group[0]);
  Node packed = first;
  packed.attrs["trans_b"] = std::int64_t{1};
  packed.in[1] = graph.add_constant(graph.value(first.in[1]).name + "_packed", std::move(w));
  if (biased) packed.in[2] = graph.add_constant(graph.value(first.in[2]).name + "_packed", std::move(bias));
  Value result = graph.value(first.out[0]);
  const auto last = static_cast<std::int64_t>(result.shape.dims.size()) - 1;
  result.name += "_packed";
  result.origin.clear();
  result.producer = NodeId::kNone;
  result.shape.dims.back() = Dim::of(total);
  const ValueId value = graph.add_value(std::move(result));
  packed.out = {value};
  graph.insert_before(group[0], std::move(packed));
  at = 0;
  for (std::size_t g = 0; g < group.size(); ++g) {
    const Node old = graph.node(group[g]);
    Node slice;
    slice.op = "Slice";
    slice.name = old.name;
    const auto ints = [&](std::int64_t v) { return graph.add_constant("packed_at", Tensor::ints({v})); };
    slice.in = {value, ints(at), ints(at + widths[g]), ints(last)};
    slice.out = old.out;
    const NodeId place =
        graph.insert_before(group[g], Node{slice.name, "", "Slice", slice.in, {}, -1, {}, nullptr});
    graph.remove_node(group[g]);
    graph.set_output(place, 0, old.out[0]);
    at += widths[g];
  }
}

}  // namespace

void merge_products(Graph& graph) {
  std::map<ValueId, std::vector<NodeId>> by_input;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (is_packable(graph, node)) by_input[node.in[0]].push_back(id);
  }
  for (const auto& [input, all] : by_input) {
    std::vector<NodeId> group;
    for (const NodeId id : all) {
      const Node& node = graph.node(id);
      if (node.in.size() == graph.node(all[0]).in.size() && !graph.is_output(node.out[0]))
        group.push_back(id);
    }
    if (group.size() > 1) pack(graph, group);
  }
}

// k as [B,H,D,T] made by Reshape, Transpose, Reshape (PyTorch's exporter goes through rank 3): the [B,H,T,D]
// in front, which has strides where the detour has none.
void Planner::peel_transpose(AttentionMatch& m) const {
  const auto producer = [&](ValueId v, const char* op) -> const Node* {
    const NodeId id = graph_.producer(v);
    return id != NodeId::kNone && graph_.node(id).is(op) ? &graph_.node(id) : nullptr;
  };
  const Node* behind = producer(m.k, "Reshape");
  const Node* swap = behind == nullptr ? nullptr : producer(behind->in[0], "Transpose");
  const Node* front = swap == nullptr ? nullptr : producer(swap->in[0], "Reshape");
  if (front == nullptr || swap->attr_ints("perm") != std::vector<std::int64_t>{0, 2, 1}) return;
  const Dims k = sizes(m.k), flat = sizes(swap->in[0]);
  Dims x = sizes(front->in[0]);
  if (x.size() == 5 && x[0] == 1) x.erase(x.begin());  // a slice of a packed q, k, v
  if (k.size() != 4 || x.size() != 4 || flat.size() != 3) return;
  if (x[0] != k[0] || x[1] != k[1] || x[2] != k[3] || x[3] != k[2] || flat != Dims({x[0] * x[1], x[2], x[3]}))
    return;
  m.k = front->in[0];
  m.k_transposed = false;
}

void Planner::match_attention() {
  for (const NodeId id : graph_.nodes()) {
    if (!graph_.node(id).is("Softmax") || class_of(id) != NodeClass::kRows) continue;
    const Node softmax = graph_.node(id);
    AttentionMatch m;
    std::vector<NodeId> taken = {id};
    const auto alone = [&](ValueId v, NodeId user) { return graph_.only_user(v) == user; };
    // Behind: perhaps Where(IsNaN(p), 0, p), then the product with v.
    ValueId p = softmax.out[0];
    NodeId next = graph_.only_user(p);
    if (next == NodeId::kNone && !graph_.is_output(p) && graph_.users(p).size() == 2) {
      NodeId isnan = NodeId::kNone, where = NodeId::kNone;
      for (const Use& use : graph_.users(p)) {
        if (graph_.node(use.node).is("IsNaN")) isnan = use.node;
        if (graph_.node(use.node).is("Where") && use.slot == 2) where = use.node;
      }
      if (isnan != NodeId::kNone && where != NodeId::kNone &&
          graph_.node(where).in[0] == graph_.node(isnan).out[0] && alone(graph_.node(isnan).out[0], where) &&
          all_zero(graph_, graph_.node(where).in[1])) {
        m.nan_zero = true;
        taken.push_back(isnan);
        taken.push_back(where);
        p = graph_.node(where).out[0];
        next = graph_.only_user(p);
      }
    }
    if (next == NodeId::kNone) continue;
    const Node& last = graph_.node(next);
    if (!(last.is("MatMul") || last.is("pare", "MatMul")) || last.in.size() != 2 || last.in[0] != p ||
        last.attr("alpha", 1.0f) != 1.0f || last.attr("trans_b", std::int64_t{0}) != 0 ||
        !last.attr("activation", "").empty())
      continue;
    m.v = last.in[1];
    m.out = last.out[0];
    taken.push_back(next);
    // In front: perhaps a mask, then the product of q and k, each perhaps scaled.
    ValueId scores = softmax.in[0];
    NodeId before = graph_.producer(scores);
    if (before == NodeId::kNone || !alone(scores, id)) continue;
    const auto is_product = [&](NodeId n) {
      return n != NodeId::kNone && (graph_.node(n).is("MatMul") || graph_.node(n).is("pare", "MatMul"));
    };
    if (graph_.node(before).is("Add")) {
      const Node& add = graph_.node(before);
      const int side = is_product(graph_.producer(add.in[0])) ? 0 : 1;
      const ValueId product = add.in[static_cast<std::size_t>(side)];
      if (!is_product(graph_.producer(product)) || !alone(product, before)) continue;
      m.mask = add.in[static_cast<std::size_t>(1 - side)];
      if (all_zero(graph_, m.mask)) m.mask = ValueId::kNone;
      taken.push_back(before);
      before = graph_.producer(product);
    }
    if (!is_product(before)) continue;
    const Node& product = graph_.node(before);
    if (product.in.size() != 2 || !product.attr("activation", "").empty()) continue;
    taken.push_back(before);
    m.alpha = product.attr("alpha", 1.0f);
    m.k_transposed = product.attr("trans_b", std::int64_t{0}) == 0;
    m.q = product.in[0];
    m.k = product.in[1];
    NodeId user = before;
    for (ValueId* side : {&m.q, &m.k}) {
      const NodeId scale = graph_.producer(*side);
      if (scale == NodeId::kNone || !graph_.node(scale).is("Mul") || !alone(*side, user)) continue;
      const Node& mul = graph_.node(scale);
      float factor = 1;
      if (one_number(graph_, mul.in[1], factor))
        *side = mul.in[0];
      else if (one_number(graph_, mul.in[0], factor))
        *side = mul.in[1];
      else
        continue;
      m.alpha *= factor;
      taken.push_back(scale);
    }
    if (m.k_transposed) peel_transpose(m);
    const int rank = graph_.value(m.q).shape.rank();
    const int k_rank = graph_.value(m.k).shape.rank();
    if (rank != 4 || (k_rank != 4 && m.k_transposed) || graph_.value(m.v).shape.rank() != 4) continue;
    for (const NodeId n : taken) {
      classes_[static_cast<std::size_t>(n)] = NodeClass::kTaken;
      m.nodes.push_back(graph_.node(n).name);
    }
    classes_[static_cast<std::size_t>(next)] = NodeClass::kAttention;
    attention_[next] = std::move(m);
  }
}

void Planner::emit_attention(const AttentionMatch& m) {
  const NodeId id = graph_.producer(m.out);
  PlanLayer layer = start_layer(LayerKind::kAttention, graph_.node(id));
  layer.nodes = m.nodes;
  layer.epilogue.alpha = m.alpha;
  layer.nan_zero = m.nan_zero;
  const auto operand = [&](ValueId value, bool swap) {
    PlanView view = view_of(value);
    if (view.dims.size() == 5) view_select(view, 0, 0);
    if (swap) {
      std::swap(view.dims[2], view.dims[3]);
      std::swap(view.strides[2], view.strides[3]);
    }
    const std::int64_t align = 128 / bits(options_.precision);
    bool fits =
        tensor(view.tensor).dtype == options_.precision && view.strides[3] == 1 && view.offset % align == 0;
    for (std::size_t i = 0; i < 3; ++i) fits = fits && view.strides[i] % align == 0;
    return fits ? view : copy(view, options_.precision, graph_.value(value).name);
  };
  layer.in = {operand(m.q, false), operand(m.k, m.k_transposed), operand(m.v, false), {}};
  const Dims& q = layer.in[0].dims;
  const Dims &k = layer.in[1].dims, &v = layer.in[2].dims;
  if (m.mask != ValueId::kNone) {
    PlanView mask = view_of(m.mask);
    view_expand(mask, {q[0], q[1], q[2], k[2]});
    layer.in[3] = mask;
  }
  // Heads lie side by side in each row, so the transpose and reshape that follow are free.
  const int target = add_tensor(graph_.value(m.out).name, storage(m.out), {q[0], q[2], q[1], v[3]});
  PlanView out = whole(plan_, target);
  view_transpose(out, {0, 2, 1, 3});
  placed_[m.out] = out;
  layer.out = {out};
  plan_.layers.push_back(std::move(layer));
}

}  // namespace pare::planning
