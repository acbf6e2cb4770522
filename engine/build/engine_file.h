// The engine file: a plan with its weights and kernels, for one device architecture and one shape of the
// inputs.
//
//   offset 0   "PAREENG1"
//          8   u32 version (2), u32 zero
//         16   u64 bytes of JSON, u64 offset of the block (a multiple of 4096), u64 bytes of the block
//         40   SHA-256 of everything from offset 72 to the end (32 bytes)
//         72   JSON (docs/engine.md), then zeros up to the block
//      block   weights at their offsets in the plan (multiples of 256), then compiled kernels
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

#include "engine/build/engine_plan.h"

namespace pare {

struct EngineProvenance {
  std::string pare_version, model, model_sha256;  // model: the file's name without its folders
  std::string device, architecture;
  std::vector<std::pair<std::string, std::string>> versions;  // libraries it was timed with
  std::int64_t batch = 0;
};

struct EngineFile {
  EnginePlan plan;
  EngineProvenance provenance;
  std::string sha256;  // the checksum in its header
};

// After plan_memory. Equal plans give equal bytes.
void write_engine(const std::string& path, const EnginePlan& plan, const EngineProvenance& provenance);
EngineFile read_engine(const std::string& path);
// The same of bytes in memory, which `owner` keeps alive. Without the checksum: for fuzzing.
EngineFile parse_engine(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                        const std::string& what, bool check_sum = true);

// Indices, sizes, views and steps of a plan; Error kBadFile naming the layer. What read_engine checks.
void check_plan(const EnginePlan& plan, const std::string& what);

}  // namespace pare
