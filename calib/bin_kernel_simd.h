// Internal to bin_kernel: the kernels of bin_kernel_cpu.cpp.
#pragma once

#include "calib/bin_kernel.h"

namespace pare {

const BinKernel& bin_kernel_avx2();
const BinKernel& bin_kernel_avx512();

}  // namespace pare
