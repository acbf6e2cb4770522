// One way of running one layer on the device: a generated kernel, or a library's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/build/plan/engine_plan.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/kernel_source.h"

namespace pare::cuda {

// Where a layer's views are: device addresses with the views' offsets added, 0 for absent ones.
struct Operands {
  std::vector<CUdeviceptr> in, out;
  CUdeviceptr workspace = 0, counters = 0;
  bool eager = false;  // the next launch on the stream is a generated kernel: it may start early
};

class Tactic {
 public:
  virtual ~Tactic() = default;
  virtual const std::string& name() const = 0;
  virtual std::int64_t workspace() const { return 0; }
  virtual std::int64_t counters() const { return 0; }
  virtual int kernels() const { return 1; }
  virtual bool generated() const { return false; }  // begins with a kernel of ours
  virtual std::string realized(const EnginePlan& plan, const PlanLayer& layer) const;  // what it computes in
  virtual void launch(CUstream stream, const Operands& at) = 0;  // captured into graphs; error kDevice
};

// A generated kernel with its machine code.
std::unique_ptr<Tactic> make_generated(const KernelSource& source, const Tensor& binary);

// cuBLASLt: products of float types, with bias, relu and residual where its epilogues allow. `wanted` ""
// gives all that its heuristic names for this device (at most `most`), else the one of that name. Needs the
// device.
std::vector<std::unique_ptr<Tactic>> lt_tactics(const EnginePlan& plan, const PlanLayer& layer,
                                                const std::string& wanted, int most, std::string& why_not);
// "split:" and a product of cuBLASLt without its activation, which a generated kernel then applies in place.
// For activations that cuBLASLt does not know. The small kernel's binary is taken from `plan` or compiled,
// and left in `binary` under its hash.
struct SplitKernel {
  std::string hash;
  Tensor binary;
};
std::vector<std::unique_ptr<Tactic>> split_tactics(const EnginePlan& plan, const PlanLayer& layer,
                                                   const std::string& wanted, int most, std::string& why_not,
                                                   SplitKernel* kernel = nullptr);
// cuDNN: convolutions and products with the whole epilogue, float and int8.
std::vector<std::unique_ptr<Tactic>> cudnn_tactics(const EnginePlan& plan, const PlanLayer& layer,
                                                   const std::string& wanted, int most, std::string& why_not);

}  // namespace pare::cuda
