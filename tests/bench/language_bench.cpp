// Schemes and methods on a language model: one JSON line a row with the KL divergence from the float model,
// the agreement of the first choice and the perplexity of the quantized one (docs/accuracy.md,
// scripts/llm-accuracy).
//
//   language_bench MODEL CALIBRATION.txt VALID.txt OUT.jsonl PART FIT WINDOWS JOB...
//
// PART 1, 2, 3: windows [FIT (PART - 1), FIT PART) of 512 tokens of the calibration text. WINDOWS of the
// other text are judged (0: all). JOB: SCHEME:METHOD[:OPTION,...] of the table below; Options: inputs,
// model (objective), rotate, scaling=awq, kv (an FP8 cache), zeros and fitted (activations with zero points,
// with searched scales), ridge=, odamp=, alpha=, part=, fit= ..., threads= (what one row runs on; not part of
// its name). Second moments and the float model's logits are had once for all jobs; moments of gradients also
// by later processes, where there is a folder OUT.jsonl.moments to keep them in (hundreds of MB a part). A
// row that is in OUT.jsonl already is left out. An argument `together` among the jobs: rows run beside each
// other, as many as the processors have room for; where it is missing a row has all processors.
#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "calib/calibrate.h"
#include "datasets/state_feed.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/task/text.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"
#include "quant/placement/activation.h"
#include "recipes/quant_spec.h"
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
  int threads = 0;  // 0: one, or all where rows do not run together
  bool has(const char* option) const {
    return std::find(options.begin(), options.end(), option) != options.end();
  }
};

Job parse(const std::string& text) {
  Job job;
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  job.scheme = text.substr(0, first);
  job.method = text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  job.text = text.substr(0, second);
  for (std::size_t at = second; at != std::string::npos;) {
    const std::size_t end = text.find(',', at + 1);
    const std::string option = text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    at = end;
    if (option.rfind("threads=", 0) == 0) {
      job.threads = std::stoi(option.substr(8));
      continue;
    }
    job.text += (job.options.empty() ? ":" : ",") + option;
    job.options.push_back(option);
  }
  return job;
}

// Logits of the float model, held as they are: the judge of every row.
struct Judge {
  DatasetSpec spec;
  std::int64_t windows;
  std::vector<Tensor> logits;
  double perplexity = 0;

  Judge(const DatasetSpec& of, const Graph& graph, std::int64_t wanted, ThreadPool& pool)
      : spec(of), windows(wanted > 0 ? wanted : Dataset(of, model_inputs(graph)).sample_count()) {
    TokenMetrics metrics;
    each(graph, pool, [&](const Tensor& out, const Batch& batch, std::size_t) {
      metrics.add(out, batch.targets, nullptr, &pool);
      logits.push_back(out);
    });
    perplexity = metrics.perplexity();
  }

  template <class Visit>
  void each(const Graph& graph, ThreadPool& pool, Visit&& visit) const {
    const Lowered lowered = lower_for_cpu(graph);
    SessionOptions options;
    options.pool = &pool;
    Session session(lowered.graph, options);
    Dataset data(spec, model_inputs(graph));
    StateFeed feed(data, graph);
    std::size_t i = 0;
    for (std::int64_t at = 0, to = 0; at < windows; at = to) {
      to = data.batch_end(at, windows, 4);
      const Batch batch = data.read(at, to, &pool);
      visit(feed.run(session, batch)[0], batch, i++);
    }
  }

