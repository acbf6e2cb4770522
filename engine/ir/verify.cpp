#include <string_view>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/ir/graph.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

[[noreturn]] void broken(const Node& node, const std::string& what) {
  throw make_error(ErrorCode::kBadFile, "{}", what)
      .at(fmt::format("node '{}' ({}{}{})", node.name, node.domain, node.domain.empty() ? "" : ".", node.op));
}

void verify_arity(const Node& node) {
  const OpSchema* schema = find_schema(node.domain, node.op);
  if (schema == nullptr) {
    // What another domain means is not known here; such a node is carried along and cannot be run.
    if (node.fallback != nullptr || (!node.domain.empty() && node.domain != "pare")) return;
    throw make_error(ErrorCode::kUnsupported, "operator {}{}{} is not known", node.domain,
                     node.domain.empty() ? "" : ".", node.op)
        .at(fmt::format("node '{}'", node.name))
        .hint("`pare ops` lists the operators of this build");
  }
  const int in = node.declared_inputs >= 0 ? node.declared_inputs : static_cast<int>(node.in.size());
  const int out = static_cast<int>(node.out.size());
  if (in < schema->min_in || (schema->max_in >= 0 && in > schema->max_in))
    broken(node,
           fmt::format("has {} inputs; {} takes {} to {}", in, node.op, schema->min_in,
                       schema->max_in < 0 ? std::string("any number") : std::to_string(schema->max_in)));
  // A list of operands has no gaps. (Loop, Scan and SequenceMap end in lists, too, but begin with what may be
  // left out.)
  const bool list = schema->max_in < 0 && node.op != "Loop" && node.op != "Scan" && node.op != "SequenceMap";
  for (int i = 0; list && i < in; ++i)
    if (node.in[static_cast<std::size_t>(i)] == ValueId::kNone)
      broken(node, fmt::format("input {} is left out", i));
  if (out < schema->min_out || (schema->max_out >= 0 && out > schema->max_out))
    broken(node,
           fmt::format("has {} outputs; {} gives {} to {}", out, node.op, schema->min_out,
                       schema->max_out < 0 ? std::string("any number") : std::to_string(schema->max_out)));
}

void verify_subgraphs(const Node& node) {
  for (const auto& [key, attribute] : node.attrs) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (body == nullptr) continue;
    if (*body == nullptr) broken(node, fmt::format("subgraph '{}' is missing", key));
    for (const Capture& capture : (*body)->captures)
      if (capture.input < 0 || static_cast<std::size_t>(capture.input) >= node.in.size())
        broken(node, fmt::format("subgraph '{}' captures input {}, which is not there", key, capture.input));
    with_context(fmt::format("checking subgraph '{}' of node '{}'", key, node.name), [&] { verify(**body); });
  }
}

}  // namespace

void verify(const Graph& graph) {
  const std::size_t count = graph.value_count();
  std::vector<bool> ready(count, false);
  std::vector<std::size_t> uses(count, 0);
  std::unordered_set<std::string_view> names;
  names.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    if (value.is_constant()) {
      ready[i] = true;
      if (value.constant.dtype() != value.dtype || !value.shape.fits(value.constant.dims()))
        fail(ErrorCode::kBadFile, "constant '{}' holds {} {}, declared {} {}", value.name,
             name(value.constant.dtype()), to_string(value.constant.dims()), name(value.dtype),
             to_string(value.shape));
    }
    if (!value.name.empty() && !names.insert(value.name).second)
      fail(ErrorCode::kBadFile, "two values are named '{}'", value.name);
  }
  for (const ValueId id : graph.inputs) {
    PARE_ASSERT(static_cast<std::size_t>(id) < count);
    ready[static_cast<std::size_t>(id)] = true;
  }
  for (const Capture& capture : graph.captures) ready[static_cast<std::size_t>(capture.inner)] = true;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    verify_arity(node);
    for (const ValueId in : node.in) {
      if (in == ValueId::kNone) continue;
      if (!ready[static_cast<std::size_t>(in)])
        broken(node, fmt::format("input '{}' is used before it is computed, or never", graph.value(in).name));
      ++uses[static_cast<std::size_t>(in)];
    }
    for (const ValueId out : node.out) {
      if (out == ValueId::kNone) continue;
      if (ready[static_cast<std::size_t>(out)])
        broken(node, fmt::format("output '{}' already has a value", graph.value(out).name));
      ready[static_cast<std::size_t>(out)] = true;
    }
    verify_subgraphs(node);
  }
  for (std::size_t i = 0; i < count; ++i) PARE_ASSERT(graph.users(static_cast<ValueId>(i)).size() == uses[i]);
  for (const ValueId id : graph.outputs)
    if (id == ValueId::kNone || !ready[static_cast<std::size_t>(id)])
      fail(ErrorCode::kBadFile, "graph output '{}' is never computed",
           id == ValueId::kNone ? std::string("?") : graph.value(id).name);
}

}  // namespace pare
