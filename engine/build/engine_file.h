// The engine file: what runs a model on one kind of device, for the shapes of its profile.
//
//   GPU   plans with their weights and kernels, one for each shape that was prepared; with a profile also the
//         graph, of which plans for further shapes are made
//   CPU   the lowered graph (architecture "cpu"); the plan then holds inputs and outputs only
//
//
//   offset 0   "PAREENG1"
//          8   u32 version (3), u32 zero
//         16   u64 bytes of JSON, u64 offset of the block (a multiple of 4096), u64 bytes of the block
//         40   SHA-256 of everything from offset 72 to the end (32 bytes)
//         72   JSON (docs/engine.md), then zeros up to the block
//      block   tensors by the SHA-256 of their bytes, each once, and compiled kernels, at multiples of 256
//
// Tensors of 4 KiB and more may lie apart, in "weights/HASH.weights" beside the engine, where engines of one
// model share them (weights_apart).
//
// Little-endian. The weights are used where they lie in the mapped file. Reading checks the length, the
// checksum and every index, size and view of the plan, so a damaged file is Error kBadFile and never a wrong
// address.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/build/plan/engine_plan.h"
#include "engine/build/profile.h"
#include "engine/ir/graph.h"

namespace pare {

inline constexpr const char* kWeightsFolder = "weights";

struct EngineProvenance {
  std::string pare_version, model, model_sha256;  // model: the file's name without its folders
  std::string recipe, data;  // hashes that the model says it was quantized by; "" when it says none
  std::string device, architecture;
  std::vector<std::pair<std::string, std::string>> versions;  // libraries it was timed with
  std::int64_t batch = 0;
};

// A node of a CPU engine: its kernel, and its share of one run at the optimum of the profile.
struct EngineRow {
  std::string name, op, kernel, requested, realized, why;
  double microseconds = 0;
};

struct EngineFile {
  EnginePlan plan;                     // at the optimum of the profile
  std::vector<EnginePlan> more;        // at its ends
  ShapeProfile profile;                // empty: the one shape of the plan
  std::shared_ptr<const Graph> graph;  // nullptr: none
  bool integer = true;                 // Q/DQ layers as integer kernels (PlanOptions::integer)
  std::vector<EngineRow> rows;         // CPU engines
  EngineProvenance provenance;
  bool weights_apart = false;  // for writing
  std::string sha256;          // the checksum in its header; for reading

  bool is_cpu() const { return provenance.architecture == "cpu"; }
};

// After plan_memory. Equal engines give equal bytes.
void write_engine(const std::string& path, const EngineFile& engine);
void write_engine(const std::string& path, const EnginePlan& plan, const EngineProvenance& provenance);
// Error kBadFile for a damaged file, and for one whose weights lie apart and are missing or others.
EngineFile read_engine(const std::string& path);
// The same of bytes in memory, which `owner` keeps alive. Without the checksum: for fuzzing.
EngineFile parse_engine(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                        const std::string& what, bool check_sum = true);

}  // namespace pare
