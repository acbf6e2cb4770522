// The CUDA driver, NVRTC, cuBLASLt and cuDNN, all opened when they are first needed: the module links none of
// them, and a machine that lacks one gets a sentence instead of a loader's error.
//
// Looked for in PARE_CUDA_LIBRARIES (folders, colon-separated), then as the system finds them, then in
// /usr/local/cuda.
#pragma once

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn_graph.h>
#include <nvrtc.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace pare::cuda {

// clang-format off
#define PARE_DRIVER_FUNCTIONS(F)                                                                   \
  F(cuInit) F(cuDriverGetVersion) F(cuDeviceGet) F(cuDeviceGetName) F(cuDeviceGetAttribute)        \
  F(cuDeviceTotalMem) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuMemAlloc) F(cuMemFree)    \
  F(cuMemcpyHtoD) F(cuMemcpyDtoH) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoHAsync) F(cuMemsetD8)          \
  F(cuMemGetInfo) F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamSynchronize) F(cuStreamBeginCapture) F(cuStreamEndCapture)           \
  F(cuGraphInstantiate) F(cuGraphLaunch) F(cuGraphDestroy) F(cuGraphExecDestroy) F(cuGraphGetNodes) \
  F(cuEventCreate) F(cuEventDestroy) F(cuEventRecord) F(cuEventSynchronize) F(cuEventElapsedTime)  \
  F(cuModuleLoadData) F(cuModuleUnload) F(cuModuleGetFunction) F(cuFuncSetAttribute)               \
  F(cuLaunchKernelEx) F(cuTensorMapEncodeTiled) F(cuGetErrorString)                                  \
  F(cuTensorMapEncodeIm2col)

#define PARE_NVRTC_FUNCTIONS(F)                                                                    \
  F(nvrtcVersion) F(nvrtcCreateProgram) F(nvrtcCompileProgram) F(nvrtcGetProgramLogSize)           \
  F(nvrtcGetProgramLog) F(nvrtcGetCUBINSize) F(nvrtcGetCUBIN) F(nvrtcDestroyProgram)               \
  F(nvrtcGetErrorString)

#define PARE_LT_FUNCTIONS(F)                                                                       \
  F(cublasLtCreate) F(cublasLtGetVersion) F(cublasLtMatmul) F(cublasLtMatmulDescCreate)            \
  F(cublasLtMatmulDescDestroy) F(cublasLtMatmulDescSetAttribute) F(cublasLtMatrixLayoutCreate)     \
  F(cublasLtMatrixLayoutDestroy) F(cublasLtMatrixLayoutSetAttribute)                               \
  F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy)                             \
  F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatmulAlgoGetHeuristic)                        \
  F(cublasLtMatmulAlgoCheck)

#define PARE_CUDNN_FUNCTIONS(F)                                                                    \
  F(cudnnCreate) F(cudnnSetStream) F(cudnnGetVersion) F(cudnnGetErrorString)                       \
  F(cudnnBackendCreateDescriptor) F(cudnnBackendDestroyDescriptor) F(cudnnBackendSetAttribute)     \
  F(cudnnBackendGetAttribute) F(cudnnBackendFinalize) F(cudnnBackendExecute)
// clang-format on

#define PARE_DECLARE(name) decltype(&::name) name = nullptr;
struct Driver {
  PARE_DRIVER_FUNCTIONS(PARE_DECLARE)
};
struct Nvrtc {
  PARE_NVRTC_FUNCTIONS(PARE_DECLARE)
};
struct Lt {
  PARE_LT_FUNCTIONS(PARE_DECLARE)
};
struct Cudnn {
  PARE_CUDNN_FUNCTIONS(PARE_DECLARE)
};
#undef PARE_DECLARE

// Opened at the first call; error kDevice naming the library that is missing or lacks a function.
const Driver& driver();
const Nvrtc& nvrtc();
const Lt& lt();
const Cudnn& cudnn();

void check(CUresult status, const char* what);
void check(nvrtcResult status, const char* what);
void check(cublasStatus_t status, const char* what);
void check(cudnnStatus_t status, const char* what);

}  // namespace pare::cuda

#define PARE_CU(call) ::pare::cuda::check(::pare::cuda::driver().call, #call)
