// An engine on the device: all memory taken once, one captured graph, nothing allocated while it runs.
#include "engine/cuda/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "engine/base/error.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/cuda/device.h"
#include "engine/cuda/tuner.h"
#include "engine/numeric/convert.h"

namespace pare::cuda {
namespace {

// Weights by the hash of their bytes, in blocks that live as long as anyone uses them.
struct Weights {
  std::map<std::string, CUdeviceptr> at;
  std::vector<DeviceMemory> blocks;
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const DeviceMemory& block : blocks) sum += block.bytes();
    return sum;
  }
};

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

void upload_weights(Weights& weights, const EnginePlan& plan) {
  std::map<std::string, const PlanTensor*> missing;
  std::int64_t bytes = 0;
  for (const PlanTensor& t : plan.tensors)
    if (t.role == PlanRole::kWeight && weights.at.count(t.hash) == 0 && missing.emplace(t.hash, &t).second)
      bytes += aligned(t.bytes());
  if (missing.empty()) return;
  weights.blocks.emplace_back(std::max(bytes, kPlanAlignment));
  CUdeviceptr at = weights.blocks.back().at();
  for (const auto& [hash, t] : missing) {
    copy_to_device(at, t->data.data(), t->bytes());
    weights.at[hash] = at;
    at += static_cast<CUdeviceptr>(aligned(t->bytes()));
  }
}

// What contexts of one engine share: the plan, kernels and weights.
struct Loaded {
  EnginePlan plan;
  std::vector<std::unique_ptr<Tactic>> tactics;
  std::shared_ptr<Weights> weights;
  std::int64_t workspace = 256, counters = 0;
};

// Tactics keep state between the steps of a launch (pointers in a descriptor, a library's stream): one
// context at a time launches them, which happens while graphs are captured and never later.
std::mutex& launch_mutex() {
  static std::mutex mutex;
  return mutex;
}

