#include "engine/run/sequence_ops.h"

#include <algorithm>
#include <cstring>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/run/graph_run.h"

namespace pare {
namespace {

using Run = void (*)(ControlCall&);

// The tensor of a slot as one that lasts.
Tensor lasting(const Slot& slot) {
  if (!slot.view.present()) fail(ErrorCode::kBadFile, "a tensor is needed, there is none");
  const Tensor tensor = Tensor::share(slot.view.dtype, slot.view.dims, slot.view.data, slot.owner);
  return slot.owner != nullptr ? tensor : tensor.clone();
}

Slot slot_of(const Tensor& tensor) {
  Slot slot;
  slot.view = tensor.view();
  slot.owner = std::make_shared<Tensor>(tensor);
  return slot;
}

Slot slot_of(TensorSequence sequence) {
  Slot slot;
  slot.sequence = std::make_shared<const TensorSequence>(std::move(sequence));
  return slot;
}

const TensorSequence& sequence_in(const ControlCall& call, std::size_t i) {
  if (!call.has(i) || call.in(i).sequence == nullptr)
    fail(ErrorCode::kBadFile, "input {} is no sequence, or an optional without a value", i);
  return *call.in(i).sequence;
}

std::int64_t one_integer(const TensorView& view, const char* what) {
  if (!is_integer(view.dtype) || bits(view.dtype) < 8 || view.size() != 1)
    fail(ErrorCode::kBadFile, "{} must be one integer, is {} {}", what, name(view.dtype),
         to_string(view.dims));
  return Tensor::share(view.dtype, view.dims, view.data, nullptr).to_ints()[0];
}

// A position in [-count, most], as it is from the front; `otherwise` when the input is left out.
std::int64_t position(const ControlCall& call, std::size_t i, std::int64_t count, std::int64_t most,
                      std::int64_t otherwise) {
  if (!call.has(i)) return otherwise;
  const std::int64_t at = one_integer(call.in(i).view, "the position");
  if (at < -count || at > most)
    fail(ErrorCode::kBadFile, "position {} is outside of a sequence of {}", at, count);
  return at < 0 ? at + count : at;
}

void put_number(ControlCall& call, std::int64_t value, DType dtype) {
  Slot slot = make_slot(dtype, {}, call.context.pool);
  if (dtype == DType::kBool)
    *slot.view.mut<std::uint8_t>() = value != 0 ? 1 : 0;
  else
    *slot.view.mut<std::int64_t>() = value;
  call.set_output(0, std::move(slot));
}

DType declared_dtype(const ControlCall& call) { return call.graph.value(call.node.out[0]).dtype; }

void empty(ControlCall& call) { call.set_output(0, slot_of(TensorSequence{declared_dtype(call), {}})); }

void check_element(const TensorSequence& sequence, DType dtype) {
  if (sequence.dtype != DType::kUndefined && dtype != sequence.dtype)
    fail(ErrorCode::kBadFile, "a {} in a sequence of {}", name(dtype), name(sequence.dtype));
}

void construct(ControlCall& call) {
  TensorSequence made{call.in(0).view.dtype, {}};
  for (std::size_t i = 0; i < call.declared(); ++i) {
    made.tensors.push_back(lasting(call.in(i)));
    check_element(made, made.tensors.back().dtype());
  }
  call.set_output(0, slot_of(std::move(made)));
}

void at(ControlCall& call) {
  const TensorSequence& from = sequence_in(call, 0);
  const auto count = static_cast<std::int64_t>(from.tensors.size());
  call.set_output(0, slot_of(from.tensors[static_cast<std::size_t>(position(call, 1, count, count - 1, 0))]));
}

void insert(ControlCall& call) {
  TensorSequence made = sequence_in(call, 0);
  const auto count = static_cast<std::int64_t>(made.tensors.size());
  Tensor tensor = lasting(call.in(1));
  check_element(made, tensor.dtype());
  made.dtype = tensor.dtype();
  made.tensors.insert(made.tensors.begin() + position(call, 2, count, count, count), std::move(tensor));
  call.set_output(0, slot_of(std::move(made)));
}

void erase(ControlCall& call) {
  TensorSequence made = sequence_in(call, 0);
  const auto count = static_cast<std::int64_t>(made.tensors.size());
  if (count == 0) fail(ErrorCode::kBadFile, "an empty sequence has nothing to erase");
  made.tensors.erase(made.tensors.begin() + position(call, 1, count, count - 1, count - 1));
  call.set_output(0, slot_of(std::move(made)));
}

void length(ControlCall& call) {
  put_number(call, static_cast<std::int64_t>(sequence_in(call, 0).tensors.size()), DType::kI64);
}

// --- cutting and joining

// A tensor as [outer, size, inner] around one axis; elements of 8 bits or more, or strings.
struct Around {
  std::int64_t outer = 1, size = 1, inner = 1;
  DType dtype;

