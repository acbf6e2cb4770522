#include "engine/build/graph_json.h"

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"

namespace pare {
namespace {

constexpr int kMostDepth = 8;  // graphs inside of graphs

class Writer {
 public:
  explicit Writer(const KeepTensor& keep) : keep_(keep) {}

  Json graph(const Graph& g) const {
    std::vector<int> number(g.value_count(), -1);
    Json values = Json::array(), nodes = Json::array();
    const auto used = [&](ValueId id) {
      return g.value(id).producer != NodeId::kNone || !g.users(id).empty() || g.is_output(id) ||
             g.is_input(id);
    };
    std::vector<bool> captured(g.value_count(), false);
    for (const Capture& c : g.captures) captured[static_cast<std::size_t>(c.inner)] = true;
    for (std::size_t i = 0; i < g.value_count(); ++i) {
      const auto id = static_cast<ValueId>(i);
      if (!used(id) && !captured[i]) continue;
      number[i] = static_cast<int>(values.size());
      values.push_back(value(g.value(id)));
    }
    const auto ids = [&](const std::vector<ValueId>& list) {
      Json out = Json::array();
      for (const ValueId id : list)
        out.push_back(id == ValueId::kNone ? -1 : number[static_cast<std::size_t>(id)]);
      return out;
    };
    for (const NodeId id : g.nodes()) {
      const Node& n = g.node(id);
      Json json = {{"op", n.op}, {"in", ids(n.in)}, {"out", ids(n.out)}};
      if (!n.name.empty()) json["name"] = n.name;
      if (!n.domain.empty()) json["domain"] = n.domain;
      if (n.declared_inputs >= 0) json["declared"] = n.declared_inputs;
      if (!n.attrs.empty()) json["attrs"] = Json::object();
      for (const auto& [key, v] : n.attrs) json["attrs"][key] = attribute(v);
      if (n.fallback != nullptr) json["fallback"] = graph(*n.fallback);
      nodes.push_back(std::move(json));
    }
    Json json = {{"name", g.name},
                 {"opset", g.opset},
                 {"values", std::move(values)},
                 {"nodes", std::move(nodes)},
                 {"inputs", ids(g.inputs)},
                 {"outputs", ids(g.outputs)}};
    if (!g.captures.empty()) json["captures"] = Json::array();
    for (const Capture& c : g.captures)
      json["captures"].push_back(Json::array({c.input, number[static_cast<std::size_t>(c.inner)]}));
    return json;
  }

 private:
  Json tensor(const Tensor& t) const {
    Json json = {{"type", name(t.dtype())}, {"dims", t.dims()}};
    if (t.dtype() != DType::kString) {
      json["data"] = keep_(t);
      return json;
    }
    json["text"] = Json::array();
    for (std::int64_t i = 0; i < t.size(); ++i) json["text"].push_back(t.as<std::string>()[i]);
    return json;
  }
  Json value(const Value& v) const {
    Json json = {{"name", v.name}, {"type", name(v.dtype)}};
    if (!v.origin.empty()) json["origin"] = v.origin;
    if (v.shape.ranked) json["shape"] = Json::array();
    for (const Dim& d : v.shape.dims) {
      if (d.known())
        json["shape"].push_back(d.value);
      else
        json["shape"].push_back(d.symbol);
    }
    if (v.layout != Layout::kPlain) json["layout"] = static_cast<int>(v.layout);
    if (v.kind != ValueKind::kTensor) json["kind"] = static_cast<int>(v.kind);
    if (v.is_constant()) json["constant"] = tensor(v.constant);
    return json;
  }
  Json attribute(const Attribute& a) const {
    if (const auto* i = std::get_if<std::int64_t>(&a)) return {{"i", *i}};
    if (const auto* f = std::get_if<float>(&a)) return {{"f", json_number(static_cast<double>(*f))}};
    if (const auto* s = std::get_if<std::string>(&a)) return {{"s", *s}};
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(&a)) return {{"ints", *v}};
    if (const auto* v = std::get_if<std::vector<std::string>>(&a)) return {{"strings", *v}};
    if (const auto* t = std::get_if<Tensor>(&a)) return {{"t", tensor(*t)}};
    if (const auto* v = std::get_if<std::vector<float>>(&a)) {
      Json list = Json::array();
      for (const float f : *v) list.push_back(json_number(static_cast<double>(f)));
      return {{"floats", std::move(list)}};
    }
    return {{"g", graph(*std::get<std::shared_ptr<Graph>>(a))}};
  }

