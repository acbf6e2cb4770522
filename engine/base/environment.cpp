#include "engine/base/environment.h"

namespace pare {

const std::vector<EnvironmentVariable>& environment_variables() {
  static const std::vector<EnvironmentVariable> kVariables = {
      {"PARE_CUDA_MODULE", "file of the GPU module (default: pare_cuda.so beside the program, or in ../lib)"},
      {"PARE_CUDA_LIBRARIES",
       "folders, separated by colons, in which cuBLASLt, cuDNN and NVRTC are looked for first"},
      {"PARE_CUDA_DEVICE", "number of the GPU (default 0); --device cuda:N sets it"},
      {"TMPDIR", "folder of temporary files (default /tmp)"},
      {"XDG_CACHE_HOME", "the cache is the folder `pare` in it (default ~/.cache); see `pare cache show`"},
      {"HOME", "where ~/.cache is"},
      {"PARE_TEST_DISK_FULL_AFTER", "for tests: bytes that may be written before the disk is full"},
      {"PARE_GPU_GENERATED_ONLY", "for tests: generated kernels alone are checked"},
      {"PARE_GPU_ONLY", "for tests: kernels of these groups alone are checked, separated by commas"},
      {"PARE_GPU_REPEAT", "for tests: how often each kernel is checked (default 1)"}};
  return kVariables;
}

}  // namespace pare
