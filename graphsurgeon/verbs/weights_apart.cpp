#include "graphsurgeon/verbs/weights_apart.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/sha256.h"
#include "engine/ir/schema.h"
#include "engine/ir/subgraph.h"

namespace pare {
namespace {

constexpr const char* kKey = "pare.stripped";

bool is_weight(const Graph& graph, ValueId id, std::int64_t min_bytes) {
  const Value& value = graph.value(id);
  if (!value.is_constant() || value.dtype == DType::kString) return false;
  if (graph.users(id).empty() && !graph.is_output(id)) return false;
  return value.constant.bytes() >= std::max<std::int64_t>(min_bytes, 1);
}

// Weights of subgraphs become constants of the graph around, captured. Inner ones first, so that they come
// all the way out.
void hoist(Graph& graph, std::int64_t min_bytes) {
  for (const NodeId id : graph.nodes())
    for (const std::string& key : subgraph_attributes(graph.node(id))) {
      auto& held = std::get<std::shared_ptr<Graph>>(graph.node(id).attrs.find(key)->second);
      if (held.use_count() > 1) held = std::make_shared<Graph>(*held);
      Graph& body = *held;
      hoist(body, min_bytes);
      for (std::size_t i = 0; i < body.value_count(); ++i) {
        const auto inner = static_cast<ValueId>(i);
        if (!is_weight(body, inner, min_bytes) || body.is_output(inner)) continue;
        const ValueId outer =
            graph.add_constant(body.value(inner).name, std::move(body.value(inner).constant));
        body.value(inner).constant = Tensor();
        Node& owner = graph.node(id);
        if (owner.declared_inputs < 0) owner.declared_inputs = static_cast<int>(owner.in.size());
        const auto slot = static_cast<int>(owner.in.size());
        graph.set_input(id, slot, outer);
        body.captures.push_back({slot, inner});
      }
    }
}

}  // namespace

std::map<std::string, Tensor> strip_weights(Graph& graph, const StripOptions& options) {
  if (graph.metadata.count(kKey) != 0)
    throw make_error(ErrorCode::kUsage, "the model has been stripped already")
        .hint("restore its weights first");
  Graph changed = graph;
  hoist(changed, options.min_bytes);
  std::map<std::string, Tensor> taken;
  Json list = Json::array();
  for (std::size_t i = 0; i < changed.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (!is_weight(changed, id, options.min_bytes) || changed.is_output(id)) continue;
    Value& value = changed.value(id);
    list.push_back({{"name", value.name},
                    {"dtype", name(value.dtype)},
                    {"shape", value.constant.dims()},
                    {"sha256", hex(sha256(value.constant.byte_span()))}});
    taken[value.name] = std::move(value.constant);
    value.constant = Tensor();
    changed.inputs.push_back(id);
  }
  if (taken.empty())
    throw make_error(ErrorCode::kUsage, "no constant has {} bytes or more", options.min_bytes)
        .hint("--min-bytes sets what counts as a weight");
  changed.metadata[kKey] = dump(list);
  verify(changed);
  graph = std::move(changed);
  return taken;
}

std::vector<StrippedWeight> stripped_weights(const Graph& graph) {
  const auto it = graph.metadata.find(kKey);
  if (it == graph.metadata.end())
    throw make_error(ErrorCode::kUsage, "the model has not been stripped")
        .hint("`pare surgeon strip-weights` makes one that has");
  const std::string what = std::string("metadata ") + kKey;
  const Json list = parse_json(it->second, what);
  if (!list.is_array())
    throw make_error(ErrorCode::kBadFile, "{} is no list", what)
        .hint("`pare surgeon strip-weights` writes it");
  std::vector<StrippedWeight> weights;
  for (const Json& item : list) {
    StrippedWeight weight;
    weight.name = json_string(item, "name", what);
    if (!dtype_from_name(json_string(item, "dtype", what), weight.dtype))
      throw make_error(ErrorCode::kBadFile, "{} names an unknown type", what)
          .at(weight.name)
          .hint("`pare surgeon strip-weights` writes it");
    for (const Json& size : json_array(item, "shape", what)) {
      if (!size.is_number_integer() || size.get<std::int64_t>() < 0)
        throw make_error(ErrorCode::kBadFile, "{} has a shape that is none", what)
            .at(weight.name)
            .hint("`pare surgeon strip-weights` writes it");
      weight.dims.push_back(size.get<std::int64_t>());
    }
    weight.sha256 = json_string(item, "sha256", what);
    weights.push_back(std::move(weight));
  }
  return weights;
}

RestoreReport restore_weights(Graph& graph, const std::map<std::string, Tensor>& source, bool same) {
  RestoreReport report;
  Graph changed = graph;
  std::map<std::string, bool> used;
  for (const StrippedWeight& weight : stripped_weights(graph)) {
    const ValueId id = changed.find_value(weight.name);
    if (id == ValueId::kNone || !changed.is_input(id))
      throw make_error(ErrorCode::kBadFile, "the stripped model has no input '{}'", weight.name)
          .hint("it was changed after it was stripped");
    const auto it = source.find(weight.name);
    if (it == source.end()) {
      std::vector<const char*> names;
      for (const auto& entry : source) names.push_back(entry.first.c_str());
      const std::string nearest = nearest_word(weight.name, names.data(), names.size());
      throw make_error(ErrorCode::kBadFile, "the source has no tensor '{}'", weight.name)
          .hint(nearest.empty() ? "names must be those of the stripped model" : "it has '" + nearest + "'");
    }
    const Tensor& tensor = it->second;
    if (tensor.dtype() != weight.dtype || tensor.dims() != weight.dims)
      throw make_error(ErrorCode::kBadFile, "tensor '{}' is {} {}, the model wants {} {}", weight.name,
                       name(tensor.dtype()), to_string(tensor.dims()), name(weight.dtype),
                       to_string(weight.dims))
          .hint("give the weights of this model");
    const bool equal = hex(sha256(tensor.byte_span())) == weight.sha256;
    if (!equal && same)
      throw make_error(ErrorCode::kBadFile, "tensor '{}' is not the one that was taken out", weight.name)
          .hint("without --same other weights are taken too");
    report.changed += !equal;
    ++report.restored;
    used[weight.name] = true;
    changed.inputs.erase(std::find(changed.inputs.begin(), changed.inputs.end(), id));
    changed.value(id).shape = Shape(tensor.dims());
    changed.value(id).constant = tensor;
  }
  for (const auto& entry : source)
    if (used.count(entry.first) == 0) report.unused.push_back(entry.first);
  changed.metadata.erase(kKey);
  pull_in_constants(changed);
  changed.drop_unused_values();
  infer_shapes(changed);
  verify(changed);
  graph = std::move(changed);
  return report;
}

}  // namespace pare
