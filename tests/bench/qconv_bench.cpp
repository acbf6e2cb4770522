// Integer convolutions at the sizes of examples/fashion (ResNet, MobileNet; counts in brackets), every
// instruction class, beside the float32 kernel of the same layer where one is registered. The first image is
// compared with the reference before anything is timed.
// Usage: qconv_bench [batch = 64] [threads = 2] [part of a layer's name] [instruction class]
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/isa.h"
#include "engine/ops/integer/qlinear.h"
#include "engine/ops/registry.h"
#include "tests/bench/bench.h"

namespace {

using namespace pare;  // NOLINT: a program of its own

struct Layer {
  const char* name;
  std::int64_t size, c, m, kernel, stride, pad, group;
  int count;  // in its model
};

constexpr Layer kLayers[] = {
    {"resnet/28_c1_m32", 28, 1, 32, 3, 1, 1, 1, 1},
    {"resnet/28_c32_m32", 28, 32, 32, 3, 1, 1, 1, 4},
    {"resnet/28_c32_m64_s2", 28, 32, 64, 3, 2, 1, 1, 1},
    {"resnet/14_c64_m64", 14, 64, 64, 3, 1, 1, 1, 3},
    {"resnet/28_c32_m64_1x1_s2", 28, 32, 64, 1, 2, 0, 1, 1},
    {"resnet/14_c64_m128_s2", 14, 64, 128, 3, 2, 1, 1, 1},
    {"resnet/7_c128_m128", 7, 128, 128, 3, 1, 1, 1, 3},
    {"resnet/14_c64_m128_1x1_s2", 14, 64, 128, 1, 2, 0, 1, 1},
    {"resnet/7_c128_m256_s2", 7, 128, 256, 3, 2, 1, 1, 1},
    {"resnet/4_c256_m256", 4, 256, 256, 3, 1, 1, 1, 3},
    {"resnet/7_c128_m256_1x1_s2", 7, 128, 256, 1, 2, 0, 1, 1},
    {"mobilenet/28_c16_m48_1x1", 28, 16, 48, 1, 1, 0, 1, 1},
    {"mobilenet/28_c48_dw", 28, 48, 48, 3, 1, 1, 48, 1},
    {"mobilenet/28_c48_m24_1x1", 28, 48, 24, 1, 1, 0, 1, 1},
    {"mobilenet/28_c24_m72_1x1", 28, 24, 72, 1, 1, 0, 1, 2},
    {"mobilenet/28_c72_dw", 28, 72, 72, 3, 1, 1, 72, 1},
    {"mobilenet/28_c96_dw_s2", 28, 96, 96, 3, 2, 1, 96, 1},
    {"mobilenet/14_c160_dw", 14, 160, 160, 3, 1, 1, 160, 1},
    {"mobilenet/14_c40_m160_1x1", 14, 40, 160, 1, 1, 0, 1, 2},
    {"mobilenet/14_c160_m40_1x1", 14, 160, 40, 1, 1, 0, 1, 1},
    {"mobilenet/7_c480_dw", 7, 480, 480, 3, 1, 1, 480, 1},
    {"mobilenet/7_c112_m672_1x1", 7, 112, 672, 1, 1, 0, 1, 1},
    {"mobilenet/7_c672_m112_1x1", 7, 672, 112, 1, 1, 0, 1, 1},
    {"mobilenet/1_c672_m168_1x1", 1, 672, 168, 1, 1, 0, 1, 1},
};

struct Options {
  std::int64_t batch;
  std::string filter, isa;
};

struct Bound {  // a call with everything it needs
  Node node;
  std::vector<Tensor> in;
  std::vector<TensorView> views;
  Tensor out;
  TensorView out_view;
  OpCall call;
  std::shared_ptr<const void> prepared;
  const Kernel* kernel = nullptr;
};

Tensor filled(DType type, Dims dims, std::mt19937& rng) {
  Tensor t = Tensor::allocate(type, std::move(dims));
  if (type == DType::kF32) {
    std::normal_distribution<float> draw;
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = draw(rng);
  } else {
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(rng());
  }
  return t;
}

void set_window(Node& node, const Layer& l) {
  node.attrs["strides"] = std::vector<std::int64_t>{l.stride, l.stride};
  node.attrs["dilations"] = std::vector<std::int64_t>{1, 1};
  node.attrs["pads"] = std::vector<std::int64_t>(4, l.pad);
  node.attrs["group"] = l.group;
  node.attrs["activation"] = std::string("Relu");
}

std::int64_t out_size(const Layer& l) { return (l.size + 2 * l.pad - l.kernel) / l.stride + 1; }

// Chooses the kernel and prepares it; false when none is registered.
bool bind(Bound& b, ThreadPool& pool, Scratch& scratch, const Kernel* kernel) {
  for (const Tensor& t : b.in) b.views.push_back(t.empty() ? TensorView{} : t.view());
  b.out_view = b.out.view();
  b.call.node = &b.node;
  b.call.pool = &pool;
  b.call.scratch = &scratch;
  b.call.in = b.views;
  b.call.out = {&b.out_view, 1};
  if (kernel == nullptr) {
    for (const Kernel* k : cpu_registry().candidates("pare", b.node.op, Backend::kCpu))
      if (kernel == nullptr && k->why_not(b.call).empty()) kernel = k;
    if (kernel == nullptr) return false;
  }
  b.kernel = kernel;
  if (kernel->prepare != nullptr) b.prepared = kernel->prepare(b.call);
  b.call.prepared = b.prepared.get();
  return true;
}

void make_integer(Bound& b, const Layer& l, std::int64_t batch) {
  std::mt19937 rng(1);
  b.node.domain = "pare";
  b.node.op = "QConv";
  set_window(b.node, l);
  b.in.resize(9);
  b.in[kQW] = filled(DType::kI8, {l.m, l.c / l.group, l.kernel, l.kernel}, rng);
  b.in[kQXScale] = Tensor::scalar(0.02f);
  b.in[kQWScale] = filled(DType::kF32, {l.m}, rng);
  b.in[kQBias] = filled(DType::kF32, {l.m}, rng);
  b.in[kQYScale] = Tensor::scalar(0.5f);
  const std::int8_t zero = 0;
  b.in[kQYZero] = Tensor::copy_of(DType::kI8, {}, &zero, 1);
  b.in[kQX] = filled(DType::kI8, {batch, l.size, l.size, l.c}, rng);
  b.out = Tensor::allocate(DType::kI8, {batch, out_size(l), out_size(l), l.m});
}

void make_float(Bound& b, const Layer& l, std::int64_t batch) {
  std::mt19937 rng(1);
  b.node.domain = "pare";
  b.node.op = "Conv";
  set_window(b.node, l);
  b.in = {filled(DType::kF32, {batch, l.size, l.size, l.c}, rng),
          filled(DType::kF32, {l.m, l.c / l.group, l.kernel, l.kernel}, rng),
          filled(DType::kF32, {l.m}, rng)};
  b.out = Tensor::allocate(DType::kF32, {batch, out_size(l), out_size(l), l.m});
}

}  // namespace

