// Every tactic of every layer against the reference, with guard bytes around what it may write.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "engine/base/error.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/cuda/compile.h"
#include "engine/cuda/device.h"
#include "engine/cuda/tuner.h"
#include "engine/numeric/convert.h"

namespace pare::cuda {
namespace {

constexpr std::int64_t kGuard = 512;
constexpr int kPattern = 0xA5;

Tensor random_values(const PlanTensor& spec, unsigned seed) {
  Tensor t = Tensor::allocate(spec.dtype, spec.dims);
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(t.size()));
  const bool real = is_float(spec.dtype);
  for (float& v : values) {
    const double u = static_cast<double>(random()) / 4294967296.0 * 2 - 1;
    v = real ? static_cast<float>(u)
             : std::floor(static_cast<float>(bits(spec.dtype) == 8 ? u * 100 : (u + 1)));
  }
  convert(TensorView{DType::kF32, spec.dims, values.data()}, t.view());
  return t;
}

class LayerCheck {
 public:
  LayerCheck(const EnginePlan& plan, const PlanLayer& layer)
      : plan_(plan), layer_(layer), values_(plan.tensors.size()) {
    unsigned seed = 1;
    for (const PlanView& view : layer.in)
      if (view.present()) place(view.tensor, ++seed);
    for (const PlanView& view : layer.out) place(view.tensor, 0);
    for (const PlanView& view : layer.in) at_.in.push_back(view.present() ? address(view) : 0);
    for (const PlanView& view : layer.out) at_.out.push_back(address(view));
    run_layer_reference(plan, layer, values_);
  }

  TacticCheck run(Tactic& tactic) {
    TacticCheck check;
    check.layer = layer_.name;
    check.tactic = tactic.name();
    try {
      for (const PlanView& view : layer_.out)
        fill_device(block(view.tensor).at(), kPattern, block(view.tensor).bytes());
      const DeviceMemory workspace(std::max<std::int64_t>(tactic.workspace(), 256)),
          counters(tactic.counters() * 4 + 256);
      fill_device(counters.at(), 0, counters.bytes());
      fill_device(workspace.at(), kPattern, workspace.bytes());
      at_.workspace = workspace.at();
      at_.counters = counters.at();
      for (int repeat = 0; repeat < 2; ++repeat)
        tactic.launch(Device::get().stream(), at_);  // counters must be left zero
      PARE_CU(cuStreamSynchronize(Device::get().stream()));
      for (const PlanView& view : layer_.out) compare(view, check);
    } catch (const Error& error) {
      check.failed = error.what();
    }
    return check;
  }

 private:
  DeviceMemory& block(int id) { return blocks_.at(id); }
  void place(int id, unsigned seed) {
    if (blocks_.count(id) != 0) return;
    const PlanTensor& spec = plan_.tensors[static_cast<std::size_t>(id)];
    DeviceMemory memory(spec.bytes() + 2 * kGuard + 64);
    if (seed != 0) {
      if (spec.role == PlanRole::kWeight)
        values_[static_cast<std::size_t>(id)] = spec.data;
      else
        values_[static_cast<std::size_t>(id)] = random_values(spec, seed);
      copy_to_device(memory.at() + kGuard, values_[static_cast<std::size_t>(id)].data(), spec.bytes());
    }
    blocks_.emplace(id, std::move(memory));
  }
  CUdeviceptr address(const PlanView& view) {
    const PlanTensor& spec = plan_.tensors[static_cast<std::size_t>(view.tensor)];
    return block(view.tensor).at() + kGuard + static_cast<CUdeviceptr>(view.offset * size_of(spec.dtype));
  }
  void compare(const PlanView& view, TacticCheck& check) {
    const PlanTensor& spec = plan_.tensors[static_cast<std::size_t>(view.tensor)];
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(block(view.tensor).bytes()));
    PARE_CU(cuMemcpyDtoH(bytes.data(), block(view.tensor).at(), bytes.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if ((i < kGuard || i >= static_cast<std::size_t>(kGuard + spec.bytes())) && bytes[i] != kPattern)
        check.guards = false;
    const Tensor& want = values_[static_cast<std::size_t>(view.tensor)];
    std::vector<float> a(static_cast<std::size_t>(want.size())), b(a.size());
    convert(want.view(), TensorView{DType::kF32, want.dims(), a.data()});
    convert(TensorView{spec.dtype, spec.dims, bytes.data() + kGuard},
            TensorView{DType::kF32, spec.dims, b.data()});
    double error = 0, size = 1e-6;
    // Codes: 1 / 127 is one code.
    const bool integers = spec.dtype == DType::kI8 || spec.dtype == DType::kU8,
               small = spec.dtype == DType::kE4M3FN;
    if (integers) size = 127;
    std::size_t far = 0;  // beyond one code
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      if (small) {
        const auto code = [](std::uint8_t c) {
          return c < 128 ? static_cast<int>(c) : 128 - static_cast<int>(c);
        };
        d = std::abs(code(want.as<std::uint8_t>()[i]) - code(bytes[kGuard + i])) / 127.0;
      }
      error = std::isnan(d) ? INFINITY : std::max(error, d);
      if (!(d <= 1.01 / 127)) ++far;
      if (small)
        size = 1;
      else if (std::isfinite(a[i]) && !integers)
        size = std::max(size, std::fabs(static_cast<double>(a[i])));
    }
    // FP8 sums keep 14 to 17 bits. Where terms leave nearly 0 of each other, and where a shortcut inside
    // becomes another code (a sixteenth of it), that is many codes of E4M3: in 1e-4 of all outputs when every
    // sum is off by 2^-13 at random, and the same ones whatever the kernel.
    if (small && layer_.kind != LayerKind::kRows && std::isfinite(error) && far <= a.size() / 1000)
      error = std::min(error, 1.0 / 127);
    check.error = std::max(check.error, error / size);
  }