  const KeepTensor& keep_;
};

class Reader {
 public:
  Reader(const FindTensor& find, const std::string& what) : find_(find), what_(what) {}

  Graph graph(const Json& json, int depth) const {
    if (!json.is_object() || depth > kMostDepth) bad("graph");
    Graph g;
    g.name = json_string(json, "name", what_);
    g.opset = static_cast<int>(small(json_int(json, "opset", what_)));
    for (const Json& v : json_array(json, "values", what_)) {
      Value made = value(v);
      const std::string wanted = made.name;
      const ValueId id = g.add_value(std::move(made));
      if (g.value(id).name != wanted) bad("name of its own for each value");
    }
    const auto ids = [&](const Json& list, bool optional) {
      std::vector<ValueId> out;
      if (!list.is_array()) bad("list of values");
      for (const Json& v : list) {
        const std::int64_t i = integer(v);
        if (i < (optional ? -1 : 0) || i >= static_cast<std::int64_t>(g.value_count())) bad("value");
        out.push_back(static_cast<ValueId>(i));
      }
      return out;
    };
    g.inputs = ids(json_array(json, "inputs", what_), false);
    g.outputs = ids(json_array(json, "outputs", what_), false);
    std::vector<bool> given(g.value_count(), false);
    for (const ValueId id : g.inputs) {
      if (given[static_cast<std::size_t>(id)] || g.is_constant(id)) bad("input of its own");
      given[static_cast<std::size_t>(id)] = true;
    }
    if (json.contains("captures"))
      for (const Json& c : json_array(json, "captures", what_)) {
        if (!c.is_array() || c.size() != 2) bad("capture");
        const Capture capture{static_cast<int>(small(integer(c[0]))), ids(Json::array({c[1]}), false)[0]};
        if (given[static_cast<std::size_t>(capture.inner)] || g.is_constant(capture.inner)) bad("capture");
        given[static_cast<std::size_t>(capture.inner)] = true;
        g.captures.push_back(capture);
      }
    for (const Json& n : json_array(json, "nodes", what_)) {
      Node made = node(n, depth);
      made.in = ids(json_array(n, "in", what_), true);
      made.out = ids(json_array(n, "out", what_), true);
      if (made.declared_inputs > static_cast<int>(made.in.size())) bad("number of inputs");
      for (const ValueId id : made.out) {
        if (id == ValueId::kNone) continue;
        if (given[static_cast<std::size_t>(id)] || g.is_constant(id)) bad("value that one node computes");
        given[static_cast<std::size_t>(id)] = true;
      }
      g.add_node(std::move(made));
    }
    return g;
  }

  [[noreturn]] void bad(const char* wanted) const {
    throw make_error(ErrorCode::kBadFile, "the engine's graph has no {} where one must be", wanted).at(what_);
  }

