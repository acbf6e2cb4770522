#include "graphsurgeon/verbs/convert_precision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/name_pattern.h"
#include "engine/ir/schema.h"
#include "engine/numeric/table.h"
#include "graphsurgeon/onnx/type_support.h"
#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/verbs/precision_rules.h"

namespace pare {
namespace {

std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

struct Excluded {
  NamePattern name;
  bool used = false;
};

std::vector<Excluded> compile(const std::vector<std::string>& texts) {
  std::vector<Excluded> list;
  for (const std::string& text : texts) list.push_back(Excluded{NamePattern(text), false});
  return list;
}

// --- one graph of the model

class Converter {
 public:
  Converter(const ConvertPrecisionOptions& options, const ValueRanges& ranges, int opset)
      : options_(options), ranges_(ranges), opset_(opset), excluded_(compile(options.exclude)) {
    const FormatInfo& format = format_info(options.to);
    limit_ = options.largest > 0 ? options.largest : format.largest / 2;
    blocked_.insert(blocked_by_default().begin(), blocked_by_default().end());
    blocked_.insert(options.blocked.begin(), options.blocked.end());
  }

  // `low_inputs`, `low_outputs`: the type of the graph's own float32 inputs and outputs. Captures come as
  // their values are outside: their dtype is set already.
  void run(Graph& graph, const SubgraphPath& path, bool low_inputs, bool low_outputs) {
    Scope scope{graph, path, {}, {}, {}, {}};
    for (std::size_t i = 0; i < graph.value_count(); ++i) {
      const Value& value = graph.value(static_cast<ValueId>(i));
      scope.was_float.push_back(value.dtype == DType::kF32 && value.kind == ValueKind::kTensor);
      scope.home_low.push_back(false);
    }
    for (const Capture& capture : graph.captures)
      if (captured_low_.count(&graph) != 0 && captured_low_[&graph].count(capture.inner) != 0) {
        scope.was_float[index(capture.inner)] = true;
        scope.home_low[index(capture.inner)] = true;
      }
    for (const ValueId id : graph.inputs)
      if (scope.was_float[index(id)] && low_inputs) {
        scope.home_low[index(id)] = true;
        graph.value(id).dtype = options_.to;
      }
    scope.low.assign(graph.node_capacity(), false);
    scope.why.resize(graph.node_capacity());
    decide(scope);
    undo_small_groups(scope, low_outputs);
    rewrite(scope);
    outputs(scope, low_outputs);
  }

  void need_all_used() const {
    for (const Excluded& e : excluded_)
      if (!e.used)
        throw make_error(ErrorCode::kUsage, "no node {} '{}'", e.name.is_pattern() ? "fits" : "is named",
                         e.name.text())
            .at("--exclude")
            .hint(e.name.is_pattern()
                      ? fmt::format("a pattern fits whole names: did you mean '{}'?", e.name.wider())
                      : "`pare inspect MODEL --layers` lists the nodes");
  }

  ConvertPrecisionReport report;

 private:
  struct Scope {
    Graph& graph;
    const SubgraphPath& path;
    std::vector<bool> was_float, home_low;  // by value; constants have no home
    std::vector<bool> low;                  // by node
    std::vector<std::string> why;           // by node: "" when nothing speaks against the low type
  };

  static bool is_float_use(const Scope& s, const Node& node, std::size_t slot) {
    const ValueId id = node.in[slot];
    return id != ValueId::kNone && s.was_float[index(id)] && !fixed_input(node, slot);
  }
  static bool is_float_result(const Scope& s, const Node& node, std::size_t slot) {
    const ValueId id = node.out[slot];
    return id != ValueId::kNone && s.was_float[index(id)] && !fixed_output(node, slot);
  }
  static bool touches_float(const Scope& s, const Node& node) {
    for (std::size_t i = 0; i < node.in.size(); ++i)
      if (is_float_use(s, node, i)) return true;
    for (std::size_t i = 0; i < node.out.size(); ++i)
      if (is_float_result(s, node, i)) return true;
    return false;
  }

  bool is_excluded(const Node& node) {
    bool found = false;
    for (Excluded& e : excluded_) {
      const bool fits = e.name.fits(node.name);
      e.used = e.used || fits;
      found = found || fits;
    }
    return found;
  }

