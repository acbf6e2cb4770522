// A model with Q/DQ evaluated as float fake quantization and through integer kernels, alternating, beside its
// float original: times, how far the outputs are apart, and which kernels took the time.
// Usage: integer_bench QDQ.onnx [FLOAT.onnx | -] [batch = 64] [threads = 2] [isa] [profile | nodes]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "engine/base/error.h"
#include "engine/base/isa.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"

namespace {

using namespace pare;  // NOLINT: a program of its own

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<Session> open(const Graph& graph, bool integer, ThreadPool& pool, bool profile,
                              bool verbose) {
  LowerOptions options;
  options.integer = integer;
  const Lowered lowered = lower_for_cpu(graph, options);
  for (const Realized& row : lowered.realized)
    if (verbose && !row.why.empty())
      fmt::print("  {} {}: {} ({})\n", row.op, row.node, row.realized, row.why);
  SessionOptions session;
  session.pool = &pool;
  session.profile = profile;
  return std::make_unique<Session>(lowered.graph, session);
}

void print_profile(const Session& session, bool by_node) {
  std::map<std::string, double> by_kernel;
  for (const Session::Profile& p : session.profile())
    by_kernel[by_node ? p.kernel + " " + session.graph().node(p.node).name : p.kernel] +=
        p.seconds / static_cast<double>(p.runs);
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [kernel, seconds] : by_kernel) rows.emplace_back(seconds, kernel);
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [seconds, kernel] : rows) fmt::print("    {:9.3f} ms  {}\n", seconds * 1e3, kernel);
}

int run(int argc, char** argv) {
  const auto text = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  if (argc < 2) fail(ErrorCode::kUsage, "which model?");
  if (!text(5, "").empty()) set_isa(isa_from_name(text(5, "")));
  const bool by_node = text(6, "") == "nodes", profile = by_node || text(6, "") == "profile";
  ThreadPool pool(std::atoi(text(4, "2").c_str()));
  const auto load = [&](const std::string& path) {
    Graph graph = load_model(path);
    SimplifyOptions options;
    options.self_check = false;
    simplify(graph, options);
    return graph;
  };
  const Graph quantized = load(argv[1]);
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(open(quantized, false, pool, profile, false));
  sessions.push_back(open(quantized, true, pool, profile, true));
  if (text(2, "-") != "-") sessions.push_back(open(load(argv[2]), false, pool, profile, false));
  const char* const names[] = {"fake", "integer", "float"};

  Dims dims;
  for (const Dim& d : quantized.value(quantized.inputs[0]).shape.dims)
    dims.push_back(d.known() ? d.value : std::atoll(text(3, "64").c_str()));
  Tensor x = Tensor::allocate(DType::kF32, dims);
  std::mt19937 rng(1);
  std::normal_distribution<float> draw;
  for (std::int64_t i = 0; i < x.size(); ++i) x.mut<float>()[i] = draw(rng);

  std::vector<Tensor> out;
  for (const auto& session : sessions) out.push_back(session->run({x})[0]);
  const auto sqnr = [&](const Tensor& a, const Tensor& b) {
    double signal = 0, noise = 0;
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const double va = a.as<float>()[i], vb = b.as<float>()[i];
      signal += va * va, noise += (va - vb) * (va - vb);
    }
    return noise == 0 ? INFINITY : 10 * std::log10(signal / noise);
  };
  fmt::print("integer against fake: {:.1f} dB\n", sqnr(out[0], out[1]));
  if (out.size() > 2) fmt::print("fake against float: {:.1f} dB\n", sqnr(out[2], out[0]));

  std::vector<std::vector<double>> seconds(sessions.size());
  for (int repeat = 0; repeat < 15; ++repeat)
    for (std::size_t i = 0; i < sessions.size(); ++i)
      seconds[i].push_back(seconds_of([&] { sessions[i]->run({x}); }));
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    std::sort(seconds[i].begin(), seconds[i].end());
    fmt::print("{:<8} median {:8.3f} ms, least {:8.3f} ms ({}, {} threads)\n", names[i], seconds[i][7] * 1e3,
               seconds[i][0] * 1e3, name(isa()), pool.threads());
    if (profile) print_profile(*sessions[i], by_node);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "integer_bench: {} {} {}\n", error.what(), error.where(), error.hint());
    return static_cast<int>(error.code());
  }
}
