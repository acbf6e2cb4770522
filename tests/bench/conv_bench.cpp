// Float32 convolutions and products of the three fashion models, layer by layer, each beside the machine's
// ceiling. The result of each layer is compared with the plain gathered kernel (or the reference) before it
// is timed. Usage: conv_bench [threads = 2] [batch = 64] [part of a model's name] [instruction class] With
// one thread, times are processor seconds of that thread, so a busy machine still gives figures.
#include <time.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/isa.h"
#include "engine/ops/registry.h"
#include "tests/bench/bench.h"
#include "tests/bench/fma_peak_simd.h"

namespace {

using namespace pare;  // NOLINT: a program of its own

struct Layer {
  const char* model;
  int count;               // how often the model has it
  std::int64_t map, c, m;  // map x map x c to m channels
  std::int64_t kernel, stride, group;
  const char* activation;
  bool residual;
};

// A kernel of 0 is a product: map rows an image, c x m.
const Layer kLayers[] = {
    {"resnet", 1, 28, 1, 32, 3, 1, 1, "Relu", false},
    {"resnet", 2, 28, 32, 32, 3, 1, 1, "Relu", false},
    {"resnet", 2, 28, 32, 32, 3, 1, 1, "Relu", true},
    {"resnet", 1, 28, 32, 64, 3, 2, 1, "Relu", false},
    {"resnet", 1, 28, 32, 64, 1, 2, 1, "", false},
    {"resnet", 1, 14, 64, 64, 3, 1, 1, "Relu", false},
    {"resnet", 2, 14, 64, 64, 3, 1, 1, "Relu", true},
    {"resnet", 1, 14, 64, 128, 3, 2, 1, "Relu", false},
    {"resnet", 1, 14, 64, 128, 1, 2, 1, "", false},
    {"resnet", 3, 7, 128, 128, 3, 1, 1, "Relu", true},
    {"resnet", 1, 7, 128, 256, 3, 2, 1, "Relu", false},
    {"resnet", 1, 7, 128, 256, 1, 2, 1, "", false},
    {"resnet", 3, 4, 256, 256, 3, 1, 1, "Relu", true},
    {"mobilenet", 1, 28, 1, 16, 3, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 28, 16, 48, 1, 1, 1, "Relu", false},
    {"mobilenet", 1, 28, 48, 48, 3, 1, 48, "Relu", false},
    {"mobilenet", 1, 28, 48, 24, 1, 1, 1, "", false},
    {"mobilenet", 1, 28, 24, 72, 1, 1, 1, "Relu", false},
    {"mobilenet", 1, 28, 72, 72, 3, 1, 72, "Relu", false},
    {"mobilenet", 1, 28, 72, 24, 1, 1, 1, "", true},
    {"mobilenet", 1, 28, 24, 96, 1, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 28, 96, 96, 3, 2, 96, "HardSwish", false},
    {"mobilenet", 1, 1, 96, 24, 1, 1, 1, "Relu", false},
    {"mobilenet", 1, 1, 24, 96, 1, 1, 1, "HardSigmoid", false},
    {"mobilenet", 1, 14, 96, 40, 1, 1, 1, "", false},
    {"mobilenet", 1, 14, 40, 160, 1, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 14, 160, 160, 3, 1, 160, "HardSwish", false},
    {"mobilenet", 1, 14, 160, 40, 1, 1, 1, "", true},
    {"mobilenet", 1, 14, 40, 200, 1, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 14, 200, 200, 3, 2, 200, "HardSwish", false},
    {"mobilenet", 1, 7, 200, 80, 1, 1, 1, "", false},
    {"mobilenet", 1, 7, 80, 400, 1, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 7, 400, 400, 3, 1, 400, "HardSwish", false},
    {"mobilenet", 1, 7, 400, 80, 1, 1, 1, "", true},
    {"mobilenet", 1, 7, 80, 480, 1, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 7, 480, 480, 3, 1, 480, "HardSwish", false},
    {"mobilenet", 1, 7, 480, 112, 1, 1, 1, "", false},
    {"mobilenet", 1, 7, 112, 672, 1, 1, 1, "HardSwish", false},
    {"mobilenet", 1, 7, 672, 672, 3, 1, 672, "HardSwish", false},
    {"mobilenet", 1, 7, 672, 112, 1, 1, 1, "", true},
    {"mobilenet", 1, 7, 112, 480, 1, 1, 1, "HardSwish", false},
    {"vit", 1, 28, 1, 192, 4, 4, 1, "", false},
    {"vit", 6, 50, 192, 576, 0, 1, 1, "", false},
    {"vit", 6, 50, 192, 192, 0, 1, 1, "", true},
    {"vit", 6, 50, 192, 768, 0, 1, 1, "Gelu", false},
    {"vit", 6, 50, 768, 192, 0, 1, 1, "", true},
};

struct Problem {
  Node node;
  Dims out;
  std::vector<Tensor> in;
  double flops = 0;
};

Tensor random_floats(Dims dims, std::uint32_t seed) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    t.mut<float>()[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  }
  return t;
}

