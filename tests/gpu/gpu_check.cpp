// What only a GPU can show, run by scripts/gpu/check:
//
//   pare_gpu_check tactics MODEL BATCH PRECISION   every tactic of every layer against the plan's reference
//   pare_gpu_check engine MODEL BATCH PRECISION    the tuned engine against the float32 CPU session, and its
//   speed
//   pare_gpu_check reference MODEL BATCH PRECISION  what the plan computes by plain loops against the float32
//   CPU session: what its rounding costs, without any kernel; needs no GPU pare_gpu_check kernels MODEL BATCH
//   PRECISION   texts of all generated kernels into the folder PARE_DUMP, for a look at what the assembler
//   says about them; needs no GPU
//
// Prints a line a check; exit code 1 when one is beyond its tolerance. Tolerance, relative to the largest
// value of an output: what is stored has rounding 2^-11 (float16) or 2^-8 (bfloat16), operands carry none of
// ours (the reference reads the same bits), sums are float32; 4 units cover fast exponentials and the order
// of sums. float32: products on tensor cores are not used, 2^-16 covers sums of up to 2^8 roundings at
// random. 8 bit codes: one code of 127.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "datasets/dataset.h"
#include "engine/base/error.h"
#include "engine/build/backend.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/build/profile.h"
#include "engine/cuda/kernel_source.h"
#include "engine/run/session.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/simplify.h"