class Runner final : public EngineRunner {
 public:
  explicit Runner(std::shared_ptr<Loaded> loaded)
      : loaded_(std::move(loaded)), plan_(loaded_->plan), tactics_(loaded_->tactics), stream_(own_.get()) {
    const std::lock_guard<std::mutex> lock(launch_mutex());
    arena_ = DeviceMemory(plan_.arena_bytes);
    workspace_ = DeviceMemory(loaded_->workspace);
    counters_ = DeviceMemory(loaded_->counters * 4 + 256);
    fill_device(counters_.at(), 0, counters_.bytes());
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlanTensor& t = plan_.tensors[i];
      CUdeviceptr at = 0;
      if (t.role == PlanRole::kWeight) {
        at = loaded_->weights->at.at(t.hash);
      } else if (t.role == PlanRole::kActivation) {
        at = arena_.at() + static_cast<CUdeviceptr>(t.offset);
      } else {
        io_.emplace_back(std::max<std::int64_t>(t.bytes(), 16) + 256);
        fill_device(io_.back().at(), 0, io_.back().bytes());
        at = io_.back().at();
      }
      place_.push_back(at);
    }
    for (const PlanLayer& layer : plan_.layers) {
      Operands at;
      const auto address = [&](const PlanView& view) {
        if (!view.present()) return CUdeviceptr{0};
        const auto id = static_cast<std::size_t>(view.tensor);
        return place_[id] + static_cast<CUdeviceptr>(view.offset * size_of(plan_.tensors[id].dtype));
      };
      for (const PlanView& view : layer.in) at.in.push_back(address(view));
      for (const PlanView& view : layer.out) at.out.push_back(address(view));
      at.workspace = workspace_.at();
      at.counters = counters_.at();
      operands_.push_back(std::move(at));
    }
    for (std::size_t i = 0; i + 1 < tactics_.size(); ++i) operands_[i].eager = tactics_[i + 1]->generated();
    launch_all();
    PARE_CU(cuStreamSynchronize(stream_));
    graph_ = std::make_unique<CapturedGraph>(stream_, [&] { launch_all(); });
  }

  const std::shared_ptr<Weights>& weights() const { return loaded_->weights; }

  std::unique_ptr<EngineRunner> context(int) override {
    Device::get().use();
    auto made = std::make_unique<Runner>(loaded_);
    for (const int id : plan_.inputs) {
      const auto bytes = static_cast<std::size_t>(plan_.tensors[static_cast<std::size_t>(id)].bytes());
      if (bytes == 0) continue;
      std::vector<std::byte> host(bytes);
      PARE_CU(cuMemcpyDtoH(host.data(), place(id), bytes));
      copy_to_device(made->place(id), host.data(), static_cast<std::int64_t>(bytes));
    }
    return made;
  }

  void repeat(int count) override {
    Device::get().use();
    for (int i = 0; i < count; ++i) graph_->launch(stream_);
    PARE_CU(cuStreamSynchronize(stream_));
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) override {
    Device::get().use();
    upload(inputs);
    graph_->launch(stream_);
    std::vector<Tensor> outputs;
    for (const int id : plan_.outputs) outputs.push_back(download(id));
    return outputs;
  }

  BenchTimes bench(int iterations, int warmup) override {
    BenchTimes times;
    for (int i = 0; i < warmup; ++i) graph_->launch(stream_);
    PARE_CU(cuStreamSynchronize(stream_));
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i <= iterations; ++i) events.push_back(std::make_unique<Event>());
    events[0]->record(stream_);
    for (int i = 0; i < iterations; ++i) {
      graph_->launch(stream_);
      events[static_cast<std::size_t>(i) + 1]->record(stream_);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(iterations); ++i)
      times.milliseconds.push_back(static_cast<double>(events[i + 1]->since(*events[i])));
    std::vector<double> copies;
    std::vector<Tensor> host;
    for (const int id : plan_.inputs) host.push_back(download(id));
    for (int i = 0; i < std::min(iterations, 20); ++i) {
      Event begin, end;
      begin.record(stream_);
      for (std::size_t k = 0; k < host.size(); ++k)
        PARE_CU(cuMemcpyHtoDAsync(place(plan_.inputs[k]), host[k].data(),
                                  static_cast<std::size_t>(host[k].bytes()), stream_));
      graph_->launch(stream_);
      std::vector<Tensor> outputs;
      for (const int id : plan_.outputs) {
        const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(id)];
        outputs.push_back(Tensor::allocate(t.dtype, t.dims));
        PARE_CU(cuMemcpyDtoHAsync(outputs.back().mut<void>(), place(id), static_cast<std::size_t>(t.bytes()),
                                  stream_));
      }
      end.record(stream_);
      copies.push_back(static_cast<double>(end.since(begin)));
    }
    std::sort(copies.begin(), copies.end());
    times.with_copies_ms = copies.empty() ? 0 : copies[copies.size() / 2];
    return times;
  }

  std::vector<LayerTime> profile(int repeats) override {
    const std::lock_guard<std::mutex> lock(launch_mutex());
    std::vector<LayerTime> list;
    for (std::size_t i = 0; i < tactics_.size(); ++i) {
      const int launches = 10;
      const CapturedGraph graph(stream_, [&] {
        for (int k = 0; k < launches; ++k) tactics_[i]->launch(stream_, operands_[i]);
      });
      graph.launch(stream_);
      std::vector<double> us;
      for (int r = 0; r < repeats; ++r) {
        Event begin, end;
        begin.record(stream_);
        graph.launch(stream_);
        end.record(stream_);
        us.push_back(static_cast<double>(end.since(begin)) * 1000 / launches);
      }
      std::sort(us.begin(), us.end());
      LayerTime time;
      time.name = plan_.layers[i].name;
      time.tactic = tactics_[i]->name();
      time.microseconds = us[us.size() / 2];
      list.push_back(std::move(time));
    }
    return list;
  }

  EngineMemory memory() const override {
    EngineMemory m;
    m.weights = loaded_->weights->bytes();
    m.arena = arena_.bytes();
    m.workspace = workspace_.bytes() + counters_.bytes();
    for (const DeviceMemory& io : io_) m.io += io.bytes();
    return m;
  }

  std::vector<double> check_layers(const std::vector<Tensor>& inputs) override {
    const std::lock_guard<std::mutex> lock(launch_mutex());
    upload(inputs);
    std::vector<double> errors;
    for (std::size_t i = 0; i < tactics_.size(); ++i) {
      const PlanLayer& layer = plan_.layers[i];
      std::vector<Tensor> values(plan_.tensors.size());
      for (const PlanView& view : layer.in)
        if (view.present() && plan_.tensors[static_cast<std::size_t>(view.tensor)].role != PlanRole::kWeight)
          values[static_cast<std::size_t>(view.tensor)] = download(view.tensor);
      tactics_[i]->launch(stream_, operands_[i]);
      PARE_CU(cuStreamSynchronize(stream_));
      run_layer_reference(plan_, layer, values);
      double worst = 0;
      for (const PlanView& view : layer.out) {
        const Tensor &want = values[static_cast<std::size_t>(view.tensor)], got = download(view.tensor);
        std::vector<float> a(static_cast<std::size_t>(want.size())), b(a.size());
        convert(want.view(), TensorView{DType::kF32, want.dims(), a.data()});
        convert(got.view(), TensorView{DType::kF32, got.dims(), b.data()});
        double error = 0, size = 1e-6;
        for (std::size_t k = 0; k < a.size(); ++k) {
          if (std::isnan(a[k]) && std::isnan(b[k])) continue;
          const double d = std::fabs(static_cast<double>(a[k]) - static_cast<double>(b[k]));
          error = std::isnan(d) ? INFINITY : std::max(error, d);
          if (std::isfinite(a[k])) size = std::max(size, std::fabs(static_cast<double>(a[k])));
        }
        worst = std::max(worst, error / size);
      }
      errors.push_back(worst);
    }
    return errors;
  }

 private:
  CUdeviceptr place(int id) const { return place_[static_cast<std::size_t>(id)]; }

  void launch_all() {
    for (std::size_t i = 0; i < tactics_.size(); ++i)
      with_context("running layer '" + plan_.layers[i].name + "'",
                   [&] { tactics_[i]->launch(stream_, operands_[i]); });
  }

  void upload(const std::vector<Tensor>& inputs) {
    if (inputs.size() != plan_.inputs.size())
      fail(ErrorCode::kUsage, "the engine has {} inputs, {} were given", plan_.inputs.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(plan_.inputs[i])];
      if (inputs[i].dtype() != t.dtype || inputs[i].dims() != t.dims)
        throw make_error(ErrorCode::kUsage, "input '{}' is {} {}, the engine was built for {} {}", t.name,
                         pare::name(inputs[i].dtype()), to_string(inputs[i].dims()), pare::name(t.dtype),
                         to_string(t.dims))
            .hint("build an engine for this shape");
      if (t.bytes() > 0)
        PARE_CU(cuMemcpyHtoDAsync(place(plan_.inputs[i]), inputs[i].data(),
                                  static_cast<std::size_t>(t.bytes()), stream_));
    }
  }

  Tensor download(int id) const {
    const PlanTensor& t = plan_.tensors[static_cast<std::size_t>(id)];
    Tensor host = Tensor::allocate(t.dtype, t.dims);
    if (t.bytes() > 0)
      PARE_CU(cuMemcpyDtoHAsync(host.mut<void>(), place(id), static_cast<std::size_t>(t.bytes()), stream_));
    PARE_CU(cuStreamSynchronize(stream_));
    return host;
  }

  std::shared_ptr<Loaded> loaded_;
  const EnginePlan& plan_;
  const std::vector<std::unique_ptr<Tactic>>& tactics_;
  Stream own_;
  CUstream stream_;
  DeviceMemory arena_, workspace_, counters_;
  std::vector<DeviceMemory> io_;
  std::vector<CUdeviceptr> place_;
  std::vector<Operands> operands_;
  std::unique_ptr<CapturedGraph> graph_;
};

}  // namespace

std::unique_ptr<EngineRunner> make_runner(const EnginePlan& plan, EngineRunner* like) {
  Device::get().use();
  auto loaded = std::make_shared<Loaded>();
  loaded->plan = plan;
  hash_weights(loaded->plan);
  for (const PlanLayer& layer : plan.layers) {
    loaded->tactics.push_back(
        with_context("loading layer '" + layer.name + "'", [&] { return chosen_tactic(plan, layer); }));
    loaded->counters = std::max(loaded->counters, loaded->tactics.back()->counters());
    loaded->workspace = std::max(loaded->workspace, aligned(loaded->tactics.back()->workspace()));
  }
  const auto* lender = dynamic_cast<Runner*>(like);
  loaded->weights = lender == nullptr ? std::make_shared<Weights>() : lender->weights();
  upload_weights(*loaded->weights, loaded->plan);
  return std::make_unique<Runner>(std::move(loaded));
}

}  // namespace pare::cuda
