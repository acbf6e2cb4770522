// Schemes and methods on a language model: one JSON line a row with the KL divergence from the float model,
// the agreement of the first choice and the perplexity of the quantized one (docs/accuracy.md,
// scripts/llm-accuracy).
//
//   language_bench MODEL CALIBRATION.txt VALID.txt OUT.jsonl PART FIT WINDOWS JOB...
//
// PART 1, 2, 3: windows [FIT (PART - 1), FIT PART) of 512 tokens of the calibration text. WINDOWS of the
// other text are judged (0: all). JOB: SCHEME:METHOD[:OPTION,...] of the table below; Options: inputs,
// rotate, scaling=awq, kv (an FP8 cache), ridge=, part=, fit= ... Second moments and the float model's logits
// are had once for all jobs. A row that is in OUT.jsonl already is left out.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>

#include "calib/calibrate.h"
#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/build/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/task/text.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/placement/activation.h"
#include "recipes/plan_report.h"
#include "recipes/quantize/quantize_model.h"
#include "recipes/text_data.h"

namespace {

using namespace pare;
using Clock = std::chrono::steady_clock;

struct Named {
  const char* name;
  std::function<void(QuantizeSpec&)> set;
};

void weights(QuantizeSpec& q, const char* scheme, std::int64_t group, bool symmetric) {
  q.scheme = scheme;
  q.group_size = group;
  q.weights.symmetric = symmetric;
}

const std::vector<Named>& table() {
  static const std::vector<Named> rows = {
      {"int4_g128", [](QuantizeSpec& q) { weights(q, "int4", 128, true); }},
      {"int4_g64", [](QuantizeSpec& q) { weights(q, "int4", 64, true); }},
      {"int4_g32", [](QuantizeSpec& q) { weights(q, "int4", 32, true); }},
      {"int4_g128_asym", [](QuantizeSpec& q) { weights(q, "int4", 128, false); }},
      {"int4_g64_asym", [](QuantizeSpec& q) { weights(q, "int4", 64, false); }},
      {"int4_g32_asym", [](QuantizeSpec& q) { weights(q, "int4", 32, false); }},
      {"int3_g128", [](QuantizeSpec& q) { weights(q, "int3", 128, true); }},
      {"int3_g128_asym", [](QuantizeSpec& q) { weights(q, "int3", 128, false); }},
      {"int2_g64", [](QuantizeSpec& q) { weights(q, "int2", 64, true); }},
      {"int2_g64_asym", [](QuantizeSpec& q) { weights(q, "int2", 64, false); }},
      {"nvfp4", [](QuantizeSpec& q) { q.scheme = "NVFP4A16"; }},
      {"nvfp4_w4a4", [](QuantizeSpec& q) { q.scheme = "NVFP4"; }},
      {"mxfp4", [](QuantizeSpec& q) { q.scheme = "MXFP4A16"; }},
      {"mxfp4_w4a4", [](QuantizeSpec& q) { q.scheme = "MXFP4"; }},
      {"mxfp8", [](QuantizeSpec& q) { q.scheme = "MXFP8A16"; }},
      {"mxfp8_w8a8", [](QuantizeSpec& q) { q.scheme = "MXFP8"; }},
      {"fp8_tensor", [](QuantizeSpec& q) { q.scheme = "FP8"; }},
      {"fp8_channel", [](QuantizeSpec& q) { q.scheme = "fp8"; }},
      {"fp8_dynamic", [](QuantizeSpec& q) { q.scheme = "FP8_DYNAMIC"; }},
      {"fp8_block", [](QuantizeSpec& q) { q.scheme = "FP8_BLOCK"; }},
      {"int8_weights", [](QuantizeSpec& q) { q.scheme = "int8_weights"; }},
      {"w8a8_dynamic", [](QuantizeSpec& q) { q.scheme = "W8A8"; }},
      {"w8a8_static", [](QuantizeSpec& q) { q.scheme = "int8"; }},
      {"w4a8", [](QuantizeSpec& q) { q.scheme = "W4A8"; }},
      {"w4afp8", [](QuantizeSpec& q) { q.scheme = "W4AFP8"; }},
  };
  return rows;
}

struct Job {
  std::string text, scheme, method;
  std::vector<std::string> options;
  bool has(const char* option) const {
    return std::find(options.begin(), options.end(), option) != options.end();
  }
};

Job parse(const std::string& text) {
  Job job;
  job.text = text;
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  job.scheme = text.substr(0, first);
  job.method = text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  for (std::size_t at = second; at != std::string::npos;) {
    const std::size_t end = text.find(',', at + 1);
    job.options.push_back(text.substr(at + 1, end == std::string::npos ? end : end - at - 1));
    at = end;
  }
  return job;
}

// Logits of the float model, held as they are: the judge of every row.
struct Judge {
  Dataset data;
  std::int64_t windows;
  std::vector<Tensor> logits;
  double perplexity = 0;

