// The float32 linear operators, family by family; register_linear() gives them their order.
#pragma once

namespace pare {

class Registry;

void register_pare_conv(Registry& registry);
void register_conv_plain_cpu(Registry& registry);
void register_channels_last(Registry& registry);
void register_matmul_cpu(Registry& registry);
void register_pare_matmul_ref(Registry& registry);

}  // namespace pare
