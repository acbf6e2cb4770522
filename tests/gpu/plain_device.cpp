// A GPU module without a GPU: the plan's plain loops as the device. What pare does around a device (choosing,
// caching, predicting memory, refusing engines of other machines) can then be tested anywhere;
// PARE_CUDA_MODULE names this file.
//
//   PARE_PLAIN_ARCHITECTURE   default sm_90a
//   PARE_PLAIN_MEMORY         bytes, default 8e9; all of them are free
//   PARE_PLAIN_VERSION        of its only library, "loops", default 1
//   PARE_PLAIN_SLOW           layers of this precision (int8, fp8) take 3 us, all others 1
//
// Layers are "timed" once each, a graph takes the sum of its layers.
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/build/backend.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/plan/plan_reference.h"

namespace pare {
namespace {

std::string setting(const char* name, const char* otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : given;
}

class PlainRunner final : public EngineRunner {
 public:
  explicit PlainRunner(const EnginePlan& plan) : plan_(plan) {}
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(plan_.inputs.at(i))];
      if (inputs[i].dims() != t.dims) fail(ErrorCode::kUsage, "input '{}' has another shape", t.name);
    }
    last_ = inputs;
    return run_plan_reference(plan_, inputs);
  }
  std::unique_ptr<EngineRunner> context(int) override {
    auto made = std::make_unique<PlainRunner>(plan_);
    made->last_ = last_;
    return made;
  }
  void repeat(int count) override {
    for (int i = 0; i < count; ++i) run_plan_reference(plan_, last_);
  }
  BenchTimes bench(int iterations, int) override {
    BenchTimes times;
    double ms = 0;
    for (const PlanLayer& layer : plan_.layers) ms += layer.microseconds / 1000;
    times.milliseconds.assign(static_cast<std::size_t>(iterations), ms);
    times.with_copies_ms = 2 * ms;
    return times;
  }
  std::vector<LayerTime> profile(int) override {
    std::vector<LayerTime> times;
    for (const PlanLayer& layer : plan_.layers)
      times.push_back({layer.name, layer.tactic, layer.microseconds});
    return times;
  }
  EngineMemory memory() const override {
    const PlannedMemory planned = planned_memory(plan_);
    EngineMemory m;
    m.weights = planned.weights, m.arena = planned.activations, m.workspace = planned.workspace,
    m.io = planned.io;
    return m;
  }
  std::vector<double> check_layers(const std::vector<Tensor>&) override {
    return std::vector<double>(plan_.layers.size());
  }

 private:
  EnginePlan plan_;
  std::vector<Tensor> last_;
};

class PlainDevice final : public EngineBackend {
 public:
  std::vector<BackendPart> parts() override { return {{"device", true, facts().name, ""}}; }
  DeviceFacts facts() override {
    DeviceFacts facts;
    facts.name = "plain loops";
    facts.architecture = setting("PARE_PLAIN_ARCHITECTURE", "sm_90a");
    facts.multiprocessors = 1;
    facts.memory_bytes = facts.free_bytes = std::atoll(setting("PARE_PLAIN_MEMORY", "8000000000").c_str());
    facts.versions["loops"] = setting("PARE_PLAIN_VERSION", "1");
    return facts;
  }
  TuneReport tune(EnginePlan& plan, const TuneOptions& options) override {
    TuneReport report;
    const std::string slow = setting("PARE_PLAIN_SLOW", "");
    for (PlanLayer& layer : plan.layers) {
      const std::string key = fmt::format("{} {} {} {}", name(layer.kind), layer.name, layer.requested,
                                          to_string(layer.out[0].dims));
      const auto* known = options.cache->find(key);
      if (known == nullptr && options.require_cached)
        throw make_error(ErrorCode::kUnsupported, "layer '{}' is not in the timing cache", layer.name)
            .hint("build once without --require-cached-tactics");
      ++(known == nullptr ? report.timed : report.from_cache);
      layer.tactic = "plain";
      layer.microseconds = known == nullptr ? (layer.requested == slow ? 3 : 1) : (*known)[0].microseconds;
      if (known == nullptr) options.cache->put(key, {{layer.tactic, layer.microseconds}});
    }
    return report;
  }
  CompileReport compile(EnginePlan& plan, const std::vector<std::string>& architectures, int) override {
    CompileReport report;
    for (const std::string& architecture : architectures)
      plan.binaries[architecture + "/loops"] = Tensor::copy_of(DType::kU8, {5}, "loops", 5);
    report.kernels = static_cast<int>(architectures.size());
    return report;
  }
  void adopt(EnginePlan& plan, const EnginePlan&) override {
    for (PlanLayer& layer : plan.layers) layer.tactic = "plain";
  }
  std::unique_ptr<EngineRunner> load(const EnginePlan& plan, EngineRunner*) override {
    return std::make_unique<PlainRunner>(plan);
  }
  std::vector<TacticCheck> check_tactics(const EnginePlan&) override { return {}; }
};

}  // namespace
}  // namespace pare

extern "C" __attribute__((visibility("default"))) int pare_cuda_register(pare::BackendRegistry& registry) {
  if (registry.abi == pare::kBackendAbi) registry.backend = std::make_unique<pare::PlainDevice>();
  return pare::kBackendAbi;
}
