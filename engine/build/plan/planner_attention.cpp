// Attention, found around each Softmax.
#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/build/plan/planner.h"
#include "engine/numeric/convert.h"

namespace pare::planning {
namespace {

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

}  // namespace

// k as [B,H,D,T] made by Reshape, Transpose, Reshape (PyTorch's exporter goes through rank 3): the [B,H,T,D]
// in front, which has strides where the detour has none.
void Planner::peel_transpose(AttentionMatch& m) const { peel_around(m, m.k); }

// The same for a value in front of `shaped`, which has the sizes of k.
void Planner::peel_around(AttentionMatch& m, ValueId shaped) const {
  const auto producer = [&](ValueId v, const char* op) -> const Node* {
    const NodeId id = graph_.producer(v);
    return id != NodeId::kNone && graph_.node(id).is(op) ? &graph_.node(id) : nullptr;
  };
  const Node* behind = producer(m.k, "Reshape");
  const Node* swap = behind == nullptr ? nullptr : producer(behind->in[0], "Transpose");
  const Node* front = swap == nullptr ? nullptr : producer(swap->in[0], "Reshape");
  if (front == nullptr || swap->attr_ints("perm") != std::vector<std::int64_t>{0, 2, 1}) return;
  const Dims k = sizes(shaped), flat = sizes(swap->in[0]);
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
    if (graph_.node(next).is("pare", "FakeQuant") && class_of(next) == NodeClass::kPointwise) {
      m.p_codes = graph_.node(next).out[0];
      taken.push_back(next);
      p = m.p_codes;
      next = graph_.only_user(p);
      if (next == NodeId::kNone) continue;
    }
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
    m.scores_node = before;
    m.values_node = next;
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
    const NodeId quantizer = graph_.producer(m.k);
    if (m.k_transposed && quantizer != NodeId::kNone && graph_.node(quantizer).is("pare", "FakeQuant") &&
        alone(m.k, before)) {
      // A quantizer does not care which way its values lie: it may stand in front of the detour.
      AttentionMatch inner = m;
      inner.k = graph_.node(quantizer).in[0];
      const ValueId shape_like = m.k;
      peel_around(inner, shape_like);
      if (!inner.k_transposed) {
        graph_.set_input(quantizer, 0, inner.k);
        graph_.value(m.k).shape = graph_.value(inner.k).shape;
        m.k_transposed = false;
      }
    }
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
  double layer_scale = static_cast<double>(m.alpha);
  layer.nan_zero = m.nan_zero;
  double values_scale = 1;
  bool codes = false;
  const auto operand = [&](ValueId value, bool swap) {
    // Codes that the product in front has left: their scale moves behind the sums.
    if (const auto fake = fake_codes_.find(value); fake != fake_codes_.end()) {
      PlanView view = fake->second.view;
      if (view.dims.size() == 5) view_select(view, 0, 0);
      if (swap) {
        std::swap(view.dims[2], view.dims[3]);
        std::swap(view.strides[2], view.strides[3]);
      }
      (value == m.v ? values_scale : layer_scale) *= fake->second.scale;
      codes = true;
      if (view.strides[3] == 1) return view;
      return copy(view, tensor(view.tensor).dtype, graph_.value(value).name);
    }
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
  if (m.p_codes != ValueId::kNone) {
    const Node& node = graph_.node(graph_.producer(m.p_codes));
    ProgramStep step;
    std::string why;
    step_of_node(graph_, node, step, why);
    step.op = "Quantize";
    layer.post.push_back(step);
    if (step.y != 0) {
      ProgramStep shift = step;
      shift.op = "Dequantize";
      shift.x = 1;
      layer.post.push_back(shift);
    }
    values_scale *= step.x;
    codes = true;
  }
  layer.epilogue.alpha = static_cast<float>(layer_scale);
  layer.epilogue.r_scale = static_cast<float>(values_scale);
  // Heads lie side by side in each row, so the transpose and reshape that follow are free.
  const Dims stored = {q[0], q[2], q[1], v[3]};
  PlanView out;
  out.dims = stored;
  out.strides = dense_strides(stored);
  view_transpose(out, {0, 2, 1, 3});
  Codes absorbed;
  const bool writes_codes = absorb_quantizers(m.out, out, 0, absorbed);
  out.tensor = writes_codes ? add_tensor(graph_.value(m.out).name + "_codes", absorbed.type, stored)
                            : add_tensor(graph_.value(m.out).name, storage(m.out), stored);
  if (writes_codes) {
    layer.epilogue.y_scale = static_cast<float>(absorbed.scale);
    layer.epilogue.y_zero = static_cast<float>(absorbed.zero);
    place_codes(absorbed, out.tensor);
  } else {
    placed_[m.out] = out;
  }
  if (codes)
    for (const NodeId n : {m.scores_node, m.values_node})
      realized_[graph_.node(n).name] =
          "its codes, exact products in " + std::string(name(options_.precision));
  layer.out = {out};
  plan_.layers.push_back(std::move(layer));
}

}  // namespace pare::planning