  const EnginePlan& plan_;
  const PlanLayer& layer_;
  std::vector<Tensor> values_;
  std::map<int, DeviceMemory> blocks_;
  Operands at_;
};

}  // namespace

// PARE_GPU_ONLY=stream,wgmma:256x64: only tactics whose names begin so, for a slow tool on a few of them.
static bool checked(const std::string& tactic) {
  const char* only = std::getenv("PARE_GPU_ONLY");
  if (only == nullptr) return true;
  std::stringstream names(only);
  for (std::string name; std::getline(names, name, ',');)
    if (tactic.rfind(name, 0) == 0) return true;
  return false;
}

// PARE_GPU_REPEAT=100: each so often, for what shows only now and then (beside other work on the card).
static TacticCheck repeated(LayerCheck& check, Tactic& tactic) {
  const char* given = std::getenv("PARE_GPU_REPEAT");
  TacticCheck worst = check.run(tactic);
  for (int i = 1; given != nullptr && i < std::atoi(given) && worst.failed.empty(); ++i) {
    TacticCheck next = check.run(tactic);
    next.error = std::max(next.error, worst.error);
    next.guards = next.guards && worst.guards;
    worst = std::move(next);
  }
  return worst;
}

std::vector<TacticCheck> check_tactics(const EnginePlan& plan) {
  std::set<std::string> seen;
  std::vector<const PlanLayer*> layers;
  std::vector<std::vector<KernelSource>> sources;
  std::vector<std::string> codes;
  for (const PlanLayer& layer : plan.layers) {
    if (!seen.insert(layer_key(plan, layer)).second) continue;
    std::string why;
    layers.push_back(&layer);
    sources.push_back(generated_kernels(plan, layer, why));
    std::vector<KernelSource>& mine = sources.back();
    mine.erase(
        std::remove_if(mine.begin(), mine.end(), [&](const KernelSource& s) { return !checked(s.tactic); }),
        mine.end());
    for (const KernelSource& s : sources.back()) codes.push_back(s.code);
  }
  const Compiled compiled =
      compile_all(codes, "sm_90a", static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Device::get();
  std::vector<TacticCheck> checks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (sources[i].empty() && std::getenv("PARE_GPU_ONLY") != nullptr) continue;
    LayerCheck check(plan, *layers[i]);
    for (const KernelSource& s : sources[i]) {
      const auto binary = compiled.binaries.find(source_hash(s.code));
      if (binary != compiled.binaries.end()) {
        checks.push_back(repeated(check, *make_generated(s, binary->second)));
        continue;
      }
      TacticCheck failed;
      failed.layer = layers[i]->name;
      failed.tactic = s.tactic;
      failed.failed = compiled.failed.at(source_hash(s.code));
      checks.push_back(std::move(failed));
    }
    std::string why;
    if (std::getenv("PARE_GPU_GENERATED_ONLY") != nullptr || std::getenv("PARE_GPU_ONLY") != nullptr)
      continue;  // under compute-sanitizer
    try {
      for (auto& t : lt_tactics(plan, *layers[i], "", 4, why)) checks.push_back(repeated(check, *t));
      for (auto& t : split_tactics(plan, *layers[i], "", 2, why)) checks.push_back(repeated(check, *t));
      for (auto& t : cudnn_tactics(plan, *layers[i], "", 4, why)) checks.push_back(repeated(check, *t));
    } catch (const Error& error) {
      TacticCheck failed;
      failed.layer = layers[i]->name;
      failed.tactic = "library";
      failed.failed = error.what();
      checks.push_back(std::move(failed));
    }
  }
  return checks;
}

}  // namespace pare::cuda
