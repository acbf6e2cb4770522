#include "graphsurgeon/verbs/model_diff.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <variant>

#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "graphsurgeon/passes/edit.h"
#include "graphsurgeon/simplify.h"
#include "graphsurgeon/verbs/scopes.h"

namespace pare {
namespace {

std::string describe(const Tensor& tensor) {
  std::string text = fmt::format("{}{}", name(tensor.dtype()), to_string(tensor.dims()));
  if (tensor.dtype() != DType::kString && tensor.size() == 1) {
    std::vector<double> values;
    if (to_doubles(tensor, values)) return text + fmt::format(" {:.9g}", values[0]);
  }
  const bool whole =
      (is_integer(tensor.dtype()) && bits(tensor.dtype()) >= 8) || tensor.dtype() == DType::kBool;
  if (whole && tensor.size() <= 8) {
    for (const std::int64_t v : tensor.to_ints()) text += fmt::format(" {}", v);
    return text;
  }
  if (tensor.dtype() == DType::kString) return text;
  return text + " #" + hex(sha256(tensor.byte_span())).substr(0, 12);
}

struct AttributeText {
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(float v) const { return fmt::format("{:.9g}", v); }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const Tensor& v) const { return describe(v); }
  std::string operator()(const std::shared_ptr<Graph>&) const { return "a subgraph"; }
  template <typename T>
  std::string operator()(const std::vector<T>& v) const {
    std::string text = "[";
    for (const T& x : v) text += (text.size() > 1 ? ", " : "") + fmt::format("{}", x);
    return text + "]";
  }
};

bool equal_attributes(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (const auto* t = std::get_if<Tensor>(&a)) return equal_bytes(*t, std::get<Tensor>(b));
  if (std::holds_alternative<std::shared_ptr<Graph>>(a)) return true;  // walked apart
  return std::visit(AttributeText{}, a) == std::visit(AttributeText{}, b);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  std::vector<double> x, y;
  if (a.dtype() != b.dtype() || a.dims() != b.dims() || !to_doubles(a, x) || !to_doubles(b, y)) return -1;
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(x[i] == y[i])) largest = std::max(largest, std::fabs(x[i] - y[i]));
  return largest;
}

std::string typed(const Value& value) {
  return fmt::format("{} {}", name(value.dtype), to_string(value.shape));
}

class Comparison {
 public:
  Comparison(const DiffOptions& options, DiffReport& report) : options_(options), report_(report) {}

  void graphs(const Graph& a, const Graph& b, const std::string& path) {
    Pairing p;
    values("input", a, a.inputs, b, b.inputs, path, p);
    values("output", a, a.outputs, b, b.outputs, path, p);
    options_.ignore_names ? by_structure(a, b, path, p) : by_name(a, b, path);
  }

 private:
  struct Pairing {
    std::map<ValueId, ValueId> value;  // of a to b
    std::map<NodeId, NodeId> node;
  };

  void add(const char* kind, const std::string& where, std::string first, std::string second,
           double max_abs = -1) {
    report_.differences.push_back({kind, where, std::move(first), std::move(second), max_abs});
  }

  static std::string at(const std::string& path, const std::string& what) {
    return path.empty() ? what : path + "/" + what;
  }
  static std::string label(const Graph& graph, const Node& node) {
    if (!node.name.empty()) return node.name;
    return node.out.empty() || node.out[0] == ValueId::kNone ? node.op : graph.value(node.out[0]).name;
  }
  static std::string op_of(const Node& node) {
    return node.domain.empty() ? node.op : node.domain + "." + node.op;
  }

  void values(const char* kind, const Graph& a, const std::vector<ValueId>& in_a, const Graph& b,
              const std::vector<ValueId>& in_b, const std::string& path, Pairing& p) {
    for (std::size_t i = 0; i < std::max(in_a.size(), in_b.size()); ++i) {
      const Value* x = i < in_a.size() ? &a.value(in_a[i]) : nullptr;
      const Value* y = i < in_b.size() ? &b.value(in_b[i]) : nullptr;
      if (x != nullptr && y != nullptr) p.value[in_a[i]] = in_b[i];
      const auto text = [&](const Value* v) {
        if (v == nullptr) return std::string();
        const std::string type = path.empty() ? typed(*v) : name(v->dtype);
        return options_.ignore_names ? type : v->name + " " + type;
      };
      if (x == nullptr || y == nullptr ||
          (path.empty() || !options_.ignore_names ? text(x) != text(y) : false))
        add(kind, at(path, fmt::format("{} {}", kind, i)), text(x), text(y));
    }
  }

  // --- names count: nodes by the name of what they give

  static std::map<std::string, NodeId> by_output(const Graph& graph) {
    std::map<std::string, NodeId> nodes;
    for (const NodeId id : graph.nodes())
      for (const ValueId out : graph.node(id).out)
        if (out != ValueId::kNone) {
          nodes.emplace(graph.value(out).name, id);
          break;
        }
    return nodes;
  }

  void by_name(const Graph& a, const Graph& b, const std::string& path) {
    const std::map<std::string, NodeId> in_a = by_output(a), in_b = by_output(b);
    const auto name_of = [](const Graph& graph, NodeId id) {
      for (const ValueId out : graph.node(id).out)
        if (out != ValueId::kNone) return graph.value(out).name;
      return std::string();
    };
    for (const NodeId id : a.nodes()) {
      const auto other = in_b.find(name_of(a, id));
      if (other == in_b.end())
        add("node", at(path, label(a, a.node(id))), op_of(a.node(id)), "");
      else
        nodes(a, a.node(id), b, b.node(other->second), path, nullptr);
    }
    for (const NodeId id : b.nodes())
      if (in_a.find(name_of(b, id)) == in_a.end())
        add("node", at(path, label(b, b.node(id))), "", op_of(b.node(id)));
  }

