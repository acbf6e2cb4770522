// The border between pare and the module that runs engines on a device. The module (lib/pare_cuda.so) is
// opened at run time and finds our symbols in the program; it exports one function,
//
//   extern "C" int pare_cuda_register(pare::BackendRegistry& registry)
//
// which returns its ABI number and, when that is the registry's, registers its backend. pare itself links no
// CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/build/plan/engine_plan.h"

namespace pare {

inline constexpr int kBackendAbi = 6;  // changes with anything in this header or in engine_plan.h

// Of a portable engine's plan: the architecture among its kernels ("sm_80" of "sm_80/HASH") whose code runs
// on `device` ("sm_86"): itself, else the nearest older one of the same generation without a letter; "" when
// none does.
std::string portable_architecture(const EnginePlan& plan, const std::string& device);
std::vector<std::string> portable_architectures(const EnginePlan& plan);  // all, sorted; empty: not portable

struct DeviceFacts {
  std::string name, architecture;  // "NVIDIA H200", "sm_90"
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;  // free: when facts() was called
  std::map<std::string, std::string> versions;  // driver, nvrtc, cublaslt, cudnn: "" when it is not there
};

struct BackendPart {
  std::string name;
  bool present = false;
  std::string found, remedy;
};

// What each way of running a layer took; a later build need not time it again. Keys name the layer (kinds,
// sizes, types, strides), the device and the library versions.
class TimingCache {
 public:
  struct Entry {
    std::string tactic;
    double microseconds = 0;
  };
  // The tactics that were timed for this key, fastest first; nullptr when there are none.
  const std::vector<Entry>* find(const std::string& key) const;
  void put(const std::string& key, std::vector<Entry> entries);
  std::size_t size() const { return entries_.size(); }
  // Machine code of what was chosen, by its text, the compiler's version and the architecture; nullptr: none.
  const Tensor* kernel(const std::string& key) const;
  void put_kernel(const std::string& key, Tensor code) { kernels_[key] = std::move(code); }

  // A JSON file; a missing one is empty. Error kBadFile for a damaged one.
  static TimingCache read(const std::string& path);
  void write(const std::string& path) const;

 private:
  std::map<std::string, std::vector<Entry>> entries_;
  std::map<std::string, Tensor> kernels_;  // uint8
};

struct TuneOptions {
  TimingCache* cache = nullptr;  // required
  bool require_cached = false;   // a layer that is not in the cache is error kUnsupported
  std::vector<std::string>
      only;      // "cublaslt", "mma", ...: a tactic's name must begin with one of these, if any does
  int jobs = 0;  // compilers at a time; 0: as many as processors
  std::function<void(const std::string&)> log;
};
struct TuneReport {
  int timed = 0, from_cache = 0, compiled = 0;
  double compile_seconds = 0, timing_seconds = 0;
  std::vector<std::string> declined;  // "layer: tactic: why"
};

struct CompileReport {
  int kernels = 0;
  double seconds = 0;
  std::vector<std::string> failed;  // "sm_80: kernel HASH does not compile (its source: FILE): why"
};

// One tactic of one layer against the plan's reference, on random operands.
struct TacticCheck {
  std::string layer, tactic;
  double error = 0;    // the largest, relative to the largest value of the output
  bool guards = true;  // bytes around the outputs are what they were
  std::string failed;  // "" or the error
};

struct BenchTimes {
  std::vector<double> milliseconds;  // one a launch of the whole graph, inputs and outputs on the device
  double with_copies_ms = 0;         // median with inputs from and outputs to the host
};
struct LayerTime {
  std::string name, tactic;
  double microseconds = 0;
};
struct EngineMemory {
  std::int64_t weights = 0, arena = 0, workspace = 0, io = 0;  // what we asked the device for, in bytes
  std::int64_t total() const { return weights + arena + workspace + io; }
};

// One context of an engine, ready to run: memory for activations, inputs and outputs of its own, and work
// that is in order. Not for two threads at once; several contexts of one engine run at the same time, one
// thread each.
class EngineRunner {
 public:
  virtual ~EngineRunner() = default;
  virtual std::vector<Tensor> run(const std::vector<Tensor>& inputs) = 0;  // checked against the plan
  // Another context of the same engine: weights and kernels are shared. `threads`: of a CPU engine.
  virtual std::unique_ptr<EngineRunner> context(int threads) = 0;
  // That many runs one after the other on the inputs of the last run(); returns when they are done.
  virtual void repeat(int count) = 0;
  virtual BenchTimes bench(int iterations, int warmup) = 0;  // on the inputs of the last run
  virtual std::vector<LayerTime> profile(int repeats) = 0;   // each layer alone, in order
  virtual EngineMemory memory() const = 0;
  // Layer by layer against the plan's reference, on the device's own inputs to each: the largest error
  // relative to the largest value of that layer's output. For tests.
  virtual std::vector<double> check_layers(const std::vector<Tensor>& inputs) = 0;
};

class EngineBackend {
 public:
  virtual ~EngineBackend() = default;
  virtual std::vector<BackendPart> parts() = 0;  // for `pare doctor`; never throws
  virtual DeviceFacts facts() = 0;               // error kDevice without a device
  // Chooses a tactic for each layer (tactic, microseconds, workspace, kernels, realized), adds the compiled
  // kernels to the plan.
  virtual TuneReport tune(EnginePlan& plan, const TuneOptions& options) = 0;
  // Machine code of the likeliest generated kernels of every layer for these architectures ("sm_90a"), under
  // "ARCHITECTURE/HASH" in plan.binaries. Needs the compiler, no device. tune() of such a plan compiles
  // nothing and chooses among them and the libraries' tactics.
  virtual CompileReport compile(EnginePlan& plan, const std::vector<std::string>& architectures,
                                int jobs) = 0;
  // For a plan of the same model at another shape than `tuned`: tactics of the layers of the same name where
  // they can run here, else the likeliest; nothing is timed. Kernels that the plan lacks are compiled.
  virtual void adopt(EnginePlan& plan, const EnginePlan& tuned) = 0;
  // After plan_memory. `like`: a runner of this backend whose weights are used where their hashes are equal.
  virtual std::unique_ptr<EngineRunner> load(const EnginePlan& plan, EngineRunner* like = nullptr) = 0;
  // Every tactic that can run a layer, not only the fastest; equal layers once. For tests.
  virtual std::vector<TacticCheck> check_tactics(const EnginePlan& plan) = 0;
};

struct BackendRegistry {
  int abi = kBackendAbi;
  std::unique_ptr<EngineBackend> backend;
};

// The CUDA backend. Looks for the module at PARE_CUDA_MODULE, beside the program and in ../lib. Error kDevice
// with what is missing and how to get it; opened once.
EngineBackend& cuda_backend();
// The same without an error: nullptr and the reason.
EngineBackend* try_cuda_backend(std::string& why_not);

}  // namespace pare
