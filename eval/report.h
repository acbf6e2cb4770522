// What a run or an evaluation found, as plain data: no numbers are computed here and nothing is printed.
// recipes and the commands fill it; report_json.cpp, report_markdown.cpp, report_html.cpp and
// report_junit.cpp show it. report.json holds all of it, so a report can be rendered again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pare {

struct ReportMetric {
  std::string name;
  double candidate = 0;
  std::optional<double> reference;  // the float model's, for metrics that one model has alone
  std::optional<double> drop;       // positive: worse
  std::optional<double> integer;    // the candidate's through integer kernels, when it ran both ways
};

struct ReportGate {
  std::string metric;
  std::string relation;  // "<=" or ">="
  double limit = 0, value = 0;
  bool passed = false;  // never when the value is NaN
  std::string against;  // "reference", "baseline", "" for a plain value
};

struct ReportAudit {  // what was written, read back and compared
  bool passed = false;
  std::int64_t tensors = 0;
  std::vector<std::string> mismatches;
};

struct ReportLayer {  // one value of the model in both graphs
  std::string name, op;
  double sqnr_db = 0, cosine = 0, max_abs = 0;
};

struct ReportQuantized {
  std::string tensor, kind;  // kind: "weight", "activation"
  std::string format, granularity, method, rule;
  std::int64_t scales = 0;
  double low = 0, high = 0;  // the range that the codes cover (per tensor)
  std::optional<double> sqnr_db;
  std::int64_t clipped = 0;             // weights: elements beyond the largest code
  std::optional<double> clipped_share;  // activations: of the evaluation data
};

struct ReportSkipped {
  std::string tensor, why;
};

struct ReportRealized {
  std::string node, op, requested, realized, why;
};

struct ReportHistogram {  // of one activation, as calibration saw it
  std::string tensor, method;
  double start = 0, width = 0;       // left edge of the first bin; width of a bin
  std::vector<std::int64_t> counts;  // thinned for the plot
  double low = 0, high = 0;          // the range chosen
  double least = 0, largest = 0;     // the values seen
  std::int64_t total = 0, zeros = 0, nan = 0, inf = 0;
};

struct ReportTable {  // anything else: the calibrators that auto scored, for example
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::int64_t chosen = -1;  // a row to mark
};

struct ReportPrediction {
  std::string what, unit;
  double predicted = 0, measured = 0;
};

struct ReportStage {
  std::string name;
  double seconds = 0;
  bool resumed = false;
};

struct ReportTiming {
  std::string what;
  double seconds = 0;
};

struct ReportArtefact {
  std::string path;  // relative to the run folder
  std::string sha256;
  std::int64_t bytes = 0;
};

struct Report {
  std::string title;
  std::string command;  // "run", "eval"
  std::string run_dir;
  std::string verdict;  // one sentence: what the reader wants to know first

  std::vector<std::string> warnings;
  std::vector<ReportStage> stages;
  std::int64_t samples = 0;        // that metrics were computed on
  std::int64_t layer_samples = 0;  // that per-layer figures were computed on
  std::int64_t not_finite = 0;     // NaN and infinite output values, both graphs
  std::vector<ReportMetric> metrics;
  std::vector<ReportGate> gates;
  std::optional<ReportAudit> audit;
  std::vector<ReportLayer> layers;
  std::vector<ReportQuantized> quantized;
  std::vector<ReportSkipped> skipped;
  std::vector<ReportRealized> realized;
  std::vector<ReportHistogram> histograms;
  std::vector<ReportTable> tables;
  std::vector<ReportPrediction> predictions;
  std::vector<ReportTiming> timings;  // of parts of a stage
  std::vector<ReportArtefact> artefacts;
  std::vector<std::pair<std::string, std::string>> provenance;  // versions, hashes, instruction class
  std::vector<std::pair<std::string, double>> sizes;            // weight_bytes_before, bits_per_weight ...

  bool passed() const;  // every gate, and the audit if there was one
};

}  // namespace pare
