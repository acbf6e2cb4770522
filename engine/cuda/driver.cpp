#include "engine/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

namespace pare::cuda {
namespace {

void* open_library(const char* name, const char* remedy) {
  std::vector<std::string> paths;
  if (const char* folders = std::getenv("PARE_CUDA_LIBRARIES"); folders != nullptr) {
    const std::string text = folders;
    for (std::size_t begin = 0; begin <= text.size();) {
      std::size_t end = text.find(':', begin);
      if (end == std::string::npos) end = text.size();
      if (end > begin) paths.push_back(text.substr(begin, end - begin) + "/" + name);
      begin = end + 1;
    }
  }
  paths.emplace_back(name);
  for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"})
    paths.push_back(std::string(folder) + name);
  std::string reason;
  for (const std::string& path : paths) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    const char* text = dlerror();
    if (reason.empty() && text != nullptr) reason = text;
  }
  throw make_error(ErrorCode::kDevice, "{} cannot be opened: {}", name, reason).hint(remedy);
}

template <typename F>
void resolve(void* handle, const char* library, const char* symbol, F& into) {
  into = reinterpret_cast<F>(dlsym(handle, symbol));
  if (into == nullptr) fail(ErrorCode::kDevice, "{} has no function {}: it is too old", library, symbol);
}

// Headers rename functions to versions of them by macros (cuMemAlloc is cuMemAlloc_v2): the expanded name is
// asked for.
#define PARE_TEXT(x) #x
#define PARE_EXPANDED(x) PARE_TEXT(x)

}  // namespace

const Driver& driver() {
  static const Driver table = [] {
    Driver d;
    void* handle = open_library(
        "libcuda.so.1", "install the NVIDIA driver; a machine without a GPU runs everything on the CPU");
#define PARE_RESOLVE(name) resolve(handle, "libcuda", PARE_EXPANDED(name), d.name);
    PARE_DRIVER_FUNCTIONS(PARE_RESOLVE)
    return d;
  }();
  return table;
}

const Nvrtc& nvrtc() {
  static const Nvrtc table = [] {
    Nvrtc d;
    void* handle = open_library("libnvrtc.so.13",
                                "install the CUDA Toolkit 13, or point PARE_CUDA_LIBRARIES to its libraries");
    PARE_NVRTC_FUNCTIONS(PARE_RESOLVE)
    return d;
  }();
  return table;
}

const Lt& lt() {
  static const Lt table = [] {
    Lt d;
    void* handle = open_library("libcublasLt.so.13",
                                "install the CUDA Toolkit 13, or point PARE_CUDA_LIBRARIES to its libraries");
    PARE_LT_FUNCTIONS(PARE_RESOLVE)
    return d;
  }();
  return table;
}

const Cudnn& cudnn() {
  static const Cudnn table = [] {
    Cudnn d;
    void* handle =
        open_library("libcudnn.so.9", "install cuDNN 9 for CUDA 13, or point PARE_CUDA_LIBRARIES to it");
    PARE_CUDNN_FUNCTIONS(PARE_RESOLVE)
#undef PARE_RESOLVE
    return d;
  }();
  return table;
}

void check(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().cuGetErrorString(status, &text);
  if (status == CUDA_ERROR_OUT_OF_MEMORY)
    throw make_error(ErrorCode::kDevice, "the device is out of memory ({})", what)
        .hint("build for a smaller batch");
  fail(ErrorCode::kDevice, "{}: {}", what, text == nullptr ? "unknown error" : text);
}

void check(nvrtcResult status, const char* what) {
  if (status != NVRTC_SUCCESS) fail(ErrorCode::kDevice, "{}: {}", what, nvrtc().nvrtcGetErrorString(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorCode::kDevice, "{}: cuBLAS status {}", what, static_cast<int>(status));
}

void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    fail(ErrorCode::kDevice, "{}: {}", what, cudnn().cudnnGetErrorString(status));
}

}  // namespace pare::cuda
