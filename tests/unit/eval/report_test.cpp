// The four renderers show all of one report, and report.json gives it back whole.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "eval/report_render.h"

namespace pare {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

ReportHistogram histogram(int seed) {
  ReportHistogram h;
  h.tensor = "/features/block" + std::to_string(seed) + "/conv/Conv_output_0";
  h.method = seed % 2 == 0 ? "mse" : "percentile(99.99)";
  h.start = seed % 3 == 0 ? 0 : -8;
  h.width = 0.125;
  for (int i = 0; i < (seed % 3 == 0 ? 64 : 128); ++i) {
    const double x = h.start + h.width * (i + 0.5);
    const auto count = static_cast<std::int64_t>(1e6 * std::exp(-x * x / (2.0 + seed % 5)));
    h.counts.push_back(count);
    h.total += count;
  }
  h.low = h.start * 0.6;
  h.high = 4.75;
  h.least = h.start;
  h.largest = 7.9;
  return h;
}

// Every part filled, with values that are awkward in each output format.
Report sample() {
  Report r;
  r.title = "fashion-resnet-int8";
  r.command = "run";
  r.run_dir = "runs/fashion-resnet-int8";
  r.verdict = "INT8 keeps top-1 at 0.9437 (float 0.9435); the model is 3.9 times smaller";
  r.warnings = {"tensor '<x> & \"y\"' held 3 NaN | 0 Inf"};
  r.stages = {{"load", 0.1, true}, {"calibrate", 2.25, false}};
  r.samples = 10000;
  r.layer_samples = 256;
  r.metrics.push_back({"top1", 0.9437, 0.9435, -0.0002, 0.9437});
  r.metrics.push_back({"output_sqnr_db", 34.52, {}, {}, 34.51});
  r.metrics.push_back({"max_abs", std::nan(""), {}, {}, {}});
  r.gates.push_back({"top1_drop", "<=", 0.005, -0.0002, true, "reference"});
  r.gates.push_back({"output_sqnr_db", ">=", 40, 34.52, false, ""});
  r.audit = ReportAudit{true, 61, {}};
  for (int i = 0; i < 45; ++i)
    r.layers.push_back({"/layer" + std::to_string(i) + "/some/rather/long/path/Conv_output_0", "Conv",
                        i == 44 ? kInf : 48 - 0.8 * i, 0.9999, 0.01 * i});
  r.quantized.push_back({"w1", "weight", "int8", "per channel", "search", "", 64, 0, 0, 41.5, 3, {}});
  r.quantized.push_back(
      {"x1", "activation", "int8", "per tensor", "mse", "input of Conv", 1, -2, 2, {}, 0, 0.0012});
  r.skipped.push_back({"/softmax", "range of Softmax is fixed"});
  r.realized.push_back({"conv1", "Conv", "int8 x int8", "int8 kernel", ""});
  r.realized.push_back({"conv2", "Conv", "int8 x int8", "float32 (fake-quantized)", "group of 3"});
  for (int i = 0; i < 15; ++i) r.histograms.push_back(histogram(i));
  r.tables.push_back({"Calibrators",
                      "on 256 held-out samples",
                      {"method", "SQNR dB"},
                      {{"minmax", "30.1"}, {"mix", "34.4"}},
                      1});
  r.predictions.push_back({"peak memory", "bytes", 3.0e8, 2.9e8});
  r.artefacts.push_back({"model.onnx", std::string(64, 'a'), 2811234});
  r.provenance = {{"pare", "0.1.0"}, {"isa", "avx512_vnni"}};
  r.sizes = {{"weight_bytes_before", 11.2e6}, {"weight_bytes_after", 2.8e6}};
  return r;
}

TEST(Report, JsonGivesItBackWhole) {
  const Json json = report_to_json(sample());
  EXPECT_FALSE(json["passed"].get<bool>());
  EXPECT_EQ(json["metrics"]["max_abs"], "nan");
  EXPECT_EQ(json["layers"][44]["sqnr_db"], "inf");
  EXPECT_FALSE(json["reference"].contains("output_sqnr_db"));
  const std::string text = dump(json, 2);
  const Report back = report_from_json(parse_json(text, "report.json"), "report.json");
  EXPECT_EQ(dump(report_to_json(back), 2), text);
  EXPECT_EQ(render_html(back), render_html(sample()));
  EXPECT_EQ(render_markdown(back), render_markdown(sample()));
  EXPECT_EQ(render_junit(back), render_junit(sample()));
}

TEST(Report, JsonOfAnotherShapeIsABadFile) {
  for (const char* text : {"[]", "{}", "{\"name\": 3}"}) {
    try {
      report_from_json(parse_json(text, "x"), "x");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile) << text;
    }
  }
}

TEST(Report, HtmlIsOneSafeFile) {
  const std::string html = render_html(sample());
  for (const char* part : {"34.52 dB", "✗ failed", "✓ passed", "0.9435", "range of Softmax", "group of 3",
                           "3 more tensors", "&lt;x&gt; &amp; &quot;y&quot;", "prefers-color-scheme", "0.97"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* part : {"<script", "http://", "https://", "<x>", "nan%"})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  if (const char* path = std::getenv("PARE_TEST_HTML")) write_file_atomically(path, html);  // to look at
}

TEST(Report, MarkdownEscapesTables) {
  const std::string text = render_markdown(sample());
  EXPECT_NE(text.find("3 NaN \\| 0 Inf"), std::string::npos);
  EXPECT_NE(text.find("**failed**"), std::string::npos);
  EXPECT_NE(text.find("**34.4**"), std::string::npos);  // the chosen calibrator
  EXPECT_NE(text.find("Layers: the 20 with the least SQNR of 45"), std::string::npos);
}

TEST(Report, JunitCountsFailures) {
  const std::string xml = render_junit(sample());
  EXPECT_NE(xml.find("tests=\"3\" failures=\"1\""), std::string::npos);
  EXPECT_NE(xml.find("&gt;= 40"), std::string::npos);
  EXPECT_NE(xml.find("<failure message=\"output_sqnr_db is 34.52 dB, not"), std::string::npos);
  Report bad = sample();
  bad.audit->passed = false;
  bad.audit->mismatches = {"w1: code 3 \x01"};
  const std::string failed = render_junit(bad);
  EXPECT_NE(failed.find("failures=\"2\""), std::string::npos);
  EXPECT_EQ(failed.find('\x01'), std::string::npos);
}

TEST(Report, JunitOfARunThatAnErrorEnded) {
  const Error error = make_error(ErrorCode::kBadFile, "a <NaN> in 'x'").at("data.npy").hint("leave it out");
  const std::string xml = render_junit_error(sample(), "calibrate", error);
  EXPECT_NE(xml.find("tests=\"1\" failures=\"0\" errors=\"1\""), std::string::npos);
  EXPECT_NE(xml.find("name=\"calibrate\""), std::string::npos);
  EXPECT_NE(xml.find("<error message=\"a &lt;NaN&gt; in &#39;x&#39;\">data.npy\nleave it out</error>"),
            std::string::npos);
  EXPECT_NE(xml.find("</testsuites>"), std::string::npos);
}

TEST(Report, AnEmptyOneRenders) {
  const Report empty;
  EXPECT_TRUE(empty.passed());
  EXPECT_NE(render_html(empty).find("</html>"), std::string::npos);
  EXPECT_NE(render_junit(empty).find("tests=\"0\""), std::string::npos);
  EXPECT_EQ(dump(report_to_json(report_from_json(report_to_json(empty), "r"))), dump(report_to_json(empty)));
}

}  // namespace
}  // namespace pare