  // Why the node must stay float32; "" when it need not.
  std::string objection(const Scope& s, const Node& node, int& opset) {
    if (is_excluded(node)) return "excluded by name";
    if (!node.domain.empty()) return "operator of domain " + node.domain;
    if (blocked_.count(node.op) != 0) return "blocked operator";
    if (node.fallback != nullptr) return "function body";
    opset = 0;
    const auto allowed = [&](bool output, std::size_t slot) {
      if (is_control(node)) return true;  // any type
      const int first = first_opset_of_type(node.op, output, static_cast<int>(slot), options_.to, opset_);
      opset = std::max(opset, first);
      return first != 0;
    };
    const auto range = [&](ValueId id) -> std::string {
      const double seen = ranges_.of(s.path, id);
      return seen > limit_ ? fmt::format("value '{}' reaches {:.3g}", s.graph.value(id).name, seen)
                           : std::string();
    };
    for (std::size_t i = 0; i < node.in.size(); ++i) {
      if (!is_float_use(s, node, i) || takes_any(node)) continue;
      if (!allowed(false, i)) return std::string("ONNX has no ") + name(options_.to) + " form";
      if (s.graph.is_constant(node.in[i])) {
        if (!fits(s.graph.value(node.in[i]).constant))
          return "constant '" + s.graph.value(node.in[i]).name + "' is out of range";
      } else if (const std::string too_large = range(node.in[i]); !too_large.empty()) {
        return too_large;
      }
    }
    for (std::size_t i = 0; i < node.out.size(); ++i) {
      if (!is_float_result(s, node, i)) continue;
      if (!allowed(true, i)) return std::string("ONNX has no ") + name(options_.to) + " form";
      if (const std::string too_large = range(node.out[i]); !too_large.empty()) return too_large;
    }
    return {};
  }

  // Every finite element stays finite.
  bool fits(const Tensor& tensor) {
    const auto known = fits_.find(tensor.data());
    if (known != fits_.end()) return known->second;
    const FormatInfo& format = format_info(options_.to);
    const float* x = tensor.as<float>();
    const std::int64_t count = tensor.size();
    // From here on rounding to nearest gives infinity: half a step above the largest number.
    const double beyond = format.largest * (1 + std::ldexp(1.0, -format.mantissa_bits - 2));
    std::int64_t out = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double magnitude = std::fabs(static_cast<double>(x[i]));
      out += magnitude >= beyond && std::isfinite(x[i]);
    }
    report.out_of_range += out;
    return fits_[tensor.data()] = out == 0;
  }

  void decide(Scope& s) {
    for (const NodeId id : s.graph.nodes()) {
      const Node& node = s.graph.node(id);
      if (!touches_float(s, node)) continue;
      if (takes_any(node) && (node.out.empty() || !is_float_result(s, node, 0))) continue;
      int opset = 0;
      s.why[index(id)] = objection(s, node, opset);
      bool low = s.why[index(id)].empty();
      if (low && only_moves(node)) {
        int low_inputs = 0, high_inputs = 0;
        for (std::size_t i = 0; i < node.in.size(); ++i)
          if (is_float_use(s, node, i) && !s.graph.is_constant(node.in[i]))
            ++(s.home_low[index(node.in[i])] ? low_inputs : high_inputs);
        low = low_inputs >= high_inputs;
        if (!low) s.why[index(id)] = "moves float32";
      }
      s.low[index(id)] = low;
      for (std::size_t i = 0; i < node.out.size(); ++i)
        if (is_float_result(s, node, i)) s.home_low[index(node.out[i])] = low;
    }
  }

  // --- groups of nodes that are not worth their Casts

  // Casts that the value costs when homes and nodes are as they are now.
  int casts_of(const Scope& s, ValueId id, const std::vector<bool>& low, bool low_outputs) const {
    if (!s.was_float[index(id)] || s.graph.is_constant(id)) return 0;
    const NodeId producer = s.graph.producer(id);
    const bool home =
        producer == NodeId::kNone || fixed_output(s.graph.node(producer),
                                                  static_cast<std::size_t>(s.graph.value(id).producer_slot))
            ? s.home_low[index(id)]
            : static_cast<bool>(low[index(producer)]);
    bool other = s.graph.is_output(id) && low_outputs != home;
    for (const Use& use : s.graph.users(id)) {
      const Node& user = s.graph.node(use.node);
      const bool captured = user.declared_inputs >= 0 && use.slot >= user.declared_inputs;
      if (captured || takes_any(user)) continue;
      const bool wants = low[index(use.node)] && !fixed_input(user, static_cast<std::size_t>(use.slot));
      other = other || wants != home;
    }
    return other ? 1 : 0;
  }