  TokenMetrics judge(const Graph& graph, ThreadPool& pool) const {
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

// Matrices of one kind in a file, as they lie in memory: the next process has the same bits.
class MomentsFile {
 public:
  MomentsFile(const std::string& path, const char* mode)
      : path_(path), file_(std::fopen(path.c_str(), mode)) {}
  ~MomentsFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  MomentsFile(const MomentsFile&) = delete;
  MomentsFile& operator=(const MomentsFile&) = delete;
  bool there() const { return file_ != nullptr; }

  void write(const Gram& gram) {
    const std::uint64_t sizes[] = {static_cast<std::uint64_t>(gram.n), gram.count, gram.nonfinite,
                                   gram.sums.size(), gram.totals.size()};
    put(sizes, sizeof sizes);
    put(gram.sums.data(), gram.sums.size() * sizeof(double));
    put(gram.totals.data(), gram.totals.size() * sizeof(double));
  }
  void read(Gram& gram) {
    std::uint64_t sizes[5];
    get(sizes, sizeof sizes);
    gram.n = static_cast<std::int64_t>(sizes[0]);
    gram.count = sizes[1];
    gram.nonfinite = sizes[2];
    gram.sums.resize(sizes[3]);
    gram.totals.resize(sizes[4]);
    get(gram.sums.data(), gram.sums.size() * sizeof(double));
    get(gram.totals.data(), gram.totals.size() * sizeof(double));
  }

 private:
  void put(const void* data, std::size_t bytes) {
    if (std::fwrite(data, 1, bytes, file_) != bytes)
      throw make_error(ErrorCode::kDevice, "cannot write the moments").at(path_);
  }
  void get(void* data, std::size_t bytes) {
    if (std::fread(data, 1, bytes, file_) != bytes)
      throw make_error(ErrorCode::kDevice, "the file of moments is cut off").at(path_).hint("remove it");
  }
  std::string path_;
  std::FILE* file_;
};

// What all rows share, made when the first asks, by all processors.
class Shared {
 public:
  Shared(const std::string& model, const char* calibration, const char* valid, std::string kept,
         std::int64_t windows)
      : model_(model),
        calibration_(calibration),
        kept_(std::move(kept)),
        pool_(available_threads()),
        graph_(load_model(model)) {
    SimplifyOptions simple;
    simple.pool = &pool_;
    simplify(graph_, simple);
    judge_ = std::make_unique<Judge>(text(valid), graph_, windows, pool_);
  }

  const Graph& graph() const { return graph_; }
  const Judge& judge() const { return *judge_; }
  int threads() const { return pool_.threads(); }

  DatasetSpec calibration(std::int64_t part, std::int64_t fit) const {
    DatasetSpec spec = text(calibration_);
    spec.skip = fit * (part - 1);
    spec.samples = fit;
    return spec;
  }

  // Second moments before the layers of a part's windows; `of_model`: as its predictions see them.
  const LayerGrams& grams(const quant::Spec& spec, std::int64_t part, std::int64_t fit, bool of_model) {
    Slot<LayerGrams>& slot = slot_of(grams_, fmt::format("{} {} {}", part, fit, of_model));
    const std::lock_guard<std::mutex> lock(slot.mutex);
    if (slot.made.empty()) {
      quant::Placement placement = quant::place(graph_, spec);
      for (quant::WeightSite& site : placement.weights) site.method = "learned";
      const std::string file = of_model ? fmt::format("{}/{}-{}", kept_, part, fit) : std::string();
      if (of_model && kept(file, placement, slot.made)) return slot.made;
      Dataset data(calibration(part, fit), model_inputs(graph_));
      ThreadPool pool(threads());
      slot.made = of_model ? LayerGrams::collect_gradients(graph_, placement, data, pool, nullptr)
                           : LayerGrams::collect(graph_, placement, data, pool, nullptr);
      if (of_model) keep(file, placement, slot.made);
    }
    return slot.made;
  }

  // `samples`: fewer than the part has where windows are held out.
  const std::vector<TensorStats>& statistics(const std::vector<CalibratedValue>& values, std::int64_t part,
                                             std::int64_t fit, std::int64_t samples) {
    std::string key = fmt::format("{} {} {}", part, fit, samples);
    for (const CalibratedValue& value : values)
      key +=
          fmt::format(" {}/{}/{}", static_cast<int>(value.id), value.channel_axis, value.channel_histograms);
    Slot<std::vector<TensorStats>>& slot = slot_of(statistics_, key);
    const std::lock_guard<std::mutex> lock(slot.mutex);
    if (slot.made.empty()) {
      DatasetSpec spec = calibration(part, fit);
      spec.samples = samples;
      Dataset data(spec, model_inputs(graph_));
      ThreadPool pool(threads());
      CalibrateOptions options;
      options.pool = &pool;
      options.graph_hash = "-";
      slot.made = calibrate(graph_, values, data, options).statistics.tensors;
    }
    return slot.made;
  }

 private:
  static bool kept(const std::string& path, const quant::Placement& placement, LayerGrams& grams) {
    MomentsFile file(path, "rb");
    for (const quant::WeightSite& site : placement.weights) {
      if (!file.there()) break;
      GramPair pair;
      file.read(pair.fit);
      file.read(pair.outputs);
      grams.set(site.path, site.uses.at(0).node, std::move(pair));
    }
    return file.there();
  }
  // Nothing where the folder is missing.
  static void keep(const std::string& path, const quant::Placement& placement, const LayerGrams& grams) {
    const std::string part = path + ".part";
    {
      MomentsFile file(part, "wb");
      if (!file.there()) return;
      for (const quant::WeightSite& site : placement.weights) {
        const auto pair = grams.find(site);
        file.write(pair == nullptr ? Gram() : pair->fit);
        file.write(pair == nullptr ? Gram() : pair->outputs);
      }
    }
    std::rename(part.c_str(), path.c_str());
  }

  DatasetSpec text(const char* path) const {
    DatasetSpec spec;
    spec.path = path;
    spec.window = 512;
    spec.batch = 4;
    complete_text(spec, model_);
    return spec;
  }

  std::string model_;
  const char* calibration_;
  std::string kept_;  // folder of moments of gradients
  ThreadPool pool_;
  Graph graph_;
  std::unique_ptr<Judge> judge_;
  // Who comes first makes it, others wait for it and for nothing else.
  template <class T>
  struct Slot {
    std::mutex mutex;
    T made;
  };
  template <class T>
  Slot<T>& slot_of(std::map<std::string, Slot<T>>& slots, const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return slots[key];
  }
  std::mutex mutex_;  // of the maps
  std::map<std::string, Slot<LayerGrams>> grams_;
  std::map<std::string, Slot<std::vector<TensorStats>>> statistics_;
};

// One row, appended to `out`.
void measure(Shared& shared, const Job& job, std::int64_t part, std::int64_t fit, const std::string& key,
             const std::string& out, int threads) {
  const auto start = Clock::now();
  const Graph& graph = shared.graph();
  ThreadPool pool(threads);
  QuantizeSpec q;
  for (const Named& row : table())
    if (job.scheme == row.name) row.set(q);
  q.method = job.method;
  q.ignore = {"re:.*lm_head.*"};
  q.share = {"qkv", "gate_up"};
  q.activations.calibrator = "minmax";
  if (job.has("zeros")) q.activations.symmetric = false;
  if (job.has("fitted")) q.activations.search = "mse";
  if (job.has("kv")) q.kv_cache = "fp8";
  for (const std::string& option : job.options)
    if (option.rfind("cal=", 0) == 0) q.activations.calibrator = option.substr(4);
  QuantizeChoices choices = quantize_choices(q);
  if (job.has("inputs")) choices.inputs = "quantized";
  if (job.has("model")) choices.objective = "model";
  choices.rotate = job.has("rotate");
  choices.in_order.residual = !job.has("nostream");
  choices.in_order.rounded = !job.has("unrounded");
  for (const std::string& option : job.options) {
    if (option.rfind("ridge=", 0) == 0) choices.in_order.ridge = std::stod(option.substr(6));
    if (option.rfind("alpha=", 0) == 0) choices.alpha = std::stod(option.substr(6));
    if (option.rfind("odamp=", 0) == 0) choices.solve.layer.output_damp = std::stod(option.substr(6));
    if (option.rfind("scaling=", 0) == 0) choices.scaling = option.substr(8);
    if (option.rfind("effort=", 0) == 0) choices.solve.layer.rounding.effort = std::stoi(option.substr(7));
  }
  const bool automatic = q.method == "auto";
  const std::int64_t held = automatic ? std::max<std::int64_t>(fit / 16, 1) : 0;
  Dataset all(shared.calibration(part, fit), model_inputs(graph));
  DatasetSpec shorter = shared.calibration(part, fit);
  shorter.samples = fit - held;
  Dataset data(shorter, model_inputs(graph));
  QuantizeInput input;
  input.graph = &graph;
  input.pool = &pool;
  input.calibration = &data;
  if (automatic) {
    input.held_out = &all;
    input.held_out_range = {fit - held, fit};
  }
  if (wants_grams(q.method) || automatic)
    input.grams = &shared.grams(choices.spec, part, fit, job.has("model"));
  const std::vector<CalibratedValue> values = calibrated_values(graph, &choices.spec);
  if (!values.empty()) input.stats = shared.statistics(values, part, fit, fit - held);
  QuantizeOutcome outcome = quantize_model(input, choices);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const TokenMetrics m = shared.judge().judge(outcome.quantized, pool);
  std::map<std::string, int> methods;
  for (const quant::WeightPlan& plan : outcome.plan.weights) ++methods[plan.record.method];
  std::string used;
  for (const auto& [name, count] : methods)
    used += fmt::format("{}{} {}", used.empty() ? "" : ", ", count, name);
  for (const ScoredCandidate& c : outcome.candidates)
    used += fmt::format("; {}{} {:.2f} dB", c.chosen ? "*" : "", c.name, c.held_out_sqnr_db);
  if (!outcome.scaled.empty()) {
    double gain = 0;
    int folded = 0;
    for (const ScaledValue& v : outcome.scaled) {
      gain += v.predicted_gain_db / static_cast<double>(outcome.scaled.size());
      folded += v.folded ? 1 : 0;
    }
    used += fmt::format("; {} scaled, {} folded, mean gain {:.2f} dB", outcome.scaled.size(), folded, gain);
  }
  const std::string line = fmt::format(
      "{{{}, \"scheme\": \"{}\", \"method\": \"{}\", \"windows\": {}, \"kl\": {:.6f}, \"agreement\": "
      "{:.4f}, \"perplexity\": {:.4f}, \"reference\": {:.4f}, \"seconds\": {:.1f}, \"threads\": {}, "
      "\"used\": "
      "\"{}\"}}\n",
      key, job.scheme, job.method, shared.judge().windows, m.kl(), m.agreement(), m.perplexity(),
      shared.judge().perplexity, seconds, threads, used);
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::FILE* file = std::fopen(out.c_str(), "a");
  if (file == nullptr) throw make_error(ErrorCode::kDevice, "cannot write the row").at(out);
  std::fputs(line.c_str(), file);
  std::fclose(file);
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

// Jobs one after the other, or beside each other while their threads find room.
class Runner {
 public:
  Runner(Shared& shared, std::string out, std::int64_t part, std::int64_t fit)
      : shared_(shared), out_(std::move(out)), part_(part), fit_(fit), free_(shared.threads()) {}

  void run(const std::vector<Job>& jobs, bool together) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < jobs.size(); i = next++) one(jobs[i], together);
    };
    std::vector<std::thread> workers;
    for (int i = 1; together && i < shared_.threads(); ++i) workers.emplace_back(work);
    work();
    for (std::thread& worker : workers) worker.join();
  }

