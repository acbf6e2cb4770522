// The steps that the rules of expand_rules.cpp are made of.
#include "engine/base/error.h"
#include "graphsurgeon/onnx/expand.h"

namespace pare {

bool Expander::constant_ints(std::size_t slot, std::vector<std::int64_t>& out) const {
  if (!has(slot) || !in(slot).is_constant()) return false;
  const DType type = in(slot).dtype;
  if (type != DType::kI64 && type != DType::kI32) return false;
  out = in(slot).constant.to_ints();
  return true;
}

bool Expander::size(std::size_t slot, std::int64_t axis, std::int64_t& out) const {
  const Shape& shape = in(slot).shape;
  if (axis < 0) axis += shape.rank();
  if (axis < 0 || axis >= shape.rank()) return false;
  const Dim& dim = shape.dims[static_cast<std::size_t>(axis)];
  out = dim.value;
  return dim.known();
}

ValueId Expander::emit(const char* op, std::vector<ValueId> inputs, Attributes attrs) {
  Value value;
  value.name = fmt::format("{}_{}_{}", stem_, op, count_);
  Node step;
  step.name = fmt::format("{}_{}_{}", stem_, op, count_++);
  step.op = op;
  step.in = std::move(inputs);
  step.attrs = std::move(attrs);
  const ValueId out = graph_.add_value(std::move(value));
  step.out = {out};
  graph_.insert_before(id_, std::move(step));
  return out;
}

ValueId Expander::ints(std::vector<std::int64_t> values) {
  return graph_.add_constant(stem_ + "_ints", Tensor::ints(values));
}

ValueId Expander::floats(const std::vector<float>& values) {
  const Dims dims = {static_cast<std::int64_t>(values.size())};
  return graph_.add_constant(stem_ + "_floats", Tensor::from(DType::kF32, dims, values));
}

ValueId Expander::scalar(DType type, double value) {
  Tensor tensor = type == DType::kI64
                      ? Tensor::from(type, {}, std::vector<std::int64_t>{static_cast<std::int64_t>(value)})
                      : Tensor::scalar(static_cast<float>(value));
  return graph_.add_constant(stem_ + "_number", std::move(tensor));
}

void Expander::finish(const char* op, std::vector<ValueId> inputs, Attributes attrs) {
  Node last;
  last.name = fmt::format("{}_{}_{}", stem_, op, count_++);
  last.op = op;
  last.in = std::move(inputs);
  last.attrs = std::move(attrs);
  if (node_.op == op && node_.out.size() > 1) {  // the same operator: all outputs
    last.out = node_.out;
    for (std::size_t i = 0; i < node_.out.size(); ++i)
      graph_.set_output(id_, static_cast<int>(i), ValueId::kNone);
  } else {
    last.out.push_back(node_.out.at(0));
    graph_.set_output(id_, 0, ValueId::kNone);
  }
  graph_.insert_before(id_, std::move(last));
}

ValueId Expander::emit_pair(const char* op, std::vector<ValueId> inputs, Attributes attrs) {
  const ValueId first = emit(op, std::move(inputs), std::move(attrs));
  const NodeId made = graph_.producer(first);
  ValueId second = node_.out.size() > 1 ? node_.out[1] : ValueId::kNone;
  if (second != ValueId::kNone) {
    graph_.set_output(id_, 1, ValueId::kNone);
  } else {
    Value unused;
    unused.name = fmt::format("{}_{}_unused", stem_, op);
    second = graph_.add_value(std::move(unused));
  }
  graph_.set_output(made, 1, second);
  return first;
}

}  // namespace pare