 private:
  std::int64_t integer(const Json& v) const {
    if (!v.is_number_integer()) bad("number");
    return v.get<std::int64_t>();
  }
  std::int64_t small(std::int64_t v) const {
    if (v < -1 || v > 0x7FFFFFF) bad("small number");
    return v;
  }
  DType type(const Json& json) const {
    DType t = DType::kUndefined;
    const std::string text = json_string(json, "type", what_);
    if (text != name(DType::kUndefined) && !dtype_from_name(text, t)) bad("type");
    return t;
  }
  Tensor tensor(const Json& json) const {
    const DType t = type(json);
    Dims dims;
    for (const Json& d : json_array(json, "dims", what_)) {
      dims.push_back(integer(d));
      if (dims.back() < 0) bad("size");
    }
    if (dims.size() > limits::kMaxRank || t == DType::kUndefined) bad("tensor");
    if (t != DType::kString) return find_(json_string(json, "data", what_), t, dims);
    const Json& text = json_array(json, "text", what_);
    if (element_count(dims) != static_cast<std::int64_t>(text.size())) bad("text for each element");
    Tensor made = Tensor::allocate(t, dims);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!text[i].is_string()) bad("text");
      made.mut<std::string>()[i] = text[i].get<std::string>();
    }
    return made;
  }
  Value value(const Json& json) const {
    Value v;
    v.name = json_string(json, "name", what_);
    v.dtype = type(json);
    if (json.contains("origin")) v.origin = json_string(json, "origin", what_);
    if (json.contains("shape")) {
      v.shape.ranked = true;
      for (const Json& d : json_array(json, "shape", what_)) {
        if (d.is_string()) {
          v.shape.dims.push_back(Dim::named(d.get<std::string>()));
          continue;
        }
        const std::int64_t size = integer(d);
        if (size < 0) bad("size");
        v.shape.dims.push_back(Dim::of(size));
      }
      if (v.shape.dims.size() > limits::kMaxRank) bad("shape");
    }
    const auto choice = [&](const char* key, std::int64_t most) {
      if (!json.contains(key)) return std::int64_t{0};
      const std::int64_t i = json_int(json, key, what_);
      if (i < 0 || i > most) bad(key);
      return i;
    };
    v.layout = static_cast<Layout>(choice("layout", static_cast<std::int64_t>(Layout::kChannelsLast)));
    v.kind = static_cast<ValueKind>(choice("kind", static_cast<std::int64_t>(ValueKind::kOptionalSequence)));
    if (json.contains("constant")) {
      v.constant = tensor(json_object(json, "constant", what_));
      if (v.constant.dtype() != v.dtype || !v.shape.fits(v.constant.dims())) bad("constant that fits");
    }
    return v;
  }
  Node node(const Json& json, int depth) const {
    if (!json.is_object()) bad("node");
    Node n;
    n.op = json_string(json, "op", what_);
    if (json.contains("name")) n.name = json_string(json, "name", what_);
    if (json.contains("domain")) n.domain = json_string(json, "domain", what_);
    if (json.contains("declared"))
      n.declared_inputs = static_cast<int>(small(json_int(json, "declared", what_)));
    if (json.contains("attrs"))
      for (const auto& [key, v] : json_object(json, "attrs", what_).items())
        n.attrs[key] = attribute(v, depth);
    if (json.contains("fallback")) {
      auto body = std::make_shared<Graph>(graph(json_object(json, "fallback", what_), depth + 1));
      verify(*body);
      n.fallback = std::move(body);
    }
    return n;
  }
  float real(const Json& v) const {
    const Json object = {{"v", v}};
    return static_cast<float>(json_double(object, "v", what_));
  }
  Attribute attribute(const Json& json, int depth) const {
    if (!json.is_object() || json.size() != 1) bad("attribute");
    const std::string key = json.begin().key();
    const Json& v = json.front();
    if (key == "i") return integer(v);
    if (key == "f") return real(v);
    if (key == "s") return json_string(json, "s", what_);
    if (key == "t") return tensor(json_object(json, "t", what_));
    if (key == "g") return std::make_shared<Graph>(graph(json_object(json, "g", what_), depth + 1));
    if (!v.is_array()) bad("attribute");
    if (key == "ints") {
      std::vector<std::int64_t> list;
      for (const Json& x : v) list.push_back(integer(x));
      return list;
    }
    if (key == "floats") {
      std::vector<float> list;
      for (const Json& x : v) list.push_back(real(x));
      return list;
    }
    if (key != "strings") bad("attribute");
    std::vector<std::string> list;
    for (const Json& x : v) {
      if (!x.is_string()) bad("text");
      list.push_back(x.get<std::string>());
    }
    return list;
  }

  const FindTensor& find_;
  const std::string& what_;
};

}  // namespace

Json graph_to_json(const Graph& graph, const KeepTensor& keep) { return Writer(keep).graph(graph); }

Graph graph_from_json(const Json& json, const FindTensor& find, const std::string& what) {
  Graph graph = Reader(find, what).graph(json, 0);
  with_context("the graph of '" + what + "'", [&] { verify(graph); });
  return graph;
}

}  // namespace pare
