// Engines on the command line: opening one, and what commands say about it.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "engine/build/backend.h"
#include "engine/build/engine_file.h"

namespace pare {

struct OpenEngine {
  EngineFile file;
  std::unique_ptr<EngineRunner> runner;
};

// Reads the file and puts it on the device. Errors: kBadFile, kDevice (no GPU module, no device),
// kUnsupported when it was built for another architecture. Library versions other than those it was built
// with give a warning.
OpenEngine open_engine(Context& context, const std::string& path);

// "nvidia h200 ...": the value of `device` in a document.
std::string device_text(const DeviceFacts& facts);

// The layers as DESIGN has them: name, kind, requested, realized, kernel, why, median_us.
Json engine_layers(const EnginePlan& plan);

// Named arrays of --input in the order of the plan's inputs. Error kUsage as `pare infer` gives.
std::vector<Tensor> engine_inputs(const EnginePlan& plan, const std::vector<std::string>& given);

// Random inputs for `pare bench`.
std::vector<Tensor> random_engine_inputs(const EnginePlan& plan, std::uint64_t seed);

// "NAME=1x3x224x224" of --input-shape.
std::pair<std::string, Dims> parse_input_shape(const std::string& text);

}  // namespace pare
