// NVRTC: kernel texts to machine code. Needs no device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/tensor.h"

namespace pare::cuda {

std::string source_hash(const std::string& code);  // of the text behind the prelude; names its binary

// One text (with the prelude in front) for `architecture` ("sm_90a"). Error kDevice quoting the compiler's
// log.
std::string compile(const std::string& code, const std::string& architecture);

struct Compiled {
  std::map<std::string, Tensor> binaries;     // by source_hash
  std::map<std::string, std::string> failed;  // why not
  double seconds = 0;
};
// Different texts, by up to `jobs` processes (NVRTC compiles one at a time within a process). The children
// never touch the device, so it may be open already.
Compiled compile_all(const std::vector<std::string>& codes, const std::string& architecture, int jobs);

}  // namespace pare::cuda
