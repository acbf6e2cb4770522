#include "engine/build/plan/plan_json.h"

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace pare {
namespace {

constexpr const char* kKinds[] = {"conv", "gemm", "attention", "pointwise", "rows", "pool"};
constexpr const char* kRoles[] = {"input", "output", "weight", "activation"};

Json view_json(const PlanView& v) {
  if (!v.present()) return nullptr;
  return {{"t", v.tensor}, {"d", v.dims}, {"s", v.strides}, {"o", v.offset}};
}

Json step_json(const ProgramStep& s) {
  Json json = {{"op", s.op}};
  if (!s.args.empty()) json["args"] = s.args;
  if (s.n != 0) json["n"] = s.n;
  if (s.x != 0) json["x"] = json_number(s.x);
  if (s.y != 0) json["y"] = json_number(s.y);
  if (s.z != 0) json["z"] = json_number(s.z);
  return json;
}

Json conv_json(const ConvGeometry& g) {
  return Json::array(
      {g.n, g.h, g.w, g.c, g.oh, g.ow, g.m, g.kh, g.kw, g.group, g.sh, g.sw, g.dh, g.dw, g.top, g.left});
}

Json layer_json(const PlanLayer& l) {
  Json json = {{"kind", name(l.kind)}, {"name", l.name}, {"nodes", l.nodes}};
  json["in"] = Json::array();
  json["out"] = Json::array();
  for (const PlanView& v : l.in) json["in"].push_back(view_json(v));
  for (const PlanView& v : l.out) json["out"].push_back(view_json(v));
  if (l.conv.n != 0) json["conv"] = conv_json(l.conv);
  if (has_shortcut(l))
    json["shortcut"] = {{"conv", conv_json(l.shortcut.conv)},
                        {"alpha", json_number(static_cast<double>(l.shortcut.alpha))},
                        {"y_scale", json_number(static_cast<double>(l.shortcut.y_scale))},
                        {"y_zero", json_number(static_cast<double>(l.shortcut.y_zero))},
                        {"type", name(l.shortcut.type)}};
  const Epilogue& e = l.epilogue;
  json["epilogue"] =
      Json::array({json_number(static_cast<double>(e.alpha)), json_number(static_cast<double>(e.r_scale)),
                   json_number(static_cast<double>(e.y_scale)), static_cast<int>(e.act.kind),
                   json_number(static_cast<double>(e.act.lo)), json_number(static_cast<double>(e.act.hi)),
                   json_number(static_cast<double>(e.act.alpha)),
                   json_number(static_cast<double>(e.act.beta)), json_number(static_cast<double>(e.y_zero))});
  if (!l.program.empty()) {
    Json leaves = Json::array(), steps = Json::array();
    for (const ProgramLeaf& f : l.program.leaves)
      leaves.push_back(
          Json::array({f.input, f.range_axis, f.lo, f.hi, f.index, f.index_stride, f.index_rows}));
    for (const ProgramStep& s : l.program.steps) steps.push_back(step_json(s));
    json["program"] = {
        {"dims", l.program.dims}, {"leaves", leaves}, {"steps", steps}, {"results", l.program.results}};
  }
  if (!l.op.empty()) json["op"] = l.op;
  if (l.epsilon != 0) json["epsilon"] = json_number(l.epsilon);
  if (l.r_epsilon != 0) json["r_epsilon"] = json_number(l.r_epsilon);
  if (copies_codes(l)) {
    json["copy_scale"] = json_number(l.copy_scale);
    json["copy_zero"] = json_number(l.copy_zero);
  }
  if (l.nan_zero) json["nan_zero"] = true;
  if (!l.post.empty()) {
    json["post"] = Json::array();
    for (const ProgramStep& s : l.post) json["post"].push_back(step_json(s));
  }
  json["requested"] = l.requested;
  json["realized"] = l.realized;
  json["why"] = l.why;
  json["tactic"] = l.tactic;
  json["us"] = json_number(l.microseconds);
  json["workspace"] = l.workspace;
  json["kernels"] = l.kernels;
  return json;
}

// Reading: one object with its name for errors.
class Reader {
 public:
  Reader(const Json& json, const std::string& what) : json_(json), what_(what) {}
  bool has(const char* key) const { return json_.contains(key); }
  std::int64_t integer(const char* key) const { return json_int(json_, key, what_); }
  int small(const char* key) const { return to_small(integer(key)); }
  std::string text(const char* key) const { return json_string(json_, key, what_); }
  double real(const char* key) const { return json_double(json_, key, what_); }
  const Json& array(const char* key) const { return json_array(json_, key, what_); }
  Dims ints(const char* key) const { return ints(array(key)); }
  Dims ints(const Json& list) const {
    if (!list.is_array() || list.size() > 65536) bad("a list of numbers");
    Dims values;
    for (const Json& v : list) {
      if (!v.is_number_integer()) bad("a list of numbers");
      values.push_back(v.get<std::int64_t>());
    }
    return values;
  }
  std::vector<int> smalls(const char* key) const {
    std::vector<int> values;
    for (const std::int64_t v : ints(key)) values.push_back(to_small(v));
    return values;
  }
  int to_small(std::int64_t v) const {
    if (v < -1 || v > 0x7FFFFFF) bad("a small number");
    return static_cast<int>(v);
  }
  [[noreturn]] void bad(const char* wanted) const {
    throw make_error(ErrorCode::kBadFile, "the engine's plan has no {} where one must be", wanted).at(what_);
  }
  double number(const Json& v) const {
    if (v.is_number()) return v.get<double>();
    if (v.is_string()) {
      const Json object = {{"v", v}};
      return json_double(object, "v", what_);
    }
    bad("number");
  }
  template <std::size_t N>
  int choice(const char* key, const char* const (&words)[N]) const {
    const std::string word = text(key);
    for (std::size_t i = 0; i < N; ++i)
      if (word == words[i]) return static_cast<int>(i);
    bad(key);
  }
  const std::string& what() const { return what_; }

 private:
  const Json& json_;
  const std::string& what_;
};

PlanView read_view(const Json& json, const std::string& what) {
  PlanView v;
  if (json.is_null()) return v;
  const Reader r(json, what);
  v.tensor = r.small("t");
  v.dims = r.ints("d");
  v.strides = r.ints("s");
  v.offset = r.integer("o");
  return v;
}

ProgramStep read_step(const Json& json, const std::string& what) {
  const Reader r(json, what);
  ProgramStep s;
  s.op = r.text("op");
  if (r.has("args")) s.args = r.smalls("args");
  if (r.has("n")) s.n = r.small("n");
  if (r.has("x")) s.x = r.real("x");
  if (r.has("y")) s.y = r.real("y");
  if (r.has("z")) s.z = r.real("z");
  return s;
}

ConvGeometry read_conv(const Reader& r) {
  const Dims c = r.ints("conv");
  if (c.size() != 16) r.bad("convolution");
  std::int64_t ConvGeometry::*const fields[] = {
      &ConvGeometry::n,  &ConvGeometry::h,     &ConvGeometry::w,   &ConvGeometry::c,
      &ConvGeometry::oh, &ConvGeometry::ow,    &ConvGeometry::m,   &ConvGeometry::kh,
      &ConvGeometry::kw, &ConvGeometry::group, &ConvGeometry::sh,  &ConvGeometry::sw,
      &ConvGeometry::dh, &ConvGeometry::dw,    &ConvGeometry::top, &ConvGeometry::left};
  ConvGeometry g;
  for (std::size_t i = 0; i < 16; ++i) g.*fields[i] = c[i];
  return g;
}

PlanLayer read_layer(const Json& json, const std::string& what) {
  const Reader r(json, what);
  PlanLayer l;
  l.kind = static_cast<LayerKind>(r.choice("kind", kKinds));
  l.name = r.text("name");
  for (const Json& n : r.array("nodes")) {
    if (!n.is_string()) r.bad("name");
    l.nodes.push_back(n.get<std::string>());
  }
  for (const Json& v : r.array("in")) l.in.push_back(read_view(v, what));
  for (const Json& v : r.array("out")) l.out.push_back(read_view(v, what));
  if (r.has("conv")) l.conv = read_conv(r);
  if (r.has("shortcut")) {
    const Reader s(json_object(json, "shortcut", what), what);
    l.shortcut.conv = read_conv(s);
    l.shortcut.alpha = static_cast<float>(s.real("alpha"));
    l.shortcut.y_scale = static_cast<float>(s.real("y_scale"));
    l.shortcut.y_zero = static_cast<float>(s.real("y_zero"));
    if (!dtype_from_name(s.text("type"), l.shortcut.type)) s.bad("type");
  }
  const Json& e = r.array("epilogue");
  if (e.size() != 9) r.bad("epilogue");
  const auto real = [&](std::size_t i) { return static_cast<float>(r.number(e[i])); };
  l.epilogue.alpha = real(0), l.epilogue.r_scale = real(1), l.epilogue.y_scale = real(2);
  const double kind = r.number(e[3]);
  if (!(kind >= 0 && kind <= static_cast<double>(static_cast<int>(Activation::Kind::kTanh))))
    r.bad("activation");
  l.epilogue.act.kind = static_cast<Activation::Kind>(static_cast<int>(kind));
  l.epilogue.act.lo = real(4), l.epilogue.act.hi = real(5), l.epilogue.act.alpha = real(6),
  l.epilogue.act.beta = real(7);
  l.epilogue.y_zero = real(8);
  if (r.has("program")) {
    const Reader p(json_object(json, "program", what), what);
    l.program.dims = p.ints("dims");
    for (const Json& row : p.array("leaves")) {
      const Dims f = p.ints(row);
      if (f.size() != 7) p.bad("leaf");
      ProgramLeaf leaf;
      leaf.input = p.to_small(f[0]), leaf.range_axis = p.to_small(f[1]);
      leaf.lo = f[2], leaf.hi = f[3];
      leaf.index = p.to_small(f[4]);
      leaf.index_stride = f[5], leaf.index_rows = f[6];
      l.program.leaves.push_back(leaf);
    }
    for (const Json& s : p.array("steps")) l.program.steps.push_back(read_step(s, what));
    l.program.results = p.smalls("results");
  }
  if (r.has("op")) l.op = r.text("op");
  if (r.has("epsilon")) l.epsilon = r.real("epsilon");
  if (r.has("r_epsilon")) l.r_epsilon = r.real("r_epsilon");
  if (r.has("copy_scale")) {
    l.copy_scale = r.real("copy_scale");
    l.copy_zero = r.real("copy_zero");
    if (!(l.copy_scale > 0)) r.bad("step of codes");
  }
  if (r.has("nan_zero")) l.nan_zero = json_bool(json, "nan_zero", what);
  if (r.has("post"))
    for (const Json& s : r.array("post")) l.post.push_back(read_step(s, what));
  l.requested = r.text("requested");
  l.realized = r.text("realized");
  l.why = r.text("why");
  l.tactic = r.text("tactic");
  l.microseconds = r.real("us");
  l.workspace = r.integer("workspace");
  l.kernels = r.small("kernels");
  return l;
}

}  // namespace

Json plan_to_json(const EnginePlan& plan) {
  Json tensors = Json::array(), layers = Json::array(), realized = Json::array();
  for (const PlanTensor& t : plan.tensors)
    tensors.push_back({{"name", t.name},
                       {"dtype", name(t.dtype)},
                       {"dims", t.dims},
                       {"role", kRoles[static_cast<int>(t.role)]},
                       {"offset", t.offset}});
  for (const PlanLayer& l : plan.layers) layers.push_back(layer_json(l));
  for (const Realized& r : plan.realized)
    realized.push_back({{"node", r.node},
                        {"op", r.op},
                        {"requested", r.requested},
                        {"realized", r.realized},
                        {"why", r.why}});
  return {{"precision", plan.precision},
          {"tensors", tensors},
          {"layers", layers},
          {"inputs", plan.inputs},
          {"outputs", plan.outputs},
          {"realized", realized},
          {"arena_bytes", plan.arena_bytes},
          {"weight_bytes", plan.weight_bytes},
          {"workspace_bytes", plan.workspace_bytes}};
}

EnginePlan plan_from_json(const Json& json, const std::string& what) {
  const Reader r(json, what);
  EnginePlan plan;
  plan.precision = r.text("precision");
  for (const Json& row : r.array("tensors")) {
    const Reader t(row, what);
    PlanTensor tensor;
    tensor.name = t.text("name");
    if (!dtype_from_name(t.text("dtype"), tensor.dtype)) t.bad("type");
    tensor.dims = t.ints("dims");
    tensor.role = static_cast<PlanRole>(t.choice("role", kRoles));
    tensor.offset = t.integer("offset");
    plan.tensors.push_back(std::move(tensor));
  }
  for (const Json& row : r.array("layers")) plan.layers.push_back(read_layer(row, what));
  plan.inputs = r.smalls("inputs");
  plan.outputs = r.smalls("outputs");
  for (const Json& row : r.array("realized")) {
    const Reader t(row, what);
    Realized realized;
    realized.node = t.text("node");
    realized.op = t.text("op");
    realized.requested = t.text("requested");
    realized.realized = t.text("realized");
    realized.why = t.text("why");
    plan.realized.push_back(std::move(realized));
  }
  plan.arena_bytes = r.integer("arena_bytes");
  plan.weight_bytes = r.integer("weight_bytes");
  plan.workspace_bytes = r.integer("workspace_bytes");
  return plan;
}

}  // namespace pare