  void undo_small_groups(Scope& s, bool low_outputs) {
    const std::vector<NodeId> order = s.graph.nodes();
    std::vector<std::size_t> group(s.graph.node_capacity());
    std::iota(group.begin(), group.end(), std::size_t{0});
    const auto root = [&](std::size_t i) {
      while (group[i] != i) i = group[i] = group[group[i]];
      return i;
    };
    for (const NodeId id : order) {
      if (!s.low[index(id)]) continue;
      for (const ValueId in : s.graph.node(id).in) {
        const NodeId producer = in == ValueId::kNone ? NodeId::kNone : s.graph.producer(in);
        if (producer != NodeId::kNone && s.was_float[index(in)] && s.low[index(producer)])
          group[root(index(producer))] = root(index(id));
      }
    }
    std::map<std::size_t, std::vector<NodeId>> members;
    std::set<std::size_t> heavy;
    for (const NodeId id : order) {
      if (!s.low[index(id)]) continue;
      members[root(index(id))].push_back(id);
      if (is_heavy(s.graph.node(id)) || is_control(s.graph.node(id))) heavy.insert(root(index(id)));
    }
    for (const auto& [which, nodes] : members) {
      if (heavy.count(which) != 0) continue;
      std::set<ValueId> values;
      std::vector<bool> without = s.low;
      for (const NodeId id : nodes) {
        without[index(id)] = false;
        for (const ValueId in : s.graph.node(id).in)
          if (in != ValueId::kNone) values.insert(in);
        for (const ValueId out : s.graph.node(id).out)
          if (out != ValueId::kNone) values.insert(out);
      }
      int now = 0, then = 0;
      for (const ValueId id : values) {
        now += casts_of(s, id, s.low, low_outputs);
        then += casts_of(s, id, without, low_outputs);
      }
      if (then >= now) continue;
      for (const NodeId id : nodes) {
        s.low[index(id)] = false;
        s.why[index(id)] = "casts would cost more than it saves";
        for (const ValueId out : s.graph.node(id).out)
          if (out != ValueId::kNone) s.home_low[index(out)] = false;
      }
    }
  }

  // --- rewriting

  ValueId converted_constant(Graph& graph, ValueId id) {
    const auto known = constants_.find({&graph, id});
    if (known != constants_.end()) return known->second;
    const Tensor& old = graph.value(id).constant;
    const FormatInfo& format = format_info(options_.to);
    Tensor& shared = tensors_[old.data()];  // one weight of several subgraphs stays one
    if (!shared.empty() && shared.size() == old.size())
      return constants_[{&graph, id}] = graph.add_constant(graph.value(id).name + "_" + name(options_.to),
                                                           shared.reshaped(old.dims()));
    Tensor tensor = Tensor::allocate(options_.to, old.dims());
    format.encode(old.as<float>(), tensor.mut<void>(), old.size());
    const float* x = old.as<float>();
    for (std::int64_t i = 0; i < old.size(); ++i) {
      const double magnitude = std::fabs(static_cast<double>(x[i]));
      if (magnitude == 0 || !std::isfinite(x[i])) continue;
      if (magnitude <= format.smallest / 2)
        ++report.flushed;
      else if (magnitude < format.smallest_normal)
        ++report.subnormal;
    }
    ++report.constants;
    shared = tensor;
    const ValueId made =
        graph.add_constant(graph.value(id).name + "_" + name(options_.to), std::move(tensor));
    return constants_[{&graph, id}] = made;
  }

  // The value in the other type than its home, made in front of `place`.
  ValueId cast(Graph& graph, ValueId id, bool low, NodeId place) {
    const auto known = casts_.find({&graph, id});
    if (known != casts_.end()) return known->second;
    const DType type = low ? options_.to : DType::kF32;
    Value value;
    value.name = graph.value(id).name + "_" + name(type);
    value.dtype = type;
    value.shape = graph.value(id).shape;
    Node node;
    node.op = "Cast";
    node.attrs["to"] = static_cast<std::int64_t>(type);
    node.in = {id};
    node.out = {graph.add_value(std::move(value))};
    const ValueId result = node.out[0];
    if (place == NodeId::kNone)
      graph.add_node(std::move(node));
    else
      graph.insert_before(place, std::move(node));
    ++report.casts;
    return casts_[{&graph, id}] = result;
  }

