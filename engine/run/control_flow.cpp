#include "engine/run/control_flow.h"

#include <algorithm>
#include <cstring>

#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/run/graph_run.h"
#include "engine/run/stack.h"

namespace pare {
namespace {

template <typename T>
T one_value(const TensorView& view, DType dtype, const char* what) {
  if (view.dtype != dtype || view.size() != 1)
    fail(ErrorCode::kBadFile, "{} must be one {}, is {} {}", what, name(dtype), name(view.dtype),
         to_string(view.dims));
  return *view.as<T>();
}

// A scalar, or a vector of one where the subgraph declares it so.
template <typename T>
Slot number(T value, DType dtype, const Value& declared, BufferPool& pool) {
  Slot slot = make_slot(dtype, declared.shape.rank() == 1 ? Dims{1} : Dims{}, pool);
  *slot.view.mut<T>() = value;
  return slot;
}

const Value& input_of(const Graph& body, std::size_t i) { return body.value(body.inputs[i]); }
const Value& output_of(const Graph& body, std::size_t i) { return body.value(body.outputs[i]); }

void run_if(ControlCall& call) {
  const bool yes = one_value<std::uint8_t>(call.in(0).view, DType::kBool, "the condition") != 0;
  GraphRun& body = call.body(yes ? "then_branch" : "else_branch");
  if (body.graph().outputs.size() < call.node.out.size())
    fail(ErrorCode::kBadFile, "a branch gives {} values, the node has {} outputs",
         body.graph().outputs.size(), call.node.out.size());
  call.capture(body);
  body.run();
  for (std::size_t i = 0; i < call.node.out.size(); ++i) call.set_output(i, body.output(i));
  body.clear();
}

void run_loop(ControlCall& call) {
  GraphRun& body = call.body("body");
  const Graph& graph = body.graph();
  BufferPool& pool = call.context.pool;
  const std::size_t carried = call.declared() < 2 ? 0 : call.declared() - 2;
  if (graph.inputs.size() != carried + 2 || graph.outputs.size() != call.node.out.size() + 1 ||
      call.node.out.size() < carried)
    fail(ErrorCode::kBadFile, "inputs and outputs do not fit those of the body");
  const std::int64_t limit = call.context.options.max_iterations;
  std::int64_t trips = INT64_MAX;
  if (call.has(0)) trips = one_value<std::int64_t>(call.in(0).view, DType::kI64, "the trip count");
  bool go_on = !call.has(1) || one_value<std::uint8_t>(call.in(1).view, DType::kBool, "the condition") != 0;
  std::vector<Slot> state;
  for (std::size_t i = 0; i < carried; ++i) state.push_back(share(call.in(i + 2), pool));
  std::vector<Stack> stacks;
  for (std::size_t i = carried; i < call.node.out.size(); ++i) {
    stacks.emplace_back(output_of(graph, i + 1), 0, false);
    if (call.has(0)) stacks.back().reserve(trips);
  }
  for (std::int64_t t = 0; t < trips && go_on; ++t) {
    if (t == limit)
      throw make_error(ErrorCode::kUnsupported, "the loop does not end: it was stopped after {} iterations",
                       limit)
          .hint("its condition stays true. A loop that really takes longer needs a higher max_iterations");
    check_cancelled();
    body.set(graph.inputs[0], number<std::int64_t>(t, DType::kI64, input_of(graph, 0), pool));
    body.set(graph.inputs[1], number<std::uint8_t>(1, DType::kBool, input_of(graph, 1), pool));
    for (std::size_t i = 0; i < carried; ++i) body.set(graph.inputs[i + 2], std::move(state[i]));
    call.capture(body);
    body.run();
    Slot next = body.output(0);
    go_on = one_value<std::uint8_t>(next.view, DType::kBool, "the condition of the body") != 0;
    release(next, pool);
    for (std::size_t i = 0; i < carried; ++i) state[i] = body.output(i + 1);
    for (std::size_t i = 0; i < stacks.size(); ++i) {
      Slot each = body.output(carried + 1 + i);
      stacks[i].push(each.view);
      release(each, pool);
    }
    body.clear();
  }
  for (std::size_t i = 0; i < carried; ++i) call.set_output(i, std::move(state[i]));
  for (std::size_t i = 0; i < stacks.size(); ++i) call.set_output(carried + i, stacks[i].finish(pool));
}

// --- Scan

struct ScannedInput {
  Slot* whole = nullptr;
  std::int64_t outer = 1, length = 0, inner_bytes = 0;
  Dims dims;  // of a slice
  bool backwards = false;
};

std::int64_t entry(const std::vector<std::int64_t>& list, std::size_t i) {
  return i < list.size() ? list[i] : 0;
}

ScannedInput scanned_input(Slot& slot, std::int64_t axis, bool backwards) {
  const TensorView& view = slot.view;
  const auto rank = static_cast<std::int64_t>(view.dims.size());
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    fail(ErrorCode::kBadFile, "the scan axis {} is outside of {}", axis, to_string(view.dims));
  if (bits(view.dtype) < 8 || view.dtype == DType::kString)
    fail(ErrorCode::kUnsupported, "Scan over {}", name(view.dtype));
  ScannedInput in;
  in.whole = &slot;
  in.backwards = backwards;
  in.dims = view.dims;
  in.dims.erase(in.dims.begin() + at);
  in.length = view.dims[static_cast<std::size_t>(at)];
  in.inner_bytes = bits(view.dtype) / 8;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (d < at) in.outer *= view.dims[static_cast<std::size_t>(d)];
    if (d > at) in.inner_bytes *= view.dims[static_cast<std::size_t>(d)];
  }
  return in;
}

// Along the first axis a slice is a view; along another its rows are gathered.
Slot slice_of(const ScannedInput& in, std::int64_t t, BufferPool& pool) {
  const std::int64_t place = in.backwards ? in.length - 1 - t : t;
  auto* from = static_cast<std::byte*>(in.whole->view.data) + place * in.inner_bytes;
  if (in.outer == 1) {
    Slot slot = share(*in.whole, pool);
    slot.view.dims = in.dims;
    slot.view.data = from;
    return slot;
  }
  Slot slot = make_slot(in.whole->view.dtype, in.dims, pool);
  for (std::int64_t o = 0; o < in.outer && in.inner_bytes != 0; ++o)
    std::memcpy(slot.view.mut<std::byte>() + o * in.inner_bytes, from + o * in.length * in.inner_bytes,
                static_cast<std::size_t>(in.inner_bytes));
  return slot;
}

void run_scan(ControlCall& call) {
  GraphRun& body = call.body("body");
  const Graph& graph = body.graph();
  BufferPool& pool = call.context.pool;
  const auto scanned = static_cast<std::size_t>(std::clamp<std::int64_t>(
      call.node.attr("num_scan_inputs", std::int64_t{0}), 0, static_cast<std::int64_t>(call.declared())));
  const std::size_t states = call.declared() - scanned;
  if (scanned == 0) fail(ErrorCode::kBadFile, "num_scan_inputs is 0: nothing says how long the scan is");
  if (graph.inputs.size() != call.declared() || graph.outputs.size() != call.node.out.size() ||
      call.node.out.size() < states)
    fail(ErrorCode::kBadFile, "inputs and outputs do not fit those of the body");
  const std::vector<std::int64_t> in_axes = call.node.attr_ints("scan_input_axes"),
                                  in_ways = call.node.attr_ints("scan_input_directions"),
                                  out_axes = call.node.attr_ints("scan_output_axes"),
                                  out_ways = call.node.attr_ints("scan_output_directions");
  std::vector<ScannedInput> in;
  for (std::size_t k = 0; k < scanned; ++k) {
    if (!call.has(states + k)) fail(ErrorCode::kBadFile, "scanned input {} is missing", k);
    in.push_back(scanned_input(call.in(states + k), entry(in_axes, k), entry(in_ways, k) != 0));
    if (in[k].length != in[0].length)
      fail(ErrorCode::kBadFile, "scanned inputs are {} and {} slices long", in[0].length, in[k].length);
  }
  std::vector<Slot> state;
  for (std::size_t i = 0; i < states; ++i) state.push_back(share(call.in(i), pool));
  std::vector<Stack> stacks;
  for (std::size_t k = 0; k + states < call.node.out.size(); ++k) {
    stacks.emplace_back(output_of(graph, states + k), entry(out_axes, k), entry(out_ways, k) != 0);
    stacks.back().reserve(in[0].length);
  }
  for (std::int64_t t = 0; t < in[0].length; ++t) {
    check_cancelled();
    for (std::size_t i = 0; i < states; ++i) body.set(graph.inputs[i], std::move(state[i]));
    for (std::size_t k = 0; k < scanned; ++k) body.set(graph.inputs[states + k], slice_of(in[k], t, pool));
    call.capture(body);
    body.run();
    for (std::size_t i = 0; i < states; ++i) state[i] = body.output(i);
    for (std::size_t k = 0; k < stacks.size(); ++k) {
      Slot each = body.output(states + k);
      stacks[k].push(each.view);
      release(each, pool);
    }
    body.clear();
  }
  for (std::size_t i = 0; i < states; ++i) call.set_output(i, std::move(state[i]));
  for (std::size_t k = 0; k < stacks.size(); ++k) call.set_output(states + k, stacks[k].finish(pool));
}

}  // namespace

Slot& ControlCall::in(std::size_t i) const {
  if (i >= node.in.size() || node.in[i] == ValueId::kNone)
    fail(ErrorCode::kBadFile, "input {} is missing", i);
  return slots[static_cast<std::size_t>(node.in[i])];
}

GraphRun& ControlCall::body(std::string_view attribute) const {
  for (Body& body : bodies)
    if (body.attribute == attribute) return *body.run;
  fail(ErrorCode::kBadFile, "the subgraph '{}' is missing", attribute);
}

void ControlCall::capture(GraphRun& body) const {
  for (const Capture& c : body.graph().captures)
    body.set(c.inner, share(in(static_cast<std::size_t>(c.input)), context.pool));
}

void ControlCall::set_output(std::size_t i, Slot slot) const {
  if (node.out[i] == ValueId::kNone)
    release(slot, context.pool);
  else
    slots[static_cast<std::size_t>(node.out[i])] = std::move(slot);
}

bool is_control_flow(const Node& node) { return node.is("If") || node.is("Loop") || node.is("Scan"); }

void run_control_flow(ControlCall& call) {
  if (call.node.op == "If") return run_if(call);
  if (call.node.op == "Loop") return run_loop(call);
  run_scan(call);
}

}  // namespace pare
