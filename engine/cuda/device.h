// The device that engines run on (number PARE_CUDA_DEVICE, else 0), and its memory. Opened at the first call;
// one context (the primary one, so cuBLASLt and cuDNN share it) and one stream.
#pragma once

#include "engine/build/backend.h"
#include "engine/cuda/driver.h"

namespace pare::cuda {

class Device {
 public:
  static Device& get();  // error kDevice: no driver, no device, too old a device
  const DeviceFacts& facts() const { return facts_; }
  std::int64_t free_bytes() const;
  CUstream stream() const { return stream_; }
  void use() const { PARE_CU(cuCtxSetCurrent(context_)); }  // once on every further thread

 private:
  Device();
  DeviceFacts facts_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

// Plain device memory, freed with the object. Never managed memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : at_(other.at_), bytes_(other.bytes_) {
    other.at_ = 0, other.bytes_ = 0;
  }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  CUdeviceptr at() const { return at_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  CUdeviceptr at_ = 0;
  std::int64_t bytes_ = 0;
};

// Done when they return. Fills and copies from pageable memory by the plain calls of the driver are still
// under way then, on the default stream, which our streams do not wait for: a kernel may be in front of them
// (seen where other processes shared the card).
void fill_device(CUdeviceptr at, int byte, std::int64_t bytes);
void copy_to_device(CUdeviceptr at, const void* from, std::int64_t bytes);

class Stream {
 public:
  Stream() { PARE_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { driver().cuStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }
  void wait() const { PARE_CU(cuStreamSynchronize(stream_)); }

 private:
  CUstream stream_ = nullptr;
};

class Event {
 public:
  Event() { PARE_CU(cuEventCreate(&event_, CU_EVENT_DEFAULT)); }
  ~Event() { driver().cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(CUstream stream) { PARE_CU(cuEventRecord(event_, stream)); }
  // Milliseconds since `start`; waits for both.
  float since(const Event& start) const;

 private:
  CUevent event_ = nullptr;
};

// Work captured once and launched again and again.
class CapturedGraph {
 public:
  template <typename Body>
  CapturedGraph(CUstream stream, Body&& body) {
    PARE_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    try {
      body();
    } catch (...) {
      CUgraph broken = nullptr;
      driver().cuStreamEndCapture(stream, &broken);
      if (broken != nullptr) driver().cuGraphDestroy(broken);
      throw;
    }
    finish(stream);
  }
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  void launch(CUstream stream) const { PARE_CU(cuGraphLaunch(exec_, stream)); }
  int nodes() const { return nodes_; }

 private:
  void finish(CUstream stream);
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  int nodes_ = 0;
};

}  // namespace pare::cuda
