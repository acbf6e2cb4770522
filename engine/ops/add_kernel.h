// One line a kernel in the lists at the end of each family's file.
#pragma once

#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {

// A kernel named "OP/cpu:VARIANT". `like` holds what the kernels of a list share.
inline void add_kernel(Registry& registry, std::string_view op, std::string_view variant,
                       std::string (*why_not)(const OpCall&), void (*run)(const OpCall&), Kernel like = {}) {
  like.op = op;
  like.name = kernel_name(op, variant);
  like.why_not = why_not;
  like.run = run;
  registry.add(like);
}

}  // namespace pare