namespace pare {
namespace {

DType precision_of(const std::string& text) {
  if (text == "fp32") return DType::kF32;
  return text == "bf16" ? DType::kBF16 : DType::kF16;
}

double tolerance(const EnginePlan& plan, const TacticCheck& check) {
  for (const PlanLayer& layer : plan.layers)
    if (layer.name == check.layer) {
      const DType type = plan.tensors[static_cast<std::size_t>(layer.out[0].tensor)].dtype;
      // The checker counts codes in 127ths.
      if (bits(type) == 8 || copies_codes(layer)) return 1.01 / 127;
      // int8 codes among floats: one code of at least 32, what 2 deviations of random sums come to.
      if (layer.in.size() > kYScales && layer.in[kYScales].present()) return 1.01 / 32;
    }
  return plan.precision == "float32" ? 1.0 / 65536 : plan.precision == "bfloat16" ? 4.0 / 256 : 4.0 / 2048;
}

double sqnr(const Tensor& want, const Tensor& got) {
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double a = static_cast<double>(want.as<float>()[i]),
                 d = a - static_cast<double>(got.as<float>()[i]);
    signal += a * a;
    noise += d * d;
  }
  return noise == 0 ? 999 : 10 * std::log10(signal / noise);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int dump(const EnginePlan& plan) {
  const char* folder = std::getenv("PARE_DUMP");
  if (folder == nullptr) fail(ErrorCode::kUsage, "PARE_DUMP names no folder");
  int count = 0;
  for (const PlanLayer& layer : plan.layers) {
    std::string why;
    for (const cuda::KernelSource& s : cuda::generated_kernels(plan, layer, why)) {
      std::string file = fmt::format("{}_{}_{}.cu", count++, layer.name, s.tactic);
      for (char& c : file)
        if (c == '/' || c == ':' || c == ' ') c = '_';
      std::ofstream(std::string(folder) + "/" + file) << cuda::prelude() << s.code;
    }
  }
  std::printf("%d kernels\n", count);
  return 0;
}

int run(const std::string& mode, const std::string& path, std::int64_t batch, const std::string& precision) {
  Graph graph = load_model(path);
  SimplifyOptions simplest;
  simplest.self_check = false;
  simplify(graph, simplest);
  const std::vector<Tensor> inputs = synthetic_inputs(model_inputs(graph), batch, {}, 1);
  Graph sized = fix_sizes(graph, batch, {});
  simplify(sized, simplest);
  PlanOptions options;
  options.precision = precision_of(precision);
  options.shortcuts =
      std::getenv("PARE_GPU_SHORTCUTS") != nullptr;  // those that are taken where they are faster
  EnginePlan plan = make_plan(sized, options);
  plan_memory(plan);
  if (mode == "kernels") return dump(plan);
  if (mode == "reference") {
    ThreadPool pool(2);
    const Lowered lowered = lower_for_cpu(graph, {});
    SessionOptions session_options;
    session_options.pool = &pool;
    Session session(lowered.graph, session_options);
    const std::vector<Tensor> want = session.run(inputs), got = run_plan_reference(plan, inputs);
    for (std::size_t i = 0; i < want.size(); ++i)
      std::printf("output %zu: SQNR %.1f dB, the plan's reference against float32 on the CPU\n", i,
                  sqnr(want[i], got[i]));
    return 0;
  }
  EngineBackend& backend = cuda_backend();
  int bad = 0;
  if (mode == "tactics") {
    int good = 0;
    for (const TacticCheck& check : backend.check_tactics(plan)) {
      const bool ok = check.failed.empty() && check.guards && check.error <= tolerance(plan, check);
      if (ok)
        ++good;
      else {
        ++bad;
        std::printf("BAD %s %s error %.3g guards %d %s\n", check.layer.c_str(), check.tactic.c_str(),
                    check.error, check.guards ? 1 : 0, check.failed.substr(0, 300).c_str());
      }
    }
    std::printf("%s b%lld %s: %d tactics right, %d wrong\n", path.c_str(), static_cast<long long>(batch),
                precision.c_str(), good, bad);
    return bad == 0 ? 0 : 1;
  }
  TimingCache cache;
  TuneOptions tune;
  tune.cache = &cache;
  if (std::getenv("PARE_TACTICS") != nullptr)
    tune.log = [](const std::string& line) { std::printf("%s\n", line.c_str()), std::fflush(stdout); };
  const auto start = std::chrono::steady_clock::now();
  const TuneReport report = backend.tune(plan, tune);
  plan_memory(plan);
  const double tuned = seconds_since(start);
  const auto loading = std::chrono::steady_clock::now();
  const auto runner = backend.load(plan);
  const double loaded = seconds_since(loading);
  const std::vector<Tensor> outputs = runner->run(inputs);
  const BenchTimes times = runner->bench(100, 10);
  std::vector<double> ms = times.milliseconds;
  std::sort(ms.begin(), ms.end());
  std::printf("%s", to_text(plan).c_str());
  if (std::getenv("PARE_DECLINED") != nullptr)
    for (const std::string& line : report.declined) std::printf("declined %s\n", line.c_str());
  std::printf(
      "%s b%lld %s: %d kernels, %d compiled in %.1f s, %d layers timed in %.1f s, tuned in %.1f s, loaded in "
      "%.2f s\n",
      path.c_str(), static_cast<long long>(batch), precision.c_str(), count_kernels(plan), report.compiled,
      report.compile_seconds, report.timed, report.timing_seconds, tuned, loaded);
  std::printf("median %.4f ms min %.4f, with copies %.4f ms\n", ms[ms.size() / 2], ms[0],
              times.with_copies_ms);
  double sum = 0;
  for (const PlanLayer& layer : plan.layers) sum += layer.microseconds;
  std::printf("sum of layers %.1f us\n", sum);
  if (batch <= 8) {
    ThreadPool pool(16);
    const Lowered lowered = lower_for_cpu(graph, {});
    SessionOptions session_options;
    session_options.pool = &pool;
    Session session(lowered.graph, session_options);
    const std::vector<Tensor> want = session.run(inputs);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double db = sqnr(want[i], outputs[i]);
      std::printf("output %zu: SQNR %.1f dB against float32 on the CPU\n", i, db);
      if (!(db > (precision == "fp32" ? 60 : 25))) bad = 1;
    }
  }
  return bad;
}

}  // namespace
}  // namespace pare

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr,
                 "usage: pare_gpu_check tactics|engine|reference|kernels MODEL BATCH fp32|fp16|bf16\n");
    return 2;
  }
  try {
    return pare::run(argv[1], argv[2], std::atoll(argv[3]), argv[4]);
  } catch (const pare::Error& error) {
    std::fprintf(stderr, "%s (%s) %s\n", error.what(), error.where().c_str(), error.hint().c_str());
    return 5;
  }
}