  void rewrite(Scope& s) {
    Graph& graph = s.graph;
    for (const NodeId id : graph.nodes()) {
      const Node& node = graph.node(id);
      if (!touches_float(s, node) && !is_control(node)) continue;
      const bool low = s.low[index(id)];
      account(s, id, low);
      for (std::size_t i = 0; i < graph.node(id).out.size(); ++i)
        if (low && is_float_result(s, graph.node(id), i))
          graph.value(graph.node(id).out[i]).dtype = options_.to;
      if (low && node.is("Cast")) graph.node(id).attrs["to"] = static_cast<std::int64_t>(options_.to);
      if (low && node.is("ConstantOfShape")) convert_fill(graph.node(id));
      const std::size_t declared =
          node.declared_inputs < 0 ? node.in.size() : static_cast<std::size_t>(node.declared_inputs);
      for (std::size_t i = 0; i < declared; ++i) {
        const ValueId in = graph.node(id).in[i];
        if (in == ValueId::kNone || !s.was_float[index(in)] || takes_any(graph.node(id))) continue;
        const bool wants = low && !fixed_input(graph.node(id), i);
        if (graph.is_constant(in)) {
          if (wants) graph.set_input(id, static_cast<int>(i), converted_constant(graph, in));
        } else if (wants != s.home_low[index(in)]) {
          graph.set_input(id, static_cast<int>(i), cast(graph, in, wants, id));
        }
      }
      if (is_control(graph.node(id))) descend(s, id, low);
    }
  }

  void convert_fill(Node& node) const {
    float value = 0;
    if (const Tensor* fill = node.attr_tensor("value");
        fill != nullptr && fill->dtype() == DType::kF32 && fill->size() == 1)
      value = *fill->as<float>();
    Tensor tensor = Tensor::allocate(options_.to, {1});
    format_info(options_.to).encode(&value, tensor.mut<void>(), 1);
    node.attrs["value"] = std::move(tensor);
  }

  void descend(Scope& s, NodeId id, bool low) {
    for (const std::string& key : subgraph_attributes(s.graph.node(id))) {
      auto& held = std::get<std::shared_ptr<Graph>>(s.graph.node(id).attrs.find(key)->second);
      if (held.use_count() > 1) held = std::make_shared<Graph>(*held);
      Graph& body = *held;
      for (const Capture& capture : body.captures) {
        const ValueId outer = s.graph.node(id).in.at(static_cast<std::size_t>(capture.input));
        if (outer == ValueId::kNone) continue;
        body.value(capture.inner).dtype = s.graph.value(outer).dtype;
        if (s.was_float[index(outer)] && s.home_low[index(outer)]) captured_low_[&body].insert(capture.inner);
      }
      SubgraphPath path = s.path;
      path.push_back({id, key});
      run(body, path, low, low);
    }
  }

  void outputs(Scope& s, bool low_outputs) {
    Graph& graph = s.graph;
    std::vector<ValueId> results = graph.outputs;
    std::map<ValueId, ValueId> replaced;  // a value may be an output twice
    for (ValueId& id : results) {
      if (!s.was_float[index(id)]) continue;
      if (const auto again = replaced.find(id); again != replaced.end()) {
        id = again->second;
        continue;
      }
      if (graph.is_constant(id)) {
        if (low_outputs) id = converted_constant(graph, id);
        continue;
      }
      if (s.home_low[index(id)] == low_outputs) continue;
      const NodeId producer = graph.producer(id);
      if (producer == NodeId::kNone) {
        id = cast(graph, id, low_outputs, NodeId::kNone);
        continue;
      }
      // The output keeps its name; what the node gives is another value.
      const auto known = casts_.find({&graph, id});
      const std::string out_name = graph.value(id).name;
      const ValueId result =
          known != casts_.end() ? known->second : cast(graph, id, low_outputs, NodeId::kNone);
      graph.rename(id, out_name + "_" + name(low_outputs ? DType::kF32 : options_.to));
      graph.rename(result, out_name);
      graph.value(result).origin = graph.value(id).origin;
      replaced[id] = result;
      id = result;
    }
    graph.outputs = std::move(results);
  }

