// Engines on the command line: opening one, and what commands say about it.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "engine/build/backend.h"
#include "engine/build/engine.h"
#include "engine/build/session_engine.h"

namespace pare {

enum class EngineDevice : std::uint8_t { kCpu, kCuda };
// What --device says: cpu; cuda, an error when there is none; auto, the GPU when there is one that works
// (otherwise a message says why not).
EngineDevice device_for(Context& context);

// Reads the file and puts it where it belongs. Errors: kBadFile, kDevice (no GPU module, no device, too
// little memory), kUnsupported when it was built for another architecture or --device says otherwise. Library
// versions other than those it was built with give a warning.
std::unique_ptr<Engine> open_engine(Context& context, const std::string& path);
std::string device_of(Context& context,
                      const Engine& engine);  // "cuda (NVIDIA H200, sm_90a)", "cpu (avx2, 2 threads)"

// "nvidia h200 ...": the value of `device` in a document.
std::string device_text(const DeviceFacts& facts);

// While it lives and --device says cuda, sessions run on the GPU where they can
// (engine/build/session_engine.h).
class DeviceSessions {
 public:
  explicit DeviceSessions(Context& context);  // error kDevice without a GPU
  ~DeviceSessions();
  DeviceSessions(const DeviceSessions&) = delete;
  DeviceSessions& operator=(const DeviceSessions&) = delete;
  // `device` of the document; a warning for each graph that ran on the CPU all the same.
  void report(Context& context) const;

 private:
  std::unique_ptr<EngineSessions> sessions_;
};

// An input that --input gives an array for.
struct WantedInput {
  std::string name;
  DType dtype = DType::kUndefined;
  std::string shape;
};
// The arrays of NAME=FILE.npy in the order of `wanted`. Error kUsage for another form, a name that `whose`
// (the model, the engine) does not have, and an input without an array.
std::vector<Tensor> input_arrays(const std::vector<WantedInput>& wanted, const char* whose,
                                 const std::vector<std::string>& given);
std::vector<Tensor> engine_inputs(const EnginePlan& plan, const std::vector<std::string>& given);

// "NAME=1x3x224x224" of --input-shape.
std::pair<std::string, Dims> parse_input_shape(const std::string& text);

}  // namespace pare
