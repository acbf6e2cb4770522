#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "eval/report_plots.h"
#include "eval/report_render.h"

namespace pare {
namespace {

const char* const kStyle = R"CSS(
:root{--bg:#fbfbfa;--card:#fff;--ink:#1d2129;--soft:#667080;--line:#e3e6ea;--accent:#2f6fde;--good:#2e9e6b;
--fair:#d79a1c;--bad:#d04a3c;--range:#2f6fde1f;--chip:#eef1f5}
@media (prefers-color-scheme:dark){:root{--bg:#14171c;--card:#1b1f26;--ink:#e6e9ee;--soft:#97a1b0;--line:#2c323c;
--accent:#6ea0ff;--good:#4cc38a;--fair:#e5b64c;--bad:#f07a6c;--range:#6ea0ff2b;--chip:#262c35}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 2px;letter-spacing:-.01em}h2{font-size:17px;margin:34px 0 10px}
p{margin:6px 0}.soft{color:var(--soft)}
.badge{display:inline-block;padding:2px 10px;border-radius:99px;color:#fff;font-size:13px;font-weight:600;
vertical-align:4px;margin-left:10px;background:var(--good)}.badge.failed{background:var(--bad)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px;margin:18px 0 4px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.card b{display:block;font-size:21px;font-weight:650;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}
.box{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:4px 14px;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);text-align:left;font-size:12.5px}
th,td{padding:6px 10px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}.n{text-align:right;white-space:nowrap}td.w{overflow-wrap:anywhere}
.n+td:not(.n),.n+th:not(.n){padding-left:22px}
tr.chosen td{font-weight:650;color:var(--accent)}
.ok{color:var(--good);font-weight:600}.no{color:var(--bad);font-weight:600}
.warn{border-left:4px solid var(--fair);background:var(--card);padding:8px 12px;margin:8px 0;border-radius:4px}
code{font:12.5px ui-monospace,"DejaVu Sans Mono",monospace}
details{margin:8px 0}summary{cursor:pointer;color:var(--accent);font-size:14px;padding:4px 0}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:10px;font-family:inherit}svg .name{fill:var(--ink);font-size:10.5px}
svg .value{font-size:10px;fill:var(--ink)}.grid{stroke:var(--line);stroke-width:1}.range{fill:var(--range)}
.edge{stroke:var(--accent);stroke-width:1.5}.bars{fill:var(--soft);opacity:.75}
.bar.good{fill:var(--good)}.bar.fair{fill:var(--fair)}.bar.bad{fill:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(310px,1fr));gap:12px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 10px 6px}
figcaption{font-size:12px;color:var(--soft);margin-bottom:4px;overflow-wrap:anywhere}
figcaption b{color:var(--ink);font-weight:600}
)CSS";

constexpr std::size_t kPlotsShown = 12;  // further histograms are folded
constexpr std::size_t kRowsShown = 40;   // longer tables are folded

class Page {
 public:
  explicit Page(const Report& report) : r_(report) {}

  std::string render() {
    out_ = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
    out_ += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
    out_ += "<meta name=\"color-scheme\" content=\"light dark\">\n";
    out_ += "<title>" + html_escape(r_.title) + " · pare</title>\n<style>" + kStyle +
            "</style></head>\n<body><main>\n";
    head();
    gates();
    metrics();
    for (const ReportTable& table : r_.tables) extra(table);
    layers();
    histograms();
    skipped();
    realized();
    quantized();
    predictions();
    stages();
    files();
    out_ += "</main></body></html>\n";
    return std::move(out_);
  }

 private:
  static std::string cell(const std::string& text, const char* kind = "") {
    return fmt::format("<td{}>{}</td>", *kind == 0 ? "" : fmt::format(" class=\"{}\"", kind),
                       html_escape(text));
  }
  static std::string number(const std::string& text) { return cell(text, "n"); }
  // Columns that begin with ">" are numbers: right-aligned.
  void begin_table(const std::vector<std::string>& columns) {
    out_ += "<div class=\"box\"><table><thead><tr>";
    for (const std::string& column : columns) {
      const bool right = column[0] == '>';
      out_ += fmt::format("<th{}>{}</th>", right ? " class=\"n\"" : "",
                          html_escape(column.substr(right ? 1 : 0)));
    }
    out_ += "</tr></thead><tbody>\n";
  }
  void end_table() { out_ += "</tbody></table></div>\n"; }
  void row(const std::string& cells) { out_ += "<tr>" + cells + "</tr>\n"; }
  void title(const std::string& text, const std::string& note = "") {
    out_ += "<h2>" + html_escape(text) + "</h2>\n";
    if (!note.empty()) out_ += "<p class=\"soft\">" + html_escape(note) + "</p>\n";
  }
  // A long list is folded behind its own summary line.
  bool begin_fold(std::size_t count, const char* what) {
    if (count <= kRowsShown) return false;
    out_ += fmt::format("<details><summary>show all {} {}</summary>\n", count, what);
    return true;
  }
  void end_fold(bool folded) {
    if (folded) out_ += "</details>\n";
  }

