#include "engine/ops/register_linear.h"

#include "engine/ops/matmul/wmatmul.h"
#include "engine/ops/register_cpu.h"

namespace pare {

void register_linear(Registry& registry) {
  register_pare_conv(registry);
  register_conv_plain_cpu(registry);
  register_channels_last(registry);
  register_matmul_cpu(registry);
  register_pare_matmul_ref(registry);
  add_wmatmul_kernels(registry);
  add_wmatmul_references(registry);
}

}  // namespace pare