Problem make_problem(const Layer& l, std::int64_t batch) {
  Problem p;
  p.node.domain = "pare";
  p.node.attrs["activation"] = std::string(l.activation);
  if (l.kernel == 0) {
    p.node.op = "MatMul";
    p.in = {random_floats({batch, l.map, l.c}, 1), random_floats({l.c, l.m}, 2), random_floats({l.m}, 3)};
    p.out = {batch, l.map, l.m};
    p.flops = 2.0 * static_cast<double>(batch * l.map * l.c * l.m);
  } else {
    p.node.op = "Conv";
    const std::int64_t pad = l.kernel == 3 ? 1 : 0, size = (l.map + 2 * pad - l.kernel) / l.stride + 1;
    p.node.attrs["strides"] = std::vector<std::int64_t>{l.stride, l.stride};
    p.node.attrs["pads"] = std::vector<std::int64_t>(4, pad);
    p.node.attrs["group"] = l.group;
    p.in = {random_floats({batch, l.map, l.map, l.c}, 1),
            random_floats({l.m, l.c / l.group, l.kernel, l.kernel}, 2), random_floats({l.m}, 3)};
    p.out = {batch, size, size, l.m};
    p.flops = 2.0 * static_cast<double>(batch * size * size * l.m * l.c / l.group * l.kernel * l.kernel);
  }
  if (l.residual) p.in.push_back(random_floats(p.out, 4));
  return p;
}

// A call that can be repeated.
class Runner {
 public:
  Runner(const Problem& p, ThreadPool& pool) : y_(Tensor::allocate(DType::kF32, p.out)) {
    for (const Tensor& t : p.in) in_.push_back(t.view());
    out_ = {y_.view()};
    call_.node = &p.node;
    call_.in = in_;
    call_.out = out_;
    call_.pool = &pool;
    call_.scratch = &scratch_;
  }
  std::string prepare(const Kernel& kernel) {
    kernel_ = &kernel;
    if (std::string why = kernel.why_not(call_); !why.empty()) return why;
    if (kernel.prepare != nullptr) prepared_ = kernel.prepare(call_);
    call_.prepared = prepared_.get();
    return "";
  }
  void run() { kernel_->run(call_); }
  const Tensor& y() const { return y_; }

 private:
  Tensor y_;
  std::vector<TensorView> in_, out_;
  Scratch scratch_;
  OpCall call_;
  const Kernel* kernel_ = nullptr;
  std::shared_ptr<const void> prepared_;
};