  void card(const std::string& value, const std::string& what) {
    out_ +=
        "<div class=\"card\"><b>" + html_escape(value) + "</b><span>" + html_escape(what) + "</span></div>\n";
  }

  void head() {
    const bool judged = !r_.gates.empty() || r_.audit.has_value();
    out_ += "<h1>" + html_escape(r_.title);
    if (judged)
      out_ +=
          r_.passed() ? "<span class=\"badge\">passed</span>" : "<span class=\"badge failed\">failed</span>";
    out_ += "</h1>\n<p class=\"soft\">" + html_escape(r_.verdict) + "</p>\n";
    for (const std::string& warning : r_.warnings)
      out_ += "<div class=\"warn\">" + html_escape(warning) + "</div>\n";
    out_ += "<div class=\"cards\">\n";
    for (const ReportMetric& m : r_.metrics) {
      if (m.reference)
        card(metric_text(m.name, m.candidate),
             fmt::format("{} (reference {})", m.name, metric_text(m.name, *m.reference)));
      else if (m.name == "output_sqnr_db")
        card(metric_text(m.name, m.candidate), "output SQNR");
    }
    const auto size = [&](const char* key) {
      for (const auto& [name, value] : r_.sizes)
        if (name == key) return value;
      return std::nan("");
    };
    const double before = size("weight_bytes_before"), after = size("weight_bytes_after");
    if (std::isfinite(before) && std::isfinite(after))
      card(bytes_text(after), fmt::format("of weights (before {})", bytes_text(before)));
    if (r_.audit)
      card(r_.audit->passed ? "equal" : "differs",
           fmt::format("file read back, {} tensors compared", r_.audit->tensors));
    out_ += "</div>\n";
  }

  void gates() {
    if (r_.gates.empty()) return;
    title("Gates");
    begin_table({"gate", ">value", ">limit", "against", ">result"});
    for (const ReportGate& g : r_.gates)
      row(cell(g.metric) + number(metric_text(g.metric, g.value)) +
          number(g.relation + " " + number_text_short(g.limit)) + cell(g.against) +
          fmt::format("<td class=\"n {}\">{}</td>", g.passed ? "ok" : "no",
                      g.passed ? "✓ passed" : "✗ failed"));
    end_table();
    if (!r_.audit || r_.audit->passed) return;
    title("Audit failures", "what the written file holds is not what was decided");
    begin_table({"tensor"});
    for (const std::string& mismatch : r_.audit->mismatches) row(cell(mismatch, "w"));
    end_table();
  }

  void metrics() {
    if (r_.metrics.empty()) return;
    title("Metrics", fmt::format("{} samples{}", r_.samples,
                                 r_.not_finite == 0
                                     ? std::string()
                                     : fmt::format("; {} output values are NaN or infinite", r_.not_finite)));
    const auto show = [](const ReportMetric& m, const std::optional<double>& value) {
      return number(value ? metric_text(m.name, *value) : "");
    };
    begin_table({"metric", ">reference", ">quantized", ">by integer kernels", ">drop"});
    for (const ReportMetric& m : r_.metrics)
      row(cell(m.name) + show(m, m.reference) + number(metric_text(m.name, m.candidate)) +
          show(m, m.integer) + show(m, m.drop));
    end_table();
  }

  void extra(const ReportTable& table) {
    title(table.title, table.note);
    std::vector<std::string> columns = table.columns;
    for (std::size_t i = 1; i < columns.size(); ++i) columns[i] = ">" + columns[i];
    const bool folded = begin_fold(table.rows.size(), "rows");
    begin_table(columns);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      std::string cells;
      for (std::size_t j = 0; j < table.rows[i].size(); ++j)
        cells += cell(table.rows[i][j], j == 0 ? "w" : "n");
      out_ += static_cast<std::int64_t>(i) == table.chosen ? "<tr class=\"chosen\">" : "<tr>";
      out_ += cells + "</tr>\n";
    }
    end_table();
    end_fold(folded);
  }

  void layers() {
    if (r_.layers.empty()) return;
    title("SQNR by layer",
          fmt::format("each value of the quantized graph against the same value of the reference, "
                      "in the order of the graph, over {} samples; higher is better",
                      r_.layer_samples));
    out_ += "<div class=\"box\" style=\"padding:12px 14px\">" + layer_bars_svg(r_.layers) + "</div>\n";
  }

  void figure(const ReportHistogram& h) {
    out_ += "<figure><figcaption><b>" + html_escape(h.tensor) + "</b><br>" +
            html_escape(fmt::format("{}: [{}, {}], seen [{}, {}]", h.method, number_text_short(h.low),
                                    number_text_short(h.high), number_text_short(h.least),
                                    number_text_short(h.largest)));
    if (h.nan != 0 || h.inf != 0)
      out_ += fmt::format(" <span class=\"no\">{} NaN, {} infinite</span>", h.nan, h.inf);
    out_ += "</figcaption>" + histogram_svg(h) + "</figure>\n";
  }

