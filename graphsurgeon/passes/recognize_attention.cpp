#include <algorithm>
#include <optional>
#include <utility>

#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/passes/passes.h"
#include "graphsurgeon/passes/recognize.h"

namespace pare {
namespace {

using Perm = std::vector<std::int64_t>;

// The first output of `node`, put in front of `place`.
ValueId add_before(Graph& graph, NodeId place, Node node, std::string name, DType type) {
  Value value;
  value.name = std::move(name);
  value.dtype = type;
  node.out = {graph.add_value(std::move(value))};
  const ValueId result = node.out[0];
  graph.insert_before(place, std::move(node));
  return result;
}

// --- Attention

// Takes products with numbers off; `scale` is multiplied by them.
ValueId strip_scale(const Graph& graph, ValueId id, double& scale) {
  for (int i = 0; i < 4; ++i) {
    const Node* mul = made_by(graph, id, "Mul");
    const Node* div = made_by(graph, id, "Div");
    if (mul != nullptr && number(graph, mul->in[1])) {
      scale *= *number(graph, mul->in[1]);
      id = mul->in[0];
    } else if (mul != nullptr && number(graph, mul->in[0])) {
      scale *= *number(graph, mul->in[0]);
      id = mul->in[1];
    } else if (div != nullptr && number(graph, div->in[1]) && *number(graph, div->in[1]) != 0) {
      scale /= *number(graph, div->in[1]);
      id = div->in[0];
    } else {
      break;
    }
  }
  return id;
}

struct Match {
  ValueId q = ValueId::kNone, k = ValueId::kNone, v = ValueId::kNone, mask = ValueId::kNone;
  Perm k_perm;  // of k, to make it [batch, heads, length, size]; empty: it is
  double scale = 1;
};

// q * k^T in any scaling.
bool match_scores(const Graph& graph, ValueId id, Match& found) {
  found.scale = 1;
  const Node* scores = made_by(graph, strip_scale(graph, id, found.scale), "MatMul");
  if (scores == nullptr) return false;
  found.q = strip_scale(graph, scores->in[0], found.scale);
  const ValueId transposed = strip_scale(graph, scores->in[1], found.scale);
  const Node* transpose = made_by(graph, transposed, "Transpose");
  if (transpose == nullptr) return false;
  Perm perm = transpose->attr_ints("perm");
  if (perm.size() != 4) return false;
  std::swap(perm[2], perm[3]);
  found.k = transpose->in[0];
  found.k_perm = std::is_sorted(perm.begin(), perm.end()) ? Perm{} : perm;
  return graph.value(found.q).shape.rank() == 4 && graph.value(found.k).shape.rank() == 4;
}

bool same_type(const Graph& graph, ValueId a, ValueId b) {
  return graph.value(a).dtype == graph.value(b).dtype;
}

// Softmax over the last axis of scores, with or without a mask added.
bool match_softmax(const Graph& graph, ValueId id, Match& found) {
  const Node* softmax = made_by(graph, id, "Softmax");
  if (softmax == nullptr || graph.only_user(id) == NodeId::kNone) return false;
  const std::int64_t axis = softmax->attr("axis", std::int64_t{-1});
  if (axis != -1 && axis != 3) return false;
  if (match_scores(graph, softmax->in[0], found)) return true;
  const Node* add = made_by(graph, softmax->in[0], "Add");
  if (add == nullptr) return false;
  for (const ValueId scores : add->in) {
    if (!match_scores(graph, scores, found)) continue;
    found.mask = other_operand(*add, scores);
    const int rank = graph.value(found.mask).shape.rank();
    return (rank == 2 || rank == 4) && same_type(graph, found.mask, found.q);
  }
  return false;
}

// ONNX lets a mask of one row serve all queries, ONNX Runtime 1.32 does not: it is made as long as they are.
ValueId mask_of_rows(Graph& graph, NodeId place, ValueId mask, ValueId q) {
  const Dims::size_type rank = graph.value(mask).shape.dims.size();
  const Dim rows = graph.value(mask).shape.dims[rank - 2], queries = graph.value(q).shape.dims[2];
  if (rows.same(queries) || !rows.known() || rows.value != 1) return mask;
  const std::string name = graph.value(mask).name;
  const DType type = graph.value(mask).dtype;
  Node expand;
  expand.op = "Expand";
  if (queries.known()) {
    std::vector<std::int64_t> target(rank, 1);
    target[rank - 2] = queries.value;
    expand.in = {mask, graph.add_constant(name + "_rows", Tensor::ints(target))};
  } else {
    Node shape;
    shape.op = "Shape";
    shape.attrs["start"] = std::int64_t{2};
    shape.attrs["end"] = std::int64_t{3};
    shape.in = {q};
    const ValueId length = add_before(graph, place, std::move(shape), name + "_queries", DType::kI64);
    const ValueId one = graph.add_constant(name + "_one", Tensor::ints({1}));
    Node concat;
    concat.op = "Concat";
    concat.attrs["axis"] = std::int64_t{0};
    concat.in.assign(rank, one);
    concat.in[rank - 2] = length;
    expand.in = {mask, add_before(graph, place, std::move(concat), name + "_rows", DType::kI64)};
  }
  return add_before(graph, place, std::move(expand), name + "_expanded", type);
}

int recognize_attention(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    Match found;
    if (!node.is("MatMul") || !match_softmax(graph, node.in[0], found)) continue;
    found.v = node.in[1];
    if (graph.value(found.v).shape.rank() != 4 || !same_type(graph, found.v, found.q)) continue;
    if (!context.may_change(graph, id)) break;
    if (!found.k_perm.empty()) {
      Node transpose;
      transpose.op = "Transpose";
      transpose.attrs["perm"] = found.k_perm;
      transpose.in = {found.k};
      Value value;
      value.name = graph.value(found.k).name + "_heads";
      value.dtype = graph.value(found.k).dtype;
      found.k = graph.add_value(std::move(value));
      transpose.out = {found.k};
      graph.insert_before(id, std::move(transpose));
    }
    Node attention;
    attention.op = "Attention";
    attention.in = {found.q, found.k, found.v};
    if (found.mask != ValueId::kNone) attention.in.push_back(mask_of_rows(graph, id, found.mask, found.q));
    attention.attrs["scale"] = static_cast<float>(found.scale);
    replace_node(graph, id, std::move(attention));
    ++count;
  }
  return count;
}

// --- RotaryEmbedding

// The half of x's last axis that `id` is: 0 or 1, -1 for neither.
int half_of(const Graph& graph, ValueId id, ValueId x, std::int64_t size) {
  const NodeId producer = graph.producer(id);
  if (producer == NodeId::kNone) return -1;
  const Node& node = graph.node(producer);
  const int rank = graph.value(x).shape.rank();
  const Shape& shape = graph.value(id).shape;
  if (node.in[0] != x || shape.rank() != rank || shape.dims.back().value != size / 2) return -1;
  if (node.is("Split")) {
    const std::int64_t axis = node.attr("axis", std::int64_t{0});
    return (axis == -1 || axis == rank - 1) && node.out.size() == 2 ? graph.value(id).producer_slot : -1;
  }
  if (!node.is("Slice")) return -1;
  const auto starts = constant_ints(graph, node, 1), axes = constant_ints(graph, node, 3);
  if (!starts || starts->size() != 1 || !axes || axes->size() != 1) return -1;
  if ((*axes)[0] != -1 && (*axes)[0] != rank - 1) return -1;
  if (input_of(node, 4) != ValueId::kNone) {
    const auto steps = constant_ints(graph, node, 4);
    if (!steps || (*steps)[0] != 1) return -1;
  }
  const std::int64_t start = (*starts)[0] < 0 ? (*starts)[0] + size : (*starts)[0];
  return start == 0 ? 0 : start == size / 2 ? 1 : -1;
}

// x of concat(-second half, first half).
ValueId rotated(const Graph& graph, ValueId id) {
  const Node* concat = made_by(graph, id, "Concat");
  if (concat == nullptr || concat->in.size() != 2) return ValueId::kNone;
  const Node* neg = made_by(graph, concat->in[0], "Neg");
  if (neg == nullptr || graph.producer(neg->in[0]) == NodeId::kNone) return ValueId::kNone;
  const Node& second = graph.node(graph.producer(neg->in[0]));
  if (second.in.empty() || second.in[0] == ValueId::kNone) return ValueId::kNone;
  const ValueId x = second.in[0];
  const Shape& shape = graph.value(x).shape;
  const std::int64_t axis = concat->attr("axis", std::int64_t{0});
  if (shape.rank() != 4 || (axis != -1 && axis != 3) || !shape.dims[3].known() ||
      shape.dims[3].value % 2 != 0)
    return ValueId::kNone;
  const std::int64_t size = shape.dims[3].value;
  return half_of(graph, neg->in[0], x, size) == 1 && half_of(graph, concat->in[1], x, size) == 0
             ? x
             : ValueId::kNone;
}

// A table [1, 1, length, size] (or with fewer ones) whose two halves are equal, as [1, length, size / 2].
std::optional<Tensor> half_table(const Graph& graph, ValueId id, const Shape& x) {
  if (!graph.is_constant(id) || !x.dims[2].known()) return std::nullopt;
  const Tensor& table = graph.value(id).constant;
  const std::int64_t length = x.dims[2].value, size = x.dims[3].value;
  std::vector<double> values;
  if (table.size() != length * size || table.dims().size() < 2 || !to_doubles(table, values))
    return std::nullopt;
  const Dims& dims = table.dims();
  if (dims.back() != size || dims[dims.size() - 2] != length) return std::nullopt;
  std::vector<double> half;
  for (std::int64_t row = 0; row < length; ++row)
    for (std::int64_t i = 0; i < size / 2; ++i) {
      const auto at = static_cast<std::size_t>(row * size + i);
      if (values[at] != values[at + static_cast<std::size_t>(size / 2)]) return std::nullopt;
      half.push_back(values[at]);
    }
  Tensor out;
  if (!from_doubles(table.dtype(), {1, length, size / 2}, half, out)) return std::nullopt;
  return out;
}

struct Rotation {
  ValueId x = ValueId::kNone, cos_value = ValueId::kNone, sin_value = ValueId::kNone;
  std::optional<Tensor> cos, sin;
};

bool match_rotation(const Graph& graph, const Node& add, Rotation& found) {
  if (!add.is("Add") || add.in.size() != 2) return false;
  for (int slot = 0; slot < 2; ++slot) {
    const Node* with_sin = made_by(graph, add.in[static_cast<std::size_t>(slot)], "Mul");
    const Node* with_cos = made_by(graph, add.in[static_cast<std::size_t>(1 - slot)], "Mul");
    if (with_sin == nullptr || with_cos == nullptr) continue;
    for (const ValueId turned : with_sin->in) {
      found.x = rotated(graph, turned);
      if (found.x == ValueId::kNone) continue;
      found.cos_value = other_operand(*with_cos, found.x);
      found.sin_value = other_operand(*with_sin, turned);
      if (found.cos_value == ValueId::kNone || !same_type(graph, found.cos_value, found.x)) continue;
      found.cos = half_table(graph, found.cos_value, graph.value(found.x).shape);
      found.sin = half_table(graph, found.sin_value, graph.value(found.x).shape);
      if (found.cos && found.sin) return true;
    }
  }
  return false;
}

// The operator wants a table for each sample.
ValueId table_of_batch(Graph& graph, NodeId place, ValueId old, const Tensor& half, ValueId x) {
  const ValueId table = graph.add_constant(graph.value(old).name + "_half", half);
  const Dim batch = graph.value(x).shape.dims[0];
  if (batch.known() && batch.value == 1) return table;
  ValueId target;
  if (batch.known()) {
    target = graph.add_constant(graph.value(old).name + "_shape",
                                Tensor::ints({batch.value, half.dims()[1], half.dims()[2]}));
  } else {
    Node shape;
    shape.op = "Shape";
    shape.attrs["start"] = std::int64_t{0};
    shape.attrs["end"] = std::int64_t{1};
    shape.in = {x};
    Node concat;
    concat.op = "Concat";
    concat.attrs["axis"] = std::int64_t{0};
    concat.in = {
        add_before(graph, place, std::move(shape), graph.value(old).name + "_batch", DType::kI64),
        graph.add_constant(graph.value(old).name + "_sizes", Tensor::ints({half.dims()[1], half.dims()[2]}))};
    target = add_before(graph, place, std::move(concat), graph.value(old).name + "_shape", DType::kI64);
  }
  Node expand;
  expand.op = "Expand";
  expand.in = {table, target};
  return add_before(graph, place, std::move(expand), graph.value(old).name + "_tables", half.dtype());
}

int recognize_rotary_embedding(Graph& graph, PassContext& context) {
  int count = 0;
  for (const NodeId id : graph.nodes()) {
    Rotation found;
    if (!match_rotation(graph, graph.node(id), found)) continue;
    if (!context.may_change(graph, id)) break;
    Node node;
    node.op = "RotaryEmbedding";
    node.in = {found.x, table_of_batch(graph, id, found.cos_value, *found.cos, found.x),
               table_of_batch(graph, id, found.sin_value, *found.sin, found.x)};
    replace_node(graph, id, std::move(node));
    ++count;
  }
  return count;
}

}  // namespace

const Pass kRecognizeAttention = {"recognize_attention",
                                  "make one Attention of two MatMuls with a Softmax between them",
                                  recognize_attention};
const Pass kRecognizeRotaryEmbedding = {
    "recognize_rotary_embedding", "make one RotaryEmbedding of the nodes that turn halves by constant angles",
    recognize_rotary_embedding};

}  // namespace pare