double now(bool thread_time) {
  timespec t{};
  clock_gettime(thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename Work>
double median_seconds(bool thread_time, const Work& work) {
  work();
  double start = now(thread_time);
  work();
  const double once = std::max(now(thread_time) - start, 1e-7);
  const int inner = std::max(1, static_cast<int>(0.004 / once));
  std::vector<double> seconds;
  for (int i = 0; i < 11; ++i) {
    start = now(thread_time);
    for (int j = 0; j < inner; ++j) work();
    seconds.push_back((now(thread_time) - start) / inner);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

double peak_gflops(bool thread_time, ThreadPool& pool) {
  constexpr std::int64_t kSteps = 1 << 20;
  const auto chains = PARE_SIMD_PICK(fma_chains);
  volatile float keep = 0;
  const double seconds = median_seconds(thread_time, [&] {
    pool.parallel_for(pool.threads(), 1, [&](std::int64_t, std::int64_t) { keep = chains(kSteps); });
  });
  return 24.0 * kSteps * PARE_SIMD_PICK(fma_lanes)() * pool.threads() / seconds * 1e-9;
}

// The largest difference of the first image from `expected`, relative to its root mean square.
double worst_difference(const Tensor& y, const Tensor& expected) {
  double power = 0, worst = 0;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    const auto e = static_cast<double>(expected.as<float>()[i]);
    power += e * e;
    worst = std::max(worst, std::fabs(static_cast<double>(y.as<float>()[i]) - e));
  }
  return worst / std::sqrt(power / static_cast<double>(expected.size()) + 1e-30);
}

bool bench_layer(const Layer& layer, std::int64_t batch, ThreadPool& pool, double peak, double& total) {
  const Problem p = make_problem(layer, batch), one = make_problem(layer, 1);
  const auto kernels = cpu_registry().candidates("pare", p.node.op, Backend::kCpu);
  Runner expected(one, pool);
  if (!expected.prepare(*kernels.back()).empty()) return false;
  expected.run();
  for (const Kernel* kernel : kernels) {
    Runner runner(p, pool);
    if (!runner.prepare(*kernel).empty()) continue;
    runner.run();
    const bool right = worst_difference(runner.y(), expected.y()) < 1e-4;
    const double seconds = median_seconds(pool.threads() == 1, [&] { runner.run(); });
    const double gflops = p.flops / seconds * 1e-9;
    fmt::print(
        "{{\"model\":\"{}\",\"batch\":{},\"layer\":\"{}x{}x{}-{} k{} s{} g{} "
        "{}{}\",\"count\":{},\"kernel\":\"{}\","
        "\"us\":{:.1f},\"gflops\":{:.1f},\"share_of_peak\":{:.2f}{}}}\n",
        layer.model, batch, layer.map, layer.map, layer.c, layer.m, layer.kernel, layer.stride, layer.group,
        layer.activation, layer.residual ? "+residual" : "", layer.count, kernel->name, seconds * 1e6, gflops,
        gflops / peak, right ? "" : ",\"error\":\"wrong result\"");
    total += seconds * layer.count;
    return right;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::int64_t batch = argc > 2 ? std::atoll(argv[2]) : 64;
  const std::string filter = argc > 3 ? argv[3] : "";
  if (argc > 4) set_isa(isa_from_name(argv[4]));
  ThreadPool pool(std::max(1, threads));
  const double peak = peak_gflops(threads == 1, pool);
  fmt::print("{{\"isa\":\"{}\",\"threads\":{},\"peak_gflops\":{:.1f}}}\n", name(isa()), threads, peak);
  bool ok = true;
  for (const char* model : {"resnet", "mobilenet", "vit"}) {
    if (std::string(model).find(filter) == std::string::npos) continue;
    double total = 0;
    for (const Layer& layer : kLayers)
      if (std::string(layer.model) == model) ok &= bench_layer(layer, batch, pool, peak, total);
    fmt::print("{{\"model\":\"{}\",\"batch\":{},\"sum_ms\":{:.3f}}}\n", model, batch, total * 1e3);
  }
  return ok ? 0 : 1;
}