  void histograms() {
    if (r_.histograms.empty()) return;
    title("Calibrated ranges",
          "what each tensor held in calibration (counts on a logarithmic axis) and the range "
          "that was chosen for it (shaded)");
    out_ += "<div class=\"plots\">\n";
    for (std::size_t i = 0; i < r_.histograms.size(); ++i) {
      if (i == kPlotsShown)
        out_ += fmt::format("</div>\n<details><summary>{} more tensors</summary>\n<div class=\"plots\">\n",
                            r_.histograms.size() - kPlotsShown);
      figure(r_.histograms[i]);
    }
    out_ += r_.histograms.size() > kPlotsShown ? "</div></details>\n" : "</div>\n";
  }

  void skipped() {
    if (r_.skipped.empty()) return;
    title("Left in float", "what was not quantized, and why");
    const bool folded = begin_fold(r_.skipped.size(), "tensors");
    begin_table({"tensor or layer", "why"});
    for (const ReportSkipped& s : r_.skipped) row(cell(s.tensor, "w") + cell(s.why));
    end_table();
    end_fold(folded);
  }

  void realized() {
    if (r_.realized.empty()) return;
    std::size_t differ = 0;
    for (const ReportRealized& x : r_.realized) differ += x.why.empty() ? 0 : 1;
    title("Requested and realized precision",
          fmt::format("on this machine's processor; {} of {} layers run otherwise than asked", differ,
                      r_.realized.size()));
    const bool folded = begin_fold(r_.realized.size(), "layers");
    begin_table({"layer", "op", "requested", "realized", "why"});
    for (const ReportRealized& x : r_.realized)
      row(cell(x.node, "w") + cell(x.op) + cell(x.requested) + cell(x.realized) + cell(x.why));
    end_table();
    end_fold(folded);
  }

  void quantized() {
    if (r_.quantized.empty()) return;
    title("Quantized tensors", fmt::format("{} tensors", r_.quantized.size()));
    const bool folded = begin_fold(r_.quantized.size(), "tensors");
    begin_table({"tensor", "kind", "format", ">range", "method", ">SQNR dB", ">clipped"});
    for (const ReportQuantized& q : r_.quantized) {
      std::string clipped = q.kind == "weight" ? std::to_string(q.clipped) : "";
      if (q.clipped_share) clipped = fmt::format("{:.3g} %", *q.clipped_share * 100);
      const std::string range =
          q.scales == 1 ? fmt::format("[{}, {}]", number_text_short(q.low), number_text_short(q.high))
                        : fmt::format("{} scales", q.scales);
      row(cell(q.tensor, "w") + cell(q.kind) + cell(q.format + ", " + q.granularity) + number(range) +
          cell(q.method) + number(q.sqnr_db ? fmt::format("{:.1f}", *q.sqnr_db) : "") + number(clipped));
    }
    end_table();
    end_fold(folded);
  }

  void predictions() {
    if (r_.predictions.empty()) return;
    title("Predicted against measured", "predictions were made before the work started");
    begin_table({"what", ">predicted", ">measured", ">ratio"});
    for (const ReportPrediction& p : r_.predictions) {
      const auto show = [&](double value) {
        return number(p.unit == "bytes" ? bytes_text(value) : number_text_short(value) + " " + p.unit);
      };
      row(cell(p.what) + show(p.predicted) + show(p.measured) +
          number(p.predicted > 0 ? fmt::format("{:.2f}", p.measured / p.predicted) : ""));
    }
    end_table();
  }

  void stages() {
    if (r_.stages.empty()) return;
    title("Stages");
    begin_table({"stage", ">seconds", ""});
    for (const ReportStage& s : r_.stages)
      row(cell(s.name) + number(fmt::format("{:.2f}", s.seconds)) +
          cell(s.resumed ? "done in an earlier run" : ""));
    for (const ReportTiming& t : r_.timings)
      row(cell("· " + t.what) + number(fmt::format("{:.2f}", t.seconds)) + cell(""));
    end_table();
  }

  void files() {
    if (!r_.artefacts.empty()) {
      title("Files");
      begin_table({"file", ">bytes", "SHA-256"});
      for (const ReportArtefact& a : r_.artefacts)
        row(cell(a.path, "w") + number(std::to_string(a.bytes)) + "<td class=\"w\"><code>" +
            html_escape(a.sha256) + "</code></td>");
      end_table();
    }
    if (r_.provenance.empty()) return;
    title("Provenance");
    begin_table({"", ""});
    for (const auto& [key, value] : r_.provenance)
      row(cell(key) + "<td class=\"w\"><code>" + html_escape(value) + "</code></td>");
    end_table();
  }

  const Report& r_;
  std::string out_;
};

}  // namespace

std::string render_html(const Report& report) { return Page(report).render(); }

}  // namespace pare