  Judge(const DatasetSpec& spec, const Graph& graph, std::int64_t wanted, ThreadPool& pool)
      : data(spec, model_inputs(graph)), windows(wanted > 0 ? wanted : data.sample_count()) {
    TokenMetrics metrics;
    each(graph, pool, [&](const Tensor& out, const Batch& batch, std::size_t) {
      metrics.add(out, batch.targets, nullptr, &pool);
      logits.push_back(out);
    });
    perplexity = metrics.perplexity();
  }

  template <class Visit>
  void each(const Graph& graph, ThreadPool& pool, Visit&& visit) {
    const Lowered lowered = lower_for_cpu(graph);
    SessionOptions options;
    options.pool = &pool;
    Session session(lowered.graph, options);
    StateFeed feed(data, graph);
    std::size_t i = 0;
    for (std::int64_t at = 0, to = 0; at < windows; at = to) {
      to = data.batch_end(at, windows, 4);
      const Batch batch = data.read(at, to, &pool);
      visit(feed.run(session, batch)[0], batch, i++);
    }
  }

  TokenMetrics judge(const Graph& graph, ThreadPool& pool) {
    TokenMetrics metrics;
    each(graph, pool, [&](const Tensor& out, const Batch& batch, std::size_t i) {
      metrics.add(out, batch.targets, &logits[i], &pool);
    });
    return metrics;
  }
};

// Processes that share a list of jobs: who makes the file has the job. Rows of a job that was claimed and
// never written are had again once somebody removes OUT.claims.
bool claim(const std::string& out, const std::string& job) {
  std::string name = job;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  const std::string folder = out + ".claims";
  ::mkdir(folder.c_str(), 0777);
  const int file = ::open((folder + "/" + name).c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666);
  if (file < 0) return false;
  ::close(file);
  return true;
}

bool done_before(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.find(key) != std::string::npos) return true;
  return false;
}