  // --- names do not count: what computes the outputs is paired from them backwards

  void by_structure(const Graph& a, const Graph& b, const std::string& path, Pairing& p) {
    for (std::size_t i = 0; i < std::min(a.captures.size(), b.captures.size()); ++i)
      p.value[a.captures[i].inner] = b.captures[i].inner;
    std::vector<std::pair<ValueId, ValueId>> open;
    for (std::size_t i = 0; i < std::min(a.outputs.size(), b.outputs.size()); ++i)
      open.emplace_back(a.outputs[i], b.outputs[i]);
    std::reverse(open.begin(), open.end());
    std::set<NodeId> seen_b;
    while (!open.empty()) {
      const auto [x, y] = open.back();
      open.pop_back();
      if (x == ValueId::kNone || y == ValueId::kNone) continue;
      const NodeId n = a.producer(x), m = b.producer(y);
      if (n == NodeId::kNone || m == NodeId::kNone || p.node.count(n) != 0) continue;
      if (op_of(a.node(n)) != op_of(b.node(m))) {
        add("node", at(path, label(a, a.node(n))), op_of(a.node(n)), op_of(b.node(m)));
        p.node[n] = m;
        seen_b.insert(m);
        continue;
      }
      p.node[n] = m;
      seen_b.insert(m);
      for (std::size_t i = 0; i < std::min(a.node(n).out.size(), b.node(m).out.size()); ++i)
        p.value[a.node(n).out[i]] = b.node(m).out[i];
      const auto& in_a = a.node(n).in;
      const auto& in_b = b.node(m).in;
      for (std::size_t i = std::min(in_a.size(), in_b.size()); i-- > 0;) open.emplace_back(in_a[i], in_b[i]);
    }
    for (const NodeId id : a.nodes()) {
      const auto other = p.node.find(id);
      if (other == p.node.end())
        add("node", at(path, label(a, a.node(id))), op_of(a.node(id)), "");
      else if (op_of(a.node(id)) == op_of(b.node(other->second)))
        nodes(a, a.node(id), b, b.node(other->second), path, &p);
    }
    for (const NodeId id : b.nodes())
      if (seen_b.count(id) == 0) add("node", at(path, label(b, b.node(id))), "", op_of(b.node(id)));
  }

  // --- two nodes

  void nodes(const Graph& a, const Node& x, const Graph& b, const Node& y, const std::string& path,
             const Pairing* p) {
    const std::string where = at(path, label(a, x));
    if (op_of(x) != op_of(y)) return add("node", where, op_of(x), op_of(y));
    std::set<std::string> keys;
    for (const auto& entry : x.attrs) keys.insert(entry.first);
    for (const auto& entry : y.attrs) keys.insert(entry.first);
    for (const std::string& key : keys) {
      const auto i = x.attrs.find(key), j = y.attrs.find(key);
      const bool in_x = i != x.attrs.end(), in_y = j != y.attrs.end();
      if (in_x && in_y && equal_attributes(i->second, j->second)) {
        if (const auto* inner = std::get_if<std::shared_ptr<Graph>>(&i->second))
          graphs(**inner, *std::get<std::shared_ptr<Graph>>(j->second), at(path, scope_name(x, key)));
        continue;
      }
      add("attribute", where + "." + key, in_x ? std::visit(AttributeText{}, i->second) : "",
          in_y ? std::visit(AttributeText{}, j->second) : "");
    }
    for (std::size_t i = 0; i < std::max(x.in.size(), y.in.size()); ++i)
      inputs(a, input_of(x, i), b, input_of(y, i), fmt::format("{} input {}", where, i), p);
  }

  void inputs(const Graph& a, ValueId x, const Graph& b, ValueId y, const std::string& where,
              const Pairing* p) {
    if (x == ValueId::kNone && y == ValueId::kNone) return;
    const auto text = [](const Graph& graph, ValueId id) {
      if (id == ValueId::kNone) return std::string();
      return graph.is_constant(id) ? describe(graph.value(id).constant) : graph.value(id).name;
    };
    if (a.is_constant(x) && b.is_constant(y)) {
      const Tensor& s = a.value(x).constant;
      const Tensor& t = b.value(y).constant;
      const bool same = options_.weights ? equal_bytes(s, t) : s.dtype() == t.dtype() && s.dims() == t.dims();
      ++(same ? report_.weights_equal : report_.weights_different);
      if (!same)
        add("weight", where + " '" + a.value(x).name + "'", describe(s), describe(t),
            largest_difference(s, t));
      return;
    }
    bool same = false;
    if (x != ValueId::kNone && y != ValueId::kNone && !a.is_constant(x) && !b.is_constant(y)) {
      if (p == nullptr) {
        same = a.value(x).name == b.value(y).name;
      } else {
        const auto it = p->value.find(x);
        same = it != p->value.end() && it->second == y;
      }
    }
    if (!same) add("edge", where, text(a, x), text(b, y));
  }

  const DiffOptions& options_;
  DiffReport& report_;
};

}  // namespace

DiffReport diff_graphs(const Graph& first, const Graph& second, const DiffOptions& options) {
  DiffReport report;
  report.nodes_first = count_nodes(first);
  report.nodes_second = count_nodes(second);
  Comparison(options, report).graphs(first, second, "");
  return report;
}

}  // namespace pare
