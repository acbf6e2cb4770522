// All kernels of this build, in order. Session, tests, benchmarks and `pare ops` walk the same list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/ops/kernel.h"

namespace pare {

class Registry {
 public:
  void add(const Kernel& kernel);  // behind those of the same operator: register the fastest first
  const std::vector<Kernel>& kernels() const { return kernels_; }
  std::vector<const Kernel*> candidates(std::string_view domain, std::string_view op, Backend backend) const;
  // The first that takes the call. Error kUnsupported quotes every reason. `only_invariant` leaves out
  // kernels whose results depend on batch or threads.
  const Kernel& pick(const OpCall& call, Backend backend, bool only_invariant) const;

 private:
  std::vector<Kernel> kernels_;
};

// Every CPU kernel (engine/ops/register_cpu.cpp lists them), made once.
const Registry& cpu_registry();

}  // namespace pare
