#include "engine/ops/elementwise_binary.h"
#include "engine/ops/elementwise_unary.h"
#include "engine/ops/movement.h"
#include "engine/ops/register_cpu.h"
#include "engine/ops/registry.h"

namespace pare {

void register_basic(Registry& registry) {
  add_elementwise_unary_kernels(registry);
  add_elementwise_unary_reference(registry);
  add_elementwise_binary_kernels(registry);
  add_elementwise_binary_reference(registry);
  add_movement_kernels(registry);
  add_movement_references(registry);
  add_gather_kernels(registry);
  add_shape_kernels(registry);
}

}  // namespace pare
