#include <algorithm>
#include <deque>
#include <optional>

#include "engine/base/error.h"
#include "engine/ir/infer_ints.h"
#include "engine/ir/node_label.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

const Shape kUnranked;

// Far beyond any memory, and small enough that sums of a few sizes stay in int64.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 55;

bool too_large(const Shape& shape) {
  return std::any_of(shape.dims.begin(), shape.dims.end(),
                     [](const Dim& d) { return d.value > kLargestSize; });
}

// What both say together. False when they cannot both be true.
bool merge(const Shape& declared, const Shape& inferred, Shape& out) {
  if (!declared.ranked || !inferred.ranked) {
    out = declared.ranked ? declared : inferred;
    return true;
  }
  if (declared.rank() != inferred.rank()) return false;
  out = inferred;
  for (std::size_t i = 0; i < out.dims.size(); ++i) {
    const Dim& d = declared.dims[i];
    Dim& o = out.dims[i];
    if (d.known() && o.known() && d.value != o.value) return false;
    if (!o.known() && (d.known() || o.symbol.empty())) o = d;
  }
  return true;
}

// What is true of both.
Shape join(const Shape& a, const Shape& b) {
  if (!a.ranked || !b.ranked || a.rank() != b.rank()) return {};
  Shape out = a;
  for (std::size_t i = 0; i < out.dims.size(); ++i)
    if (!a.dims[i].same(b.dims[i])) out.dims[i] = Dim{};
  return out;
}

class GraphInference final : public InferContext {
 public:
  explicit GraphInference(Graph& graph) : graph_(graph), ints_(graph.value_count()) {
    for (std::size_t i = 0; i < graph.value_count(); ++i) {
      const Value& value = graph.value(static_cast<ValueId>(i));
      if (too_large(value.shape))
        fail(ErrorCode::kBadFile, "value '{}' is declared {}, too large", value.name, to_string(value.shape));
    }
  }

  KnownInts run() {
    for (const NodeId id : graph_.nodes()) {
      node_ = &graph_.node(id);
      const OpSchema* schema = find_schema(node_->domain, node_->op);
      if (schema == nullptr) continue;
      if (inputs() < schema->min_in)
        bad(fmt::format("has {} inputs, needs {} or more", inputs(), schema->min_in));
      check_kinds(*schema);
      infer_control_flow(id);
      schema->infer(*this);
      follow();
    }
    return std::move(ints_);
  }

  const Node& node() const override { return *node_; }
  bool has_input(int i) const override { return input_id(i) != ValueId::kNone; }
  DType in_dtype(int i) const override {
    return has_input(i) ? graph_.value(input_id(i)).dtype : DType::kUndefined;
  }
  const Shape& in_shape(int i) const override {
    return has_input(i) ? graph_.value(input_id(i)).shape : kUnranked;
  }

  ValueKind in_kind(int i) const override {
    return has_input(i) ? graph_.value(input_id(i)).kind : ValueKind::kTensor;
  }
  void set_kind(int i, ValueKind kind) override {
    if (wants_output(i)) graph_.value(node_->out[static_cast<std::size_t>(i)]).kind = kind;
  }

  const Tensor* in_value(int i) override {
    if (!has_input(i)) return nullptr;
    const Value& value = graph_.value(input_id(i));
    if (value.is_constant()) return &value.constant;
    const auto& ints = ints_[static_cast<std::size_t>(input_id(i))];
    if (!ints || value.dtype != DType::kI64) return nullptr;
    std::vector<std::int64_t> numbers;
    for (const SymInt& element : *ints) {
      if (!element.known) return nullptr;
      numbers.push_back(element.value);
    }
    Tensor tensor = Tensor::ints(numbers);
    made_.push_back(value.shape.rank() == 0 ? tensor.reshaped({}) : tensor);
    return &made_.back();
  }

  bool in_ints(int i, std::vector<SymInt>& out) override {
    if (!has_input(i)) return false;
    const Value& value = graph_.value(input_id(i));
    const bool whole = (is_integer(value.dtype) && bits(value.dtype) >= 8) || value.dtype == DType::kBool;
    const int rank = value.shape.rank();
    if (!whole || (rank != 0 && rank != 1) || !value.shape.concrete()) return false;
    const std::int64_t count = rank == 0 ? 1 : value.shape.dims[0].value;
    if (count > kMaxFollowed) return false;
    const auto& ints = ints_[static_cast<std::size_t>(input_id(i))];
    if (value.is_constant()) {
      out.clear();
      for (const std::int64_t element : value.constant.to_ints()) out.push_back(SymInt::of(element));
    } else if (ints) {
      out = *ints;
    } else {
      out.assign(static_cast<std::size_t>(count), SymInt{});
    }
    return true;
  }

  void set_out(int i, DType dtype, Shape shape) override {
    if (wants_output(i)) declare(node_->out[static_cast<std::size_t>(i)], dtype, shape);
  }

