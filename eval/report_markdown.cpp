#include <algorithm>

#include "engine/base/error.h"
#include "eval/report_render.h"

namespace pare {
namespace {

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|' || c == '<' || c == '`' || c == '*' || c == '_' || c == '[') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void row(std::string& out, const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) out += "| " + cell + " ";
  out += "|\n";
}

void header(std::string& out, const std::vector<std::string>& columns) {
  row(out, columns);
  for (std::size_t i = 0; i < columns.size(); ++i) out += i == 0 ? "| --- " : "| ---: ";
  out += "|\n";
}

void begin_details(std::string& out, const std::string& title) {
  out += "\n<details><summary>" + title + "</summary>\n\n";
}
void end_details(std::string& out) { out += "\n</details>\n"; }

void metrics(std::string& out, const Report& r) {
  if (r.metrics.empty()) return;
  out += fmt::format("\n### Metrics ({} samples)\n\n", r.samples);
  bool integer = false;
  for (const ReportMetric& m : r.metrics) integer = integer || m.integer.has_value();
  std::vector<std::string> columns = {"metric", "reference", "quantized"};
  if (integer) columns.push_back("integer kernels");
  columns.push_back("drop");
  header(out, columns);
  const auto show = [](const ReportMetric& m, const std::optional<double>& value) {
    return value ? metric_text(m.name, *value) : std::string();
  };
  for (const ReportMetric& m : r.metrics) {
    std::vector<std::string> cells = {escape(m.name), show(m, m.reference), metric_text(m.name, m.candidate)};
    if (integer) cells.push_back(show(m, m.integer));
    cells.push_back(show(m, m.drop));
    row(out, cells);
  }
}

void gates(std::string& out, const Report& r) {
  if (r.gates.empty() && !r.audit) return;
  out += "\n### Gates\n\n";
  header(out, {"gate", "value", "limit", "result"});
  for (const ReportGate& g : r.gates)
    row(out, {escape(g.metric), metric_text(g.metric, g.value), g.relation + " " + number_text_short(g.limit),
              g.passed ? "passed" : "**failed**"});
  if (r.audit)
    row(out, {"audit of the written model", fmt::format("{} tensors", r.audit->tensors), "all equal",
              r.audit->passed ? "passed" : fmt::format("**failed** ({})", r.audit->mismatches.size())});
}

void layers(std::string& out, const Report& r) {
  if (r.layers.empty()) return;
  begin_details(out, fmt::format("Layers: the 20 with the least SQNR of {} ({} samples)", r.layers.size(),
                                 r.layer_samples));
  std::vector<const ReportLayer*> order;
  for (const ReportLayer& layer : r.layers) order.push_back(&layer);
  std::stable_sort(order.begin(), order.end(),
                   [](const ReportLayer* a, const ReportLayer* b) { return a->sqnr_db < b->sqnr_db; });
  if (order.size() > 20) order.resize(20);
  header(out, {"layer", "op", "SQNR dB", "cosine", "max abs"});
  for (const ReportLayer* l : order)
    row(out, {escape(l->name), l->op, fmt::format("{:.2f}", l->sqnr_db), fmt::format("{:.6f}", l->cosine),
              number_text_short(l->max_abs)});
  end_details(out);
}

void quantized(std::string& out, const Report& r) {
  if (r.quantized.empty()) return;
  begin_details(out, fmt::format("Quantized: {} tensors", r.quantized.size()));
  header(out, {"tensor", "kind", "format", "codes cover", "by", "SQNR dB"});
  for (const ReportQuantized& q : r.quantized)
    row(out, {escape(q.tensor), q.kind, escape(q.format) + ", " + q.granularity,
              q.low < q.high ? fmt::format("[{}, {}]", number_text_short(q.low), number_text_short(q.high))
                             : fmt::format("{} scales", q.scales),
              escape(q.method), q.sqnr_db ? fmt::format("{:.2f}", *q.sqnr_db) : std::string()});
  end_details(out);
}

void lists(std::string& out, const Report& r) {
  for (const ReportTable& table : r.tables) {
    out += "\n### " + escape(table.title) + "\n\n";
    if (!table.note.empty()) out += escape(table.note) + "\n\n";
    header(out, table.columns);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      std::vector<std::string> cells;
      for (const std::string& cell : table.rows[i])
        cells.push_back(static_cast<std::int64_t>(i) == table.chosen ? "**" + escape(cell) + "**"
                                                                     : escape(cell));
      row(out, cells);
    }
  }
  if (!r.skipped.empty()) {
    begin_details(out, fmt::format("Left in float: {}", r.skipped.size()));
    header(out, {"tensor or layer", "why"});
    for (const ReportSkipped& s : r.skipped) row(out, {escape(s.tensor), escape(s.why)});
    end_details(out);
  }
  if (!r.predictions.empty()) {
    begin_details(out, "Predicted against measured");
    header(out, {"what", "predicted", "measured"});
    for (const ReportPrediction& p : r.predictions) {
      const auto show = [&](double v) {
        return p.unit == "bytes" ? bytes_text(v) : number_text_short(v) + " " + p.unit;
      };
      row(out, {escape(p.what), show(p.predicted), show(p.measured)});
    }
    end_details(out);
  }
  if (!r.artefacts.empty()) {
    begin_details(out, "Files");
    header(out, {"file", "bytes", "SHA-256"});
    for (const ReportArtefact& a : r.artefacts)
      row(out, {"`" + a.path + "`", std::to_string(a.bytes), "`" + a.sha256.substr(0, 16) + "`"});
    end_details(out);
  }
}

}  // namespace

std::string render_markdown(const Report& r) {
  std::string out =
      fmt::format("## {}: {}\n\n{}\n", escape(r.title), r.passed() ? "passed" : "FAILED", escape(r.verdict));
  for (const std::string& warning : r.warnings) out += "\n> warning: " + escape(warning) + "\n";
  gates(out, r);
  metrics(out, r);
  layers(out, r);
  quantized(out, r);
  lists(out, r);
  if (!r.provenance.empty()) {
    begin_details(out, "Provenance");
    header(out, {"", ""});
    for (const auto& [key, value] : r.provenance) row(out, {escape(key), "`" + value + "`"});
    end_details(out);
  }
  return out;
}

}  // namespace pare