int run(int argc, char** argv) {
  if (argc < 9) {
    for (const Named& row : table()) fmt::print("{}\n", row.name);
    fmt::print(stderr, "usage: language_bench MODEL CALIBRATION VALID OUT PART FIT WINDOWS JOB...\n");
    return 2;
  }
  const std::string model = argv[1], out = argv[4];
  const std::int64_t given_part = std::stoll(argv[5]), given_fit = std::stoll(argv[6]),
                     windows = std::stoll(argv[7]);
  ThreadPool pool(available_threads());
  Graph graph = load_model(model);
  SimplifyOptions simple;
  simple.pool = &pool;
  simplify(graph, simple);
  const auto text = [&](const char* path) {
    DatasetSpec spec;
    spec.path = path;
    spec.window = 512;
    spec.batch = 4;
    complete_text(spec, model);
    return spec;
  };
  Judge judge(text(argv[3]), graph, windows, pool);
  LayerGrams grams;
  std::int64_t grams_part = 0, grams_fit = 0;
  std::map<std::string, std::vector<TensorStats>> statistics;  // by scheme: what is watched differs
  for (int i = 8; i < argc; ++i) {
    const Job job = parse(argv[i]);
    std::int64_t part = given_part, fit = given_fit;
    for (const std::string& option : job.options) {
      if (option.rfind("part=", 0) == 0) part = std::stoll(option.substr(5));
      if (option.rfind("fit=", 0) == 0) fit = std::stoll(option.substr(4));
    }
    const std::int64_t held = std::max<std::int64_t>(fit / 16, 1);
    const std::string key = fmt::format("\"job\": \"{}\", \"part\": {}, \"fit\": {}", job.text, part, fit);
    if (done_before(out, key) || !claim(out, key)) continue;
    const auto start = Clock::now();
    QuantizeSpec q;
    const Named* named = nullptr;
    for (const Named& row : table())
      if (job.scheme == row.name) named = &row;
    if (named == nullptr) {
      fmt::print(stderr, "no scheme '{}'\n", job.scheme);
      return 2;
    }
    named->set(q);
    q.method = job.method;
    q.ignore = {"re:.*lm_head.*"};
    q.share = {"qkv", "gate_up"};
    q.activations.calibrator = "minmax";
    if (job.has("kv")) q.kv_cache = "fp8";
    for (const std::string& option : job.options)
      if (option.rfind("cal=", 0) == 0) q.activations.calibrator = option.substr(4);
    QuantizeChoices choices = quantize_choices(q);
    if (job.has("inputs")) choices.inputs = "quantized";
    choices.rotate = job.has("rotate");
    choices.in_order.residual = !job.has("nostream");
    for (const std::string& option : job.options) {
      if (option.rfind("ridge=", 0) == 0) choices.in_order.ridge = std::stod(option.substr(6));
      if (option.rfind("scaling=", 0) == 0) choices.scaling = option.substr(8);
      if (option.rfind("effort=", 0) == 0) choices.solve.layer.rounding.effort = std::stoi(option.substr(7));
    }
    DatasetSpec calibration = text(argv[2]);
    calibration.skip = fit * (part - 1);
    calibration.samples = fit;
    Dataset all(calibration, model_inputs(graph));
    const bool automatic = q.method == "auto";
    DatasetSpec shorter = calibration;
    if (automatic) shorter.samples = fit - held;
    Dataset data(shorter, model_inputs(graph));
    QuantizeInput input;
    input.graph = &graph;
    input.pool = &pool;
    input.calibration = &data;
    if (automatic) {
      input.held_out = &all;
      input.held_out_range = {fit - held, fit};
    }
    if (wants_grams(q.method) || automatic) {
      if (grams.empty() || part != grams_part || fit != grams_fit) {
        grams_part = part;
        grams_fit = fit;
        quant::Placement placement = quant::place(graph, choices.spec);
        for (quant::WeightSite& site : placement.weights) site.method = "learned";
        grams = LayerGrams::collect(graph, placement, all, pool, nullptr);
      }
      input.grams = &grams;
    }
    const std::vector<CalibratedValue> values = calibrated_values(graph, &choices.spec);
    if (!values.empty()) {
      std::vector<TensorStats>& stats =
          statistics[fmt::format("{} {} {} ", job.scheme, part, fit) +
                     (automatic || choices.scaling.empty() ? "" : choices.scaling)];
      if (stats.empty()) {
        CalibrateOptions options;
        options.pool = &pool;
        options.graph_hash = "-";
        stats = calibrate(graph, values, data, options).statistics.tensors;
      }
      input.stats = stats;
    }
    QuantizeOutcome outcome = quantize_model(input, choices);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const TokenMetrics m = judge.judge(outcome.quantized, pool);
    std::map<std::string, int> methods;
    for (const quant::WeightPlan& plan : outcome.plan.weights) ++methods[plan.record.method];
    std::string used;
    for (const auto& [name, count] : methods)
      used += fmt::format("{}{} {}", used.empty() ? "" : ", ", count, name);
    for (const ScoredCandidate& c : outcome.candidates)
      used += fmt::format("; {}{} {:.2f} dB", c.chosen ? "*" : "", c.name, c.held_out_sqnr_db);
    const std::string line = fmt::format(
        "{{{}, \"scheme\": \"{}\", \"method\": \"{}\", \"windows\": {}, \"kl\": {:.6f}, \"agreement\": "
        "{:.4f}, "
        "\"perplexity\": {:.4f}, \"reference\": {:.4f}, \"seconds\": {:.1f}, \"used\": \"{}\"}}\n",
        key, job.scheme, job.method, judge.windows, m.kl(), m.agreement(), m.perplexity(), judge.perplexity,
        seconds, used);
    std::FILE* file = std::fopen(out.c_str(), "a");
    if (file == nullptr) return 1;
    std::fputs(line.c_str(), file);
    std::fclose(file);
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const pare::Error& error) {
    fmt::print(stderr, "{} {} {}\n", error.what(), error.where(), error.hint());
    return 1;
  }
}