 private:
  // Only operators that say so take anything but tensors; what a subgraph captures may be of any kind.
  void check_kinds(const OpSchema& schema) const {
    if (!schema.tensors) return;
    const int declared = node_->declared_inputs < 0 ? inputs() : node_->declared_inputs;
    for (int i = 0; i < declared; ++i)
      if (in_kind(i) != ValueKind::kTensor)
        bad(fmt::format("input {} is a{} {}, a tensor is needed", i,
                        in_kind(i) == ValueKind::kSequence ? "" : "n", name(in_kind(i))));
  }

  ValueId input_id(int i) const {
    if (i < 0 || i >= inputs()) return ValueId::kNone;
    return node_->in[static_cast<std::size_t>(i)];
  }

  void declare(ValueId id, DType dtype, const Shape& shape) {
    Value& value = graph_.value(id);
    if (value.dtype == DType::kUndefined) value.dtype = dtype;
    if (dtype != DType::kUndefined && dtype != value.dtype)
      bad(fmt::format("output '{}' is declared {}, the operator gives {}", value.name, name(value.dtype),
                      name(dtype)));
    Shape merged;
    if (!merge(value.shape, shape, merged))
      bad(fmt::format("output '{}' is declared {}, the operator gives {}", value.name, to_string(value.shape),
                      to_string(shape)));
    if (too_large(merged)) bad("output '" + value.name + "' has shape " + to_string(merged) + ", too large");
    value.shape = std::move(merged);
  }

  void follow() {
    if (!wants_output(0)) return;
    const ValueId id = node_->out[0];
    const Value& value = graph_.value(id);
    if (!is_integer(value.dtype) && value.dtype != DType::kBool) return;
    std::vector<SymInt> elements;
    if (follow_ints(*this, value.shape, elements)) ints_[static_cast<std::size_t>(id)] = std::move(elements);
  }

  // --- subgraphs

  // The subgraph in an attribute, ours alone, with the types of what it captures filled in; nullptr when
  // absent.
  Graph* open_subgraph(NodeId id, std::string_view key) {
    Node& node = graph_.node(id);
    const auto found = node.attrs.find(key);
    if (found == node.attrs.end()) return nullptr;
    auto* held = std::get_if<std::shared_ptr<Graph>>(&found->second);
    if (held == nullptr || *held == nullptr) return nullptr;
    if (held->use_count() > 1) *held = std::make_shared<Graph>(**held);
    Graph& body = **held;
    for (const Capture& capture : body.captures)
      if (has_input(capture.input))
        give(body, capture.inner, in_dtype(capture.input), in_shape(capture.input), in_kind(capture.input));
    return &body;
  }

  void give(Graph& body, ValueId inner, DType dtype, const Shape& shape,
            ValueKind kind = ValueKind::kTensor) {
    Value& value = body.value(inner);
    // A value may be declared optional inside and be given without it.
    if (kind != ValueKind::kTensor && value.kind == ValueKind::kTensor) value.kind = kind;
    if (value.dtype == DType::kUndefined) value.dtype = dtype;
    Shape merged;
    if (!merge(value.shape, shape, merged) || (dtype != DType::kUndefined && value.dtype != dtype))
      bad(fmt::format("the subgraph declares '{}' as {} {}, outside it is {} {}", value.name,
                      name(value.dtype), to_string(value.shape), name(dtype), to_string(shape)));
    value.shape = std::move(merged);
  }

  void infer_body(Graph& body) {
    with_context("inferring the subgraph of " + label(*node_), [&] {
      GraphInference inner(body);
      for (const Capture& capture : body.captures)  // sizes computed outside and used inside
        if (has_input(capture.input))
          inner.ints_[static_cast<std::size_t>(capture.inner)] =
              ints_[static_cast<std::size_t>(input_id(capture.input))];
      inner.run();
    });
  }

  static const Value& output(const Graph& body, std::size_t i) { return body.value(body.outputs[i]); }

  void infer_control_flow(NodeId id) {
    if (!node_->domain.empty()) return;
    if (node_->op == "If") infer_if(id);
    if (node_->op == "Loop") infer_loop(id);
    if (node_->op == "Scan") infer_scan(id);
    if (node_->op == "SequenceMap") infer_sequence_map(id);
  }

  void infer_if(NodeId id) {
    Graph* yes = open_subgraph(id, "then_branch");
    Graph* no = open_subgraph(id, "else_branch");
    if (yes == nullptr || no == nullptr) bad("a branch is missing");
    infer_body(*yes);
    infer_body(*no);
    const std::size_t count = node_->out.size();
    if (yes->outputs.size() != count || no->outputs.size() != count)
      bad(fmt::format("has {} outputs, its branches {} and {}", count, yes->outputs.size(),
                      no->outputs.size()));
    for (std::size_t i = 0; i < count; ++i) {
      const Value& a = output(*yes, i);
      const Value& b = output(*no, i);
      if (a.dtype != b.dtype) bad(fmt::format("branches give {} and {}", name(a.dtype), name(b.dtype)));
      set_out(static_cast<int>(i), a.dtype, join(a.shape, b.shape));
      if (a.kind != ValueKind::kTensor) set_kind(static_cast<int>(i), a.kind);
    }
  }

