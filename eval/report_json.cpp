#include <cmath>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"

namespace pare {
namespace {

// One list of members a struct, walked in both directions: Out makes an object, In fills the struct from one.
class Out {
 public:
  Json json = Json::object();

  void operator()(const char* key, const std::string& value) { json[key] = value; }
  void operator()(const char* key, double value) { json[key] = json_number(value); }
  void operator()(const char* key, std::int64_t value) { json[key] = value; }
  void operator()(const char* key, bool value) { json[key] = value; }
  void operator()(const char* key, const std::optional<double>& value) {
    if (value) json[key] = json_number(*value);
  }
  template <typename T>
  void operator()(const char* key, const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(element(value));
    json[key] = std::move(list);
  }

 private:
  static Json element(const std::string& value) { return value; }
  static Json element(std::int64_t value) { return value; }
  static Json element(const std::vector<std::string>& values) { return values; }
  template <typename T>
  static Json element(const T& value) {
    Out out;
    members(out, const_cast<T&>(value));
    return std::move(out.json);
  }
};

class In {
 public:
  In(const Json& json, const std::string& what) : json_(json), what_(what) {}

  void operator()(const char* key, std::string& value) { value = json_string(json_, key, what_); }
  void operator()(const char* key, double& value) { value = json_double(json_, key, what_); }
  void operator()(const char* key, std::int64_t& value) { value = json_int(json_, key, what_); }
  void operator()(const char* key, bool& value) { value = json_bool(json_, key, what_); }
  void operator()(const char* key, std::optional<double>& value) {
    if (json_.is_object() && json_.contains(key)) value = json_double(json_, key, what_);
  }
  template <typename T>
  void operator()(const char* key, std::vector<T>& values) {
    values.clear();
    for (const Json& item : json_array(json_, key, what_)) {
      values.emplace_back();
      element(item, values.back());
    }
  }

 private:
  void element(const Json& item, std::string& value) const {
    if (!item.is_string()) fail(ErrorCode::kBadFile, "{}: a list of texts holds something else", what_);
    value = item.get<std::string>();
  }
  void element(const Json& item, std::int64_t& value) const {
    if (!item.is_number_integer())
      fail(ErrorCode::kBadFile, "{}: a list of numbers holds something else", what_);
    value = item.get<std::int64_t>();
  }
  void element(const Json& item, std::vector<std::string>& values) const {
    if (!item.is_array()) fail(ErrorCode::kBadFile, "{}: a table row is not a list", what_);
    for (const Json& cell : item) {
      values.emplace_back();
      element(cell, values.back());
    }
  }
  template <typename T>
  void element(const Json& item, T& value) const {
    In in(item, what_);
    members(in, value);
  }

