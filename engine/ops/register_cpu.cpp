#include "engine/ops/register_cpu.h"

#include "engine/ops/registry.h"

namespace pare {

const Registry& cpu_registry() {
  static const Registry registry = [] {
    Registry r;
    register_quant(r);
    register_linear(r);
    register_basic(r);
    return r;
  }();
  return registry;
}

}  // namespace pare
