#include "engine/cuda/device.h"

#include <cstdlib>

namespace pare::cuda {
namespace {

template <typename F>
std::string version_of(F read) {
  try {
    return read();
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

Device::Device() {
  PARE_CU(cuInit(0));
  CUdevice device = 0;
  const char* wanted = std::getenv("PARE_CUDA_DEVICE");
  PARE_CU(cuDeviceGet(&device, wanted == nullptr ? 0 : std::atoi(wanted)));
  char name[256] = {};
  PARE_CU(cuDeviceGetName(name, sizeof name, device));
  facts_.name = name;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    PARE_CU(cuDeviceGetAttribute(&value, which, device));
    return value;
  };
  const int major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (major < 8)
    throw make_error(ErrorCode::kDevice, "{} has compute capability {}.{}; engines need 8.0", name, major,
                     minor)
        .hint("run on the CPU: --device cpu");
  facts_.architecture = fmt::format("sm_{}{}{}", major, minor, major == 9 ? "a" : "");
  facts_.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts_.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  std::size_t memory = 0;
  PARE_CU(cuDeviceTotalMem(&memory, device));
  facts_.memory_bytes = static_cast<std::int64_t>(memory);
  PARE_CU(cuDevicePrimaryCtxRetain(&context_, device));
  PARE_CU(cuCtxSetCurrent(context_));
  PARE_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  facts_.versions["driver"] = version_of([] {
    int v = 0;
    driver().cuDriverGetVersion(&v);
    return std::to_string(v);
  });
  facts_.versions["nvrtc"] = version_of([] {
    int a = 0, b = 0;
    nvrtc().nvrtcVersion(&a, &b);
    return fmt::format("{}.{}", a, b);
  });
  facts_.versions["cublaslt"] = version_of([] { return std::to_string(lt().cublasLtGetVersion()); });
  facts_.versions["cudnn"] = version_of([] { return std::to_string(cudnn().cudnnGetVersion()); });
}

Device& Device::get() {
  static Device* device = new Device;  // never closed: libraries hold the context until exit
  return *device;
}

std::int64_t Device::free_bytes() const {
  std::size_t free = 0, all = 0;
  PARE_CU(cuMemGetInfo(&free, &all));
  return static_cast<std::int64_t>(free);
}

DeviceMemory::DeviceMemory(std::int64_t bytes) : bytes_(bytes) {
  if (bytes > 0) PARE_CU(cuMemAlloc(&at_, static_cast<std::size_t>(bytes)));
}

DeviceMemory::~DeviceMemory() {
  if (at_ != 0) driver().cuMemFree(at_);
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void fill_device(CUdeviceptr at, int byte, std::int64_t bytes) {
  if (bytes <= 0) return;
  PARE_CU(cuMemsetD8(at, static_cast<unsigned char>(byte), static_cast<std::size_t>(bytes)));
  PARE_CU(cuStreamSynchronize(nullptr));
}

void copy_to_device(CUdeviceptr at, const void* from, std::int64_t bytes) {
  if (bytes <= 0) return;
  PARE_CU(cuMemcpyHtoD(at, from, static_cast<std::size_t>(bytes)));
  PARE_CU(cuStreamSynchronize(nullptr));
}

float Event::since(const Event& start) const {
  PARE_CU(cuEventSynchronize(event_));
  float ms = 0;
  PARE_CU(cuEventElapsedTime(&ms, start.event_, event_));
  return ms;
}

void CapturedGraph::finish(CUstream stream) {
  PARE_CU(cuStreamEndCapture(stream, &graph_));
  PARE_CU(cuGraphInstantiate(&exec_, graph_, 0));
  std::size_t count = 0;
  PARE_CU(cuGraphGetNodes(graph_, nullptr, &count));
  nodes_ = static_cast<int>(count);
}

CapturedGraph::~CapturedGraph() {
  if (exec_ != nullptr) driver().cuGraphExecDestroy(exec_);
  if (graph_ != nullptr) driver().cuGraphDestroy(graph_);
}

}  // namespace pare::cuda
