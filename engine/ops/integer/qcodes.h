// Elementwise work that goes from 8 bit codes to 8 bit codes.
//
//   pare.QLookup  x s8|u8, table u8 [256] constant -> y,
//                 s8 or u8 (attribute y_dtype, a DType number; the type
//                 of x when absent): the code whose bits are table[bits of x]
//                 DequantizeLinear -> functions of one value -> QuantizeLinear, computed once for each code
//   pare.QAdd     a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero -> y
//                 y = saturate(rne(activation((a - za) * sa + (b - zb) * sb) / sy) + zy), each step rounded
//                 to float32 as in qfinish.h: the bits of DequantizeLinear, Add, activation, QuantizeLinear
//                 a, b, y: s8 or u8, of one shape; scales: one constant each; zero points: optional,
//                 constant; the type of y is that of y_zero. Attributes: activation.h
#pragma once

#include "engine/ops/kernel.h"

namespace pare::qcodes {

Kernel lookup_kernel();
Kernel add_kernel();  // the finish of integer sums, over codes
Kernel lookup_ref_kernel();
Kernel add_ref_kernel();

}  // namespace pare::qcodes