  // A carried value may change its shape from one iteration to the next, so only its type goes in.
  void infer_loop(NodeId id) {
    Graph* body = open_subgraph(id, "body");
    if (body == nullptr) bad("the body is missing");
    const int declared = node_->declared_inputs < 0 ? inputs() : node_->declared_inputs;
    const int carried = declared - 2;
    if (carried < 0 || static_cast<int>(body->inputs.size()) != carried + 2 ||
        static_cast<int>(body->outputs.size()) != outputs() + 1 || outputs() < carried)
      bad("inputs and outputs do not fit those of the body");
    give(*body, body->inputs[0], DType::kI64, kUnranked);
    give(*body, body->inputs[1], DType::kBool, kUnranked);
    for (int i = 0; i < carried; ++i)
      give(*body, body->inputs[static_cast<std::size_t>(i) + 2], in_dtype(i + 2), kUnranked, in_kind(i + 2));
    infer_body(*body);
    for (int i = 0; i < outputs(); ++i) {
      const Value& out = output(*body, static_cast<std::size_t>(i) + 1);
      if (i < carried) {
        set_out(i, out.dtype, join(in_shape(i + 2), out.shape));
        if (out.kind != ValueKind::kTensor) set_kind(i, out.kind);
      } else {
        set_out(i, out.dtype, stacked(out.shape, 0, Dim{}));
      }
    }
  }

  void infer_scan(NodeId id) {
    Graph* body = open_subgraph(id, "body");
    if (body == nullptr) bad("the body is missing");
    const int declared = node_->declared_inputs < 0 ? inputs() : node_->declared_inputs;
    const auto scanned = static_cast<int>(
        std::clamp<std::int64_t>(node_->attr("num_scan_inputs", std::int64_t{0}), 0, declared));
    const int states = declared - scanned;
    if (static_cast<int>(body->inputs.size()) != declared ||
        static_cast<int>(body->outputs.size()) != outputs() || outputs() < states)
      bad("inputs and outputs do not fit those of the body");
    const std::vector<std::int64_t> in_axes = node_->attr_ints("scan_input_axes");
    const std::vector<std::int64_t> out_axes = node_->attr_ints("scan_output_axes");
    Dim length;
    for (int i = 0; i < declared; ++i) {
      Shape shape = in_shape(i);
      if (i >= states && shape.ranked) {
        const auto k = static_cast<std::size_t>(i - states);
        std::int64_t axis = k < in_axes.size() ? in_axes[k] : 0;
        if (axis < 0) axis += shape.rank();
        if (axis < 0 || axis >= shape.rank()) bad("a scan axis is outside its input");
        const auto where = shape.dims.begin() + static_cast<std::ptrdiff_t>(axis);
        if (!length.known()) length = *where;
        shape.dims.erase(where);
      }
      give(*body, body->inputs[static_cast<std::size_t>(i)], in_dtype(i), shape);
    }
    infer_body(*body);
    for (int i = 0; i < outputs(); ++i) {
      const Value& out = output(*body, static_cast<std::size_t>(i));
      const auto k = static_cast<std::size_t>(i - states);
      if (i < states) {
        set_out(i, out.dtype, out.shape);
      } else {
        set_out(i, out.dtype, stacked(out.shape, k < out_axes.size() ? out_axes[k] : 0, length));
      }
    }
  }

  // One iteration an element of the first sequence; other sequences give their element, tensors themselves.
  void infer_sequence_map(NodeId id) {
    Graph* body = open_subgraph(id, "body");
    if (body == nullptr) bad("the body is missing");
    const int declared = node_->declared_inputs < 0 ? inputs() : node_->declared_inputs;
    if (static_cast<int>(body->inputs.size()) != declared ||
        static_cast<int>(body->outputs.size()) != outputs())
      bad("inputs and outputs do not fit those of the body");
    for (int i = 0; i < declared; ++i)
      give(*body, body->inputs[static_cast<std::size_t>(i)], in_dtype(i), in_shape(i));
    infer_body(*body);
    for (int i = 0; i < outputs(); ++i) {
      const Value& out = output(*body, static_cast<std::size_t>(i));
      set_out(i, out.dtype, out.shape);
      set_kind(i, ValueKind::kSequence);
    }
  }

  Shape stacked(const Shape& each, std::int64_t axis, const Dim& length) const {
    if (!each.ranked) return {};
    if (axis < 0) axis += each.rank() + 1;
    if (axis < 0 || axis > each.rank()) bad("a scan axis is outside its output");
    Shape shape = each;
    shape.dims.insert(shape.dims.begin() + static_cast<std::ptrdiff_t>(axis), length);
    return shape;
  }

  Graph& graph_;
  const Node* node_ = nullptr;
  KnownInts ints_;           // by value
  std::deque<Tensor> made_;  // what in_value() pointed to
};

}  // namespace

KnownInts infer_ints(Graph& graph) {
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    Value& value = graph.value(static_cast<ValueId>(i));
    if (!value.is_constant()) continue;
    value.dtype = value.constant.dtype();
    value.shape = Shape(value.constant.dims());
  }
  return GraphInference(graph).run();
}

void infer_shapes(Graph& graph) { infer_ints(graph); }

}  // namespace pare
