#include <algorithm>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/cuda/device.h"
#include "engine/cuda/tactic.h"

namespace pare::cuda {
namespace {

// Programmatic launches came with sm_90.
bool overlaps() {
  static const bool yes = std::atoi(Device::get().facts().architecture.c_str() + 3) >= 90;
  return yes;
}

class Generated final : public Tactic {
 public:
  Generated(const KernelSource& source, const Tensor& binary) : source_(source) {
    PARE_CU(cuModuleLoadData(&module_, binary.data()));
    PARE_CU(cuModuleGetFunction(&function_, module_, "kernel"));
    if (source_.shared_bytes > 0)
      PARE_CU(cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 source_.shared_bytes));
    source_.code.clear();
  }
  ~Generated() override {
    if (module_ != nullptr) driver().cuModuleUnload(module_);
  }
  Generated(const Generated&) = delete;
  Generated& operator=(const Generated&) = delete;

  const std::string& name() const override { return source_.tactic; }
  bool generated() const override { return true; }
  std::int64_t workspace() const override { return source_.workspace_bytes; }
  std::int64_t counters() const override { return source_.counters; }

  void launch(CUstream stream, const Operands& at) override {
    encode_maps(at);
    std::vector<CUdeviceptr> pointers;
    for (const int i : source_.in) pointers.push_back(at.in[static_cast<std::size_t>(i)]);
    for (const int i : source_.out) pointers.push_back(at.out[static_cast<std::size_t>(i)]);
    if (source_.workspace_bytes > 0) pointers.push_back(at.workspace);
    if (source_.counters > 0) pointers.push_back(at.counters);
    std::vector<void*> arguments;
    for (CUtensorMap& map : maps_) arguments.push_back(&map);
    for (CUdeviceptr& p : pointers) arguments.push_back(&p);
    std::uint32_t eager = at.eager ? 1 : 0;
    arguments.push_back(&eager);
    // The kernel may start while the one in front of it finishes; prelude()'s await_ holds it back where it
    // must.
    CUlaunchAttribute overlap{};
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = launch_config(stream);
    config.attrs = &overlap;
    config.numAttrs = overlaps() ? 1 : 0;
    PARE_CU(cuLaunchKernelEx(&config, function_, arguments.data(), nullptr));
  }

 private:
  CUlaunchConfig launch_config(CUstream stream) const {
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(source_.grid[0]);
    config.gridDimY = static_cast<unsigned>(source_.grid[1]);
    config.gridDimZ = static_cast<unsigned>(source_.grid[2]);
    config.blockDimX = static_cast<unsigned>(source_.block);
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(source_.shared_bytes);
    config.hStream = stream;
    return config;
  }
  void encode_maps(const Operands& at) {
    maps_.resize(source_.maps.size());
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      const TensorMap& m = source_.maps[i];
      const CUtensorMapDataType type = m.type == DType::kF16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : m.type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                                : CU_TENSOR_MAP_DATA_TYPE_UINT8;
      cuuint64_t dims[4], strides[3];
      cuuint32_t box[3], steps[4] = {1, 1, 1, 1};
      for (int d = 0; d < 4; ++d) dims[d] = static_cast<cuuint64_t>(m.dims[d]);
      for (int d = 0; d < 3; ++d) box[d] = static_cast<cuuint32_t>(m.box[d]);
      for (int d = 0; d < 3; ++d) strides[d] = static_cast<cuuint64_t>(m.strides[d]);
      const CUtensorMapSwizzle swizzle =
          m.bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
      if (m.pixels) {
        steps[1] = static_cast<cuuint32_t>(m.step[0]), steps[2] = static_cast<cuuint32_t>(m.step[1]);
        PARE_CU(cuTensorMapEncodeIm2col(
            &maps_[i], type, 4, reinterpret_cast<void*>(at.in[static_cast<std::size_t>(m.slot)]), dims,
            strides, m.lower, m.upper, box[0], box[1], steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
        continue;
      }
      PARE_CU(cuTensorMapEncodeTiled(&maps_[i], type, 3,
                                     reinterpret_cast<void*>(at.in[static_cast<std::size_t>(m.slot)]), dims,
                                     strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    }
  }
  std::vector<CUtensorMap> maps_;
  KernelSource source_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace

std::string Tactic::realized(const EnginePlan&, const PlanLayer& layer) const {
  return layer.requested == "tf32" && generated() ? "float32" : layer.requested;  // ours do not round to TF32
}

std::unique_ptr<Tactic> make_generated(const KernelSource& source, const Tensor& binary) {
  return std::make_unique<Generated>(source, binary);
}

}  // namespace pare::cuda