  const Json& json_;
  const std::string& what_;
};

template <typename Io>
void members(Io& io, ReportStage& s) {
  io("name", s.name);
  io("seconds", s.seconds);
  io("resumed", s.resumed);
}
template <typename Io>
void members(Io& io, ReportGate& g) {
  io("metric", g.metric);
  io("relation", g.relation);
  io("limit", g.limit);
  io("value", g.value);
  io("passed", g.passed);
  io("against", g.against);
}
template <typename Io>
void members(Io& io, ReportAudit& a) {
  io("passed", a.passed);
  io("tensors", a.tensors);
  io("mismatches", a.mismatches);
}
template <typename Io>
void members(Io& io, ReportLayer& l) {
  io("name", l.name);
  io("op", l.op);
  io("sqnr_db", l.sqnr_db);
  io("cosine", l.cosine);
  io("max_abs", l.max_abs);
}
template <typename Io>
void members(Io& io, ReportQuantized& q) {
  io("tensor", q.tensor);
  io("kind", q.kind);
  io("format", q.format);
  io("granularity", q.granularity);
  io("method", q.method);
  io("rule", q.rule);
  io("scales", q.scales);
  io("low", q.low);
  io("high", q.high);
  io("sqnr_db", q.sqnr_db);
  io("clipped", q.clipped);
  io("clipped_share", q.clipped_share);
}
template <typename Io>
void members(Io& io, ReportSkipped& s) {
  io("tensor", s.tensor);
  io("why", s.why);
}
template <typename Io>
void members(Io& io, ReportRealized& r) {
  io("node", r.node);
  io("op", r.op);
  io("requested", r.requested);
  io("realized", r.realized);
  io("why", r.why);
}
template <typename Io>
void members(Io& io, ReportHistogram& h) {
  io("tensor", h.tensor);
  io("method", h.method);
  io("start", h.start);
  io("width", h.width);
  io("counts", h.counts);
  io("low", h.low);
  io("high", h.high);
  io("least", h.least);
  io("largest", h.largest);
  io("total", h.total);
  io("zeros", h.zeros);
  io("nan", h.nan);
  io("inf", h.inf);
}
template <typename Io>
void members(Io& io, ReportTable& t) {
  io("title", t.title);
  io("note", t.note);
  io("columns", t.columns);
  io("rows", t.rows);
  io("chosen", t.chosen);
}
template <typename Io>
void members(Io& io, ReportPrediction& p) {
  io("what", p.what);
  io("unit", p.unit);
  io("predicted", p.predicted);
  io("measured", p.measured);
}
template <typename Io>
void members(Io& io, ReportTiming& t) {
  io("what", t.what);
  io("seconds", t.seconds);
}
template <typename Io>
void members(Io& io, ReportArtefact& a) {
  io("path", a.path);
  io("sha256", a.sha256);
  io("bytes", a.bytes);
}
// Everything but what becomes an object with names as keys.
template <typename Io>
void lists(Io& io, Report& r) {
  io("layers", r.layers);
  io("quantized", r.quantized);
  io("skipped", r.skipped);
  io("realized", r.realized);
  io("tables", r.tables);
  io("predictions", r.predictions);
  io("timings", r.timings);
  io("histograms", r.histograms);
  io("artefacts", r.artefacts);
}

}  // namespace

bool Report::passed() const {
  for (const ReportGate& gate : gates)
    if (!gate.passed) return false;
  return !audit || audit->passed;
}

Json report_to_json(const Report& report) {
  Report& r = const_cast<Report&>(report);  // Out only reads
  Out out;
  out("name", r.title);
  out("run_dir", r.run_dir);
  out("verdict", r.verdict);
  out("passed", r.passed());
  out("stages", r.stages);
  out("samples", r.samples);
  out("layer_samples", r.layer_samples);
  out("not_finite", r.not_finite);
  Json metrics = Json::object(), reference = Json::object(), drop = Json::object(), integer = Json::object();
  for (const ReportMetric& metric : r.metrics) {
    metrics[metric.name] = json_number(metric.candidate);
    if (metric.reference) reference[metric.name] = json_number(*metric.reference);
    if (metric.drop) drop[metric.name] = json_number(*metric.drop);
    if (metric.integer) integer[metric.name] = json_number(*metric.integer);
  }
  out.json["metrics"] = std::move(metrics);
  out.json["metrics_integer"] = std::move(integer);
  out.json["reference"] = std::move(reference);
  out.json["drop"] = std::move(drop);
  out("gates", r.gates);
  if (r.audit) {
    Out audit;
    members(audit, *r.audit);
    out.json["audit"] = std::move(audit.json);
  }
  for (const auto& [key, value] : r.sizes) out.json["sizes"][key] = json_number(value);
  lists(out, r);
  for (const auto& [key, value] : r.provenance) out.json["provenance"][key] = value;
  out("warnings", r.warnings);
  return std::move(out.json);
}

Report report_from_json(const Json& json, const std::string& what) {
  Report r;
  In in(json, what);
  if (json.is_object() && json.contains("command")) r.command = json_string(json, "command", what);
  in("name", r.title);
  in("run_dir", r.run_dir);
  in("verdict", r.verdict);
  in("stages", r.stages);
  in("samples", r.samples);
  in("layer_samples", r.layer_samples);
  in("not_finite", r.not_finite);
  const auto optional = [&](const char* group, const std::string& name, std::optional<double>& into) {
    const Json& values = json_object(json, group, what);
    if (values.contains(name)) into = json_double(values, name.c_str(), what);
  };
  const Json& metrics = json_object(json, "metrics", what);
  for (auto item = metrics.begin(); item != metrics.end(); ++item) {
    ReportMetric metric;
    metric.name = item.key();
    metric.candidate = json_double(metrics, item.key().c_str(), what);
    optional("reference", metric.name, metric.reference);
    optional("drop", metric.name, metric.drop);
    optional("metrics_integer", metric.name, metric.integer);
    r.metrics.push_back(std::move(metric));
  }
  in("gates", r.gates);
  if (json.contains("audit")) {
    r.audit.emplace();
    In audit(json_object(json, "audit", what), what);
    members(audit, *r.audit);
  }
  if (json.contains("sizes")) {
    const Json& sizes = json_object(json, "sizes", what);
    for (auto item = sizes.begin(); item != sizes.end(); ++item)
      r.sizes.push_back({item.key(), json_double(sizes, item.key().c_str(), what)});
  }
  lists(in, r);
  if (json.contains("provenance")) {
    const Json& provenance = json_object(json, "provenance", what);
    for (auto item = provenance.begin(); item != provenance.end(); ++item)
      r.provenance.push_back({item.key(), json_string(provenance, item.key().c_str(), what)});
  }
  in("warnings", r.warnings);
  return r;
}

}  // namespace pare
