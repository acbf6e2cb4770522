// Engines for the CPU: the lowered graph (lower_cpu.h: fusions, layouts, integer kernels, constants
// computed), with the kernel and the time of every node, in an engine file. They run by Session, at any shape
// of their profile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/build/backend.h"
#include "engine/build/engine_file.h"

namespace pare {

struct CpuMemory {
  std::int64_t weights = 0, activations = 0,
               io = 0;  // bytes; kernels' scratch and packed weights not counted
};

// `open` as open_sizes() gives it; `inputs` at the optimum of the profile, on which each node is timed.
// Provenance but for architecture, device and batch is the caller's.
EngineFile build_cpu_engine(const Graph& open, const ShapeProfile& profile, const std::vector<Tensor>& inputs,
                            bool integer, ThreadPool& pool);

// Kernels for the CPU are not chosen by time, but their times stand in the engine: with those of the cache it
// is the same file, byte for byte. Takes the times that the cache has for this engine (its provenance and
// profile, `threads`), adds the others to it, and returns how many there were. Error kUnsupported with
// `require` for a layer that the cache, the file `where`, does not have.
int take_cached_times(EngineFile& engine, TimingCache& cache, int threads, bool require,
                      const std::string& where);

// What such an engine needs at these sizes: all weights, and the values that are alive at the same time.
CpuMemory predict_cpu_memory(const EngineFile& engine, const NamedSizes& sizes);

// The first context runs on `pool`, further ones (EngineRunner::context) on pools of their own. All give the
// same bits (only_invariant).
std::unique_ptr<EngineRunner> load_cpu_engine(const EngineFile& engine, ThreadPool& pool);

}  // namespace pare
