// An engine file ready to run, on the CPU or by a backend: for each shape of its profile it picks the plan
// that was prepared, or makes one of the engine's graph at first use (same tactics, nothing is timed), and
// keeps it. The weights of all shapes are the same memory.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/build/backend.h"
#include "engine/build/engine_file.h"

namespace pare {

struct EngineOptions {
  EngineBackend* backend = nullptr;   // required but for CPU engines; outlives the engine
  ThreadPool* pool = nullptr;         // required for CPU engines
  std::function<void(Graph&)> clean;  // what the builder did to a graph once its sizes were known
  std::function<void(const std::string&)> log;
};

class Engine {
 public:
  static constexpr std::size_t kMostShapes = 16;  // made at run time; the one unused the longest goes

  Engine(EngineFile file, const EngineOptions& options);

  const EngineFile& file() const { return file_; }
  EngineRunner& main() { return *main_; }  // at the optimum of the profile
  // Error kUsage for a shape outside of the profile, naming both.
  EngineRunner& at(const std::vector<Tensor>& inputs);
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) { return at(inputs).run(inputs); }
  std::size_t shapes() const { return shapes_.size(); }  // in use beside the optimum

 private:
  struct Shape {
    std::vector<Dims> dims;
    std::unique_ptr<EngineRunner> runner;
  };
  EnginePlan make(const NamedSizes& sizes) const;

  EngineFile file_;
  EngineOptions options_;
  std::unique_ptr<EngineRunner> main_;
  std::list<Shape> shapes_;  // used last first
};

// A plan of the engine's graph at these sizes, with the options of `tuned` (precision, folded norms); memory
// is planned, tactics are not.
EnginePlan plan_at(const EngineFile& engine, const NamedSizes& sizes,
                   const std::function<void(Graph&)>& clean);

}  // namespace pare
