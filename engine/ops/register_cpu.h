// One function a family of operators; each adds its kernels, fastest first, reference last.
#pragma once

namespace pare {

class Registry;

// Every family is listed in register_cpu.cpp. Declare yours here, in the order of the list.
void register_quant(Registry& registry);   // integer convolution and matrix products, quantizers
void register_linear(Registry& registry);  // float convolution, matrix products, their pools and layouts
void register_basic(
    Registry& registry);  // elementwise, data movement, reductions, normalizations; plain kernels

}  // namespace pare