 private:
  void one(const Job& job, bool together) {
    std::int64_t part = part_, fit = fit_;
    for (const std::string& option : job.options) {
      if (option.rfind("part=", 0) == 0) part = std::stoll(option.substr(5));
      if (option.rfind("fit=", 0) == 0) fit = std::stoll(option.substr(4));
    }
    const std::string key = fmt::format("\"job\": \"{}\", \"part\": {}, \"fit\": {}", job.text, part, fit);
    if (done_before(out_, key) || !claim(out_, key)) return;
    const int wanted = job.threads > 0 ? job.threads : together ? 1 : shared_.threads();
    const int threads = std::min(wanted, shared_.threads());
    {
      std::unique_lock<std::mutex> lock(mutex_);
      room_.wait(lock, [&] { return free_ >= threads; });
      free_ -= threads;
    }
    try {
      measure(shared_, job, part, fit, key, out_, threads);
    } catch (const Error& error) {  // the other rows go on
      fmt::print(stderr, "{}: {} {} {}\n", job.text, error.what(), error.where(), error.hint());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    free_ += threads;
    room_.notify_all();
  }

  Shared& shared_;
  std::string out_;
  std::int64_t part_, fit_;
  std::mutex mutex_;
  std::condition_variable room_;
  int free_;
};

int run(int argc, char** argv) {
  if (argc < 9) {
    for (const Named& row : table()) fmt::print("{}\n", row.name);
    fmt::print(stderr,
               "usage: language_bench MODEL CALIBRATION VALID OUT PART FIT WINDOWS [together] JOB...\n");
    return 2;
  }
  std::vector<Job> jobs;
  bool together = false;
  for (int i = 8; i < argc; ++i) {
    if (std::string(argv[i]) == "together") {
      together = true;
      continue;
    }
    jobs.push_back(parse(argv[i]));
    const auto is_it = [&](const Named& row) { return jobs.back().scheme == row.name; };
    if (std::none_of(table().begin(), table().end(), is_it)) {
      fmt::print(stderr, "no scheme '{}'\n", jobs.back().scheme);
      return 2;
    }
  }
  Shared shared(argv[1], argv[2], argv[3], std::string(argv[4]) + ".moments", std::stoll(argv[7]));
  Runner(shared, argv[4], std::stoll(argv[5]), std::stoll(argv[6])).run(jobs, together);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Activations of a batch lie where the last one's did: fresh pages take a quarter of the time.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 256 << 20);
  try {
    return run(argc, argv);
  } catch (const pare::Error& error) {
    fmt::print(stderr, "{} {} {}\n", error.what(), error.where(), error.hint());
    return 1;
  }
}