  void account(const Scope& s, NodeId id, bool low) {
    const Node& node = s.graph.node(id);
    if (low) {
      ++report.converted;
      int opset = 0;
      for (std::size_t i = 0; i < node.in.size() && !is_control(node) && !takes_any(node); ++i)
        if (is_float_use(s, node, i))
          opset =
              std::max(opset, first_opset_of_type(node.op, false, static_cast<int>(i), options_.to, opset_));
      for (std::size_t i = 0; i < node.out.size() && !is_control(node); ++i)
        if (is_float_result(s, node, i))
          opset =
              std::max(opset, first_opset_of_type(node.op, true, static_cast<int>(i), options_.to, opset_));
      if (opset > opset_) report.min_opset = std::max(report.min_opset, opset);
      for (std::size_t i = 0; i < node.out.size(); ++i)
        if (is_float_result(s, node, i) && ranges_.of(s.path, node.out[i]) < 0) ++report.unseen;
    } else if (!s.why[index(id)].empty()) {
      std::string where;
      for (const SubgraphStep& step : s.path) where += (where.empty() ? "" : "/") + step.attribute;
      report.kept.push_back({node.name, node.op, where, s.why[index(id)]});
    }
  }

  const ConvertPrecisionOptions& options_;
  const ValueRanges& ranges_;
  int opset_;
  std::vector<Excluded> excluded_;
  double limit_ = 0;
  std::set<std::string> blocked_;
  std::map<const void*, bool> fits_;  // by the constant's data
  std::map<const void*, Tensor> tensors_;
  std::map<std::pair<const Graph*, ValueId>, ValueId> constants_, casts_;
  std::map<const Graph*, std::set<ValueId>> captured_low_;
};

std::int64_t float_weight_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  walk_graphs(graph, [&](const SubgraphPath&, const Graph& scope) {
    for (std::size_t i = 0; i < scope.value_count(); ++i) {
      const Value& value = scope.value(static_cast<ValueId>(i));
      if (value.is_constant() && is_float(value.dtype) && !scope.users(static_cast<ValueId>(i)).empty())
        bytes += value.constant.bytes();
    }
  });
  return bytes;
}

}  // namespace

ConvertPrecisionReport convert_precision(Graph& graph, const ConvertPrecisionOptions& options,
                                         const ValueRanges& ranges) {
  if (options.to != DType::kF16 && options.to != DType::kBF16)
    throw make_error(ErrorCode::kUsage, "{} is no target of convert-precision", name(options.to))
        .hint("use float16 or bfloat16");
  for (const std::string& op : options.blocked)
    if (find_schema("", op) == nullptr) {
      std::vector<std::string> texts;
      for (const OpSchema* schema : all_schemas()) texts.emplace_back(schema->op);
      std::vector<const char*> names;
      for (const std::string& text : texts) names.push_back(text.c_str());
      const std::string nearest = nearest_word(op, names.data(), names.size());
      throw make_error(ErrorCode::kUsage, "there is no operator '{}'", op)
          .at("--block")
          .hint(nearest.empty() ? "`pare ops` lists the operators" : "did you mean '" + nearest + "'?");
    }
  Graph changed = graph;
  pull_in_constants(changed);
  infer_shapes(changed);
  Converter converter(options, ranges, changed.opset == 0 ? 21 : changed.opset);
  converter.report.weight_bytes_before = float_weight_bytes(changed);
  converter.run(changed, {}, !options.keep_io, !options.keep_io);
  converter.need_all_used();
  changed.drop_unused_values();
  infer_shapes(changed);
  verify(changed);
  converter.report.weight_bytes_after = float_weight_bytes(changed);
  graph = std::move(changed);
  return std::move(converter.report);
}

std::vector<double> sqnr_of_outputs(const std::vector<Tensor>& reference,
                                    const std::vector<Tensor>& outputs) {
  std::vector<double> all;
  for (std::size_t i = 0; i < reference.size() && i < outputs.size(); ++i) {
    std::vector<double> x, y;
    if (!to_doubles(reference[i], x) || !to_doubles(outputs[i], y) || x.size() != y.size()) continue;
    double signal = 0, noise = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (x[k] == y[k] || (std::isnan(x[k]) && std::isnan(y[k]))) {
        if (std::isfinite(x[k])) signal += x[k] * x[k];
        continue;
      }
      signal += x[k] * x[k];
      noise += (x[k] - y[k]) * (x[k] - y[k]);
    }
    all.push_back(!std::isfinite(noise) || !std::isfinite(signal) ? std::numeric_limits<double>::quiet_NaN()
                  : noise == 0                                    ? std::numeric_limits<double>::infinity()
                                                                  : 10 * std::log10(signal / noise));
  }
  return all;
}

}  // namespace pare