  Around(DType type, const Dims& dims, std::int64_t axis) : dtype(type) {
    if (bits(type) < 8 && type != DType::kString)
      fail(ErrorCode::kUnsupported, "sequences of {} are not cut or joined", name(type));
    for (std::int64_t d = 0; d < static_cast<std::int64_t>(dims.size()); ++d)
      (d < axis ? outer : d == axis ? size : inner) *= dims[static_cast<std::size_t>(d)];
  }
  // `count` places along the axis.
  void copy(const void* from, std::int64_t from_size, std::int64_t from_place, void* to, std::int64_t to_size,
            std::int64_t to_place, std::int64_t count) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::int64_t a = (o * from_size + from_place) * inner, b = (o * to_size + to_place) * inner;
      if (dtype == DType::kString) {
        std::copy_n(static_cast<const std::string*>(from) + a, count * inner,
                    static_cast<std::string*>(to) + b);
      } else if (count * inner != 0) {
        const std::int64_t width = bits(dtype) / 8;
        std::memcpy(static_cast<std::byte*>(to) + b * width, static_cast<const std::byte*>(from) + a * width,
                    static_cast<std::size_t>(count * inner * width));
      }
    }
  }
};

std::int64_t checked_axis(const Node& node, std::int64_t rank) {
  const std::int64_t axis = node.attr("axis", std::int64_t{0});
  if (axis < -rank || axis >= rank) fail(ErrorCode::kBadFile, "axis {} is outside of {} axes", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

void concat(ControlCall& call) {
  const TensorSequence& from = sequence_in(call, 0);
  if (from.tensors.empty()) fail(ErrorCode::kBadFile, "an empty sequence cannot be joined");
  const bool fresh = call.node.attr("new_axis", std::int64_t{0}) != 0;
  const Dims first = from.tensors[0].dims();
  const std::int64_t axis =
      checked_axis(call.node, static_cast<std::int64_t>(first.size()) + (fresh ? 1 : 0));
  const auto as_part = [&](const Tensor& tensor) {
    Dims dims = tensor.dims();
    if (fresh) dims.insert(dims.begin() + axis, 1);
    return dims;
  };
  Dims dims = as_part(from.tensors[0]);
  std::int64_t total = 0;
  for (const Tensor& tensor : from.tensors) {
    Dims part = as_part(tensor);
    if (part.size() != dims.size())
      fail(ErrorCode::kBadFile, "{} and {} cannot be joined", to_string(first), to_string(tensor.dims()));
    total += part[static_cast<std::size_t>(axis)];
    part[static_cast<std::size_t>(axis)] = dims[static_cast<std::size_t>(axis)];
    if (part != dims || tensor.dtype() != from.tensors[0].dtype())
      fail(ErrorCode::kBadFile, "{} and {} cannot be joined along axis {}", to_string(first),
           to_string(tensor.dims()), axis);
  }
  dims[static_cast<std::size_t>(axis)] = total;
  Slot slot = make_slot(from.tensors[0].dtype(), dims, call.context.pool);
  std::int64_t place = 0;
  for (const Tensor& tensor : from.tensors) {
    const Around part(tensor.dtype(), as_part(tensor), axis);
    part.copy(tensor.data(), part.size, 0, slot.view.data, total, place, part.size);
    place += part.size;
  }
  call.set_output(0, std::move(slot));
}

void split(ControlCall& call) {
  const TensorView& x = call.in(0).view;
  const std::int64_t axis = checked_axis(call.node, static_cast<std::int64_t>(x.dims.size()));
  const Around whole(x.dtype, x.dims, axis);
  std::vector<std::int64_t> sizes;
  const bool given = call.has(1);
  const bool scalar = given && call.in(1).view.dims.empty();
  if (given && !scalar) {
    const TensorView& list = call.in(1).view;
    sizes = Tensor::share(list.dtype, list.dims, list.data, nullptr).to_ints();
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes) {
      if (size < 0 || size > whole.size - sum)
        fail(ErrorCode::kBadFile, "the parts do not add up to the {} places of axis {}", whole.size, axis);
      sum += size;
    }
    if (sum != whole.size)
      fail(ErrorCode::kBadFile, "the parts add up to {}, axis {} has {}", sum, axis, whole.size);
  } else {
    std::int64_t each = 1;
    if (scalar) each = one_integer(call.in(1).view, "the size of a part");
    if (each <= 0) fail(ErrorCode::kBadFile, "parts of {} places", each);
    for (std::int64_t left = whole.size; left > 0; left -= each) sizes.push_back(std::min(left, each));
  }
  TensorSequence made{x.dtype, {}};
  std::int64_t place = 0;
  for (const std::int64_t size : sizes) {
    Dims dims = x.dims;
    dims[static_cast<std::size_t>(axis)] = size;
    Tensor part = Tensor::allocate(x.dtype, dims);
    whole.copy(x.data, whole.size, place, part.mut<void>(), size, 0, size);
    place += size;
    if (!given && call.node.attr("keepdims", std::int64_t{1}) == 0) {
      dims.erase(dims.begin() + axis);
      part = part.reshaped(dims);
    }
    made.tensors.push_back(std::move(part));
  }
  call.set_output(0, slot_of(std::move(made)));
}

void map(ControlCall& call) {
  GraphRun& body = call.body("body");
  const Graph& graph = body.graph();
  if (graph.inputs.size() != call.declared() || graph.outputs.size() != call.node.out.size())
    fail(ErrorCode::kBadFile, "inputs and outputs do not fit those of the body");
  const std::size_t count = sequence_in(call, 0).tensors.size();
  std::vector<TensorSequence> made(call.node.out.size());
  for (std::size_t k = 0; k < made.size(); ++k) made[k].dtype = graph.value(graph.outputs[k]).dtype;
  for (std::size_t t = 0; t < count; ++t) {
    check_cancelled();
    for (std::size_t i = 0; i < call.declared(); ++i) {
      const Slot& in = call.in(i);
      if (in.sequence != nullptr && in.sequence->tensors.size() != count)
        fail(ErrorCode::kBadFile, "sequences have {} and {} elements", count, in.sequence->tensors.size());
      body.set(graph.inputs[i],
               in.sequence != nullptr ? slot_of(in.sequence->tensors[t]) : share(in, call.context.pool));
    }
    call.capture(body);
    body.run();
    for (std::size_t k = 0; k < made.size(); ++k) {
      Slot each = body.output(k);
      made[k].tensors.push_back(lasting(each));
      made[k].dtype = each.view.dtype;
      release(each, call.context.pool);
    }
    body.clear();
  }
  for (std::size_t k = 0; k < made.size(); ++k) call.set_output(k, slot_of(std::move(made[k])));
}

// --- optionals: the value itself, or a slot without one

void same(ControlCall& call) {
  call.set_output(0, call.has(0) ? share(call.in(0), call.context.pool) : Slot{});
}

void has_element(ControlCall& call) {
  put_number(call, call.has(0) && call.in(0).has_value() ? 1 : 0, DType::kBool);
}

void get_element(ControlCall& call) {
  if (!call.has(0) || !call.in(0).has_value()) fail(ErrorCode::kBadFile, "the optional has no value");
  same(call);
}

Run find(const std::string& op) {
  static const std::pair<const char*, Run> kRuns[] = {{"SequenceEmpty", empty},
                                                      {"SequenceConstruct", construct},
                                                      {"SequenceAt", at},
                                                      {"SequenceInsert", insert},
                                                      {"SequenceErase", erase},
                                                      {"SequenceLength", length},
                                                      {"ConcatFromSequence", concat},
                                                      {"SplitToSequence", split},
                                                      {"SequenceMap", map},
                                                      {"Optional", same},
                                                      {"OptionalHasElement", has_element},
                                                      {"OptionalGetElement", get_element},
                                                      {"Identity", same}};
  for (const auto& [name, run] : kRuns)
    if (op == name) return run;
  return nullptr;
}

}  // namespace

bool is_sequence_op(const Node& node, const std::vector<Slot>& slots) {
  if (!node.domain.empty()) return false;
  if (node.op == "Identity")
    return !node.in.empty() && node.in[0] != ValueId::kNone &&
           !slots[static_cast<std::size_t>(node.in[0])].view.present();
  return find(node.op) != nullptr;
}

void run_sequence_op(ControlCall& call) {
  const Run run = find(call.node.op);
  PARE_ASSERT(run != nullptr);
  run(call);
}

}  // namespace pare