int main(int argc, char** argv) {
  const auto text = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  const Options options{std::atoll(text(1, "64").c_str()), text(3, ""), text(4, "")};
  ThreadPool pool(std::atoi(text(2, "2").c_str()));
  Scratch scratch;
  bool ok = true;
  std::vector<double> total_ms(16, 0.0);  // by instruction class; float32 from 8 on
  for (const Layer& l : kLayers) {
    if (std::string(l.name).find(options.filter) == std::string::npos) continue;
    const double ops = 2.0 * static_cast<double>(options.batch * out_size(l) * out_size(l) * l.m *
                                                 (l.c / l.group) * l.kernel * l.kernel);
    Bound one;
    make_integer(one, l, 1);
    bind(one, pool, scratch, cpu_registry().candidates("pare", "QConv", Backend::kCpu).back());
    one.kernel->run(one.call);
    const auto run = [&](Bound& b, int slot, const std::string& what, const std::function<bool()>& correct) {
      const bench::Timing t = bench::measure(
          {what, [&] { b.kernel->run(b.call); }, correct, b.in[0].bytes() + b.in[1].bytes() + b.out.bytes()},
          3, 15);
      fmt::print("  {:<28} {:<34} {:8.3f} ms {:8.1f} GOP/s, least {:8.3f} ms\n", l.name, what,
                 t.median_s * 1e3, ops / t.median_s * 1e-9, t.min_s * 1e3);
      total_ms[static_cast<std::size_t>(slot)] += t.min_s * 1e3 * l.count;
      return t.correct;
    };
    for (int level = static_cast<int>(Isa::kAvx2); level <= static_cast<int>(best_isa()); ++level) {
      set_isa(static_cast<Isa>(level));
      if (!options.isa.empty() && options.isa != name(isa())) continue;
      Bound b;
      make_integer(b, l, options.batch);
      std::memcpy(b.in[kQX].mut<std::int8_t>(), one.in[kQX].data(),
                  static_cast<std::size_t>(one.in[kQX].bytes()));
      if (!bind(b, pool, scratch, nullptr)) continue;
      ok &= run(b, level, std::string(b.kernel->name) + "/" + name(isa()), [&] {
        return std::memcmp(b.out.data(), one.out.data(), static_cast<std::size_t>(one.out.bytes())) == 0;
      });
      Bound f;
      make_float(f, l, options.batch);
      if (bind(f, pool, scratch, nullptr))
        ok &= run(f, level + 8, std::string(f.kernel->name) + "/" + name(isa()), [] { return true; });
    }
  }
  set_isa(best_isa());
  for (int i = 0; i < 16; ++i)
    if (total_ms[static_cast<std::size_t>(i)] > 0)
      fmt::print("all layers by their counts, least times: {:<8} {:<12} {:8.2f} ms\n",
                 i < 8 ? "integer" : "float32", name(static_cast<Isa>(i % 8)),
                 total_ms[static_cast<std::size_t>(i)]);
  return ok ? 0 : 1;
}
