// The module's one door.
#include "engine/cuda/device.h"
#include "engine/cuda/runner.h"
#include "engine/cuda/tuner.h"

namespace pare::cuda {
namespace {

class Backend final : public EngineBackend {
 public:
  std::vector<BackendPart> parts() override {
    std::vector<BackendPart> list;
    const auto add = [&](const char* part, auto look) {
      BackendPart p;
      p.name = part;
      try {
        p.found = look();
        p.present = true;
      } catch (const Error& error) {
        p.found = error.what();
        p.remedy = error.hint();
      }
      list.push_back(std::move(p));
    };
    add("device", [] {
      const DeviceFacts& f = Device::get().facts();
      return fmt::format("{}, {}, {} multiprocessors, {:.0f} GiB, driver {}", f.name, f.architecture,
                         f.multiprocessors, static_cast<double>(f.memory_bytes) / (1 << 30),
                         f.versions.at("driver"));
    });
    add("nvrtc", [] {
      int a = 0, b = 0;
      nvrtc().nvrtcVersion(&a, &b);
      return fmt::format("NVRTC {}.{}", a, b);
    });
    add("cublaslt", [] { return fmt::format("cuBLASLt {}", lt().cublasLtGetVersion()); });
    add("cudnn", [] { return fmt::format("cuDNN {}", cudnn().cudnnGetVersion()); });
    return list;
  }
  DeviceFacts facts() override {
    DeviceFacts facts = Device::get().facts();
    facts.free_bytes = Device::get().free_bytes();
    return facts;
  }
  TuneReport tune(EnginePlan& plan, const TuneOptions& options) override { return cuda::tune(plan, options); }
  std::vector<TacticCheck> check_tactics(const EnginePlan& plan) override {
    return cuda::check_tactics(plan);
  }
  CompileReport compile(EnginePlan& plan, const std::vector<std::string>& architectures, int jobs) override {
    return compile_portable(plan, architectures, jobs);
  }
  void adopt(EnginePlan& plan, const EnginePlan& tuned) override { cuda::adopt(plan, tuned); }
  std::unique_ptr<EngineRunner> load(const EnginePlan& plan, EngineRunner* like) override {
    return make_runner(plan, like);
  }
};

}  // namespace
}  // namespace pare::cuda

extern "C" __attribute__((visibility("default"))) int pare_cuda_register(pare::BackendRegistry& registry) {
  if (registry.abi == pare::kBackendAbi) registry.backend = std::make_unique<pare::cuda::Backend>();
  return pare::kBackendAbi;
}
