#include "cli/version.h"

#include "engine/base/error.h"
#include "engine/base/isa.h"

namespace pare {

std::string version() { return PARE_VERSION; }

std::string version_text() {
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#else
  const std::string compiler = fmt::format("gcc {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
  return fmt::format(
      "pare {}\nbuilt by {}, {}; processor: {} (instruction class {})\nreads ONNX, safetensors "
      "and GGUF; engines for the CPU, and by the module pare_cuda.so for CUDA\n"
      "Apache-2.0; NOTICE names what comes with it",
      version(), compiler,
#ifdef NDEBUG
      "release",
#else
      "debug",
#endif
      name(best_isa()), reproducibility_class(isa()));
}

}  // namespace pare
