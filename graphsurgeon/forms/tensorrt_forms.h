// Standard Q/DQ as the custom operators that TensorRT's ONNX parser takes for its own formats (domain "trt"),
// as NVIDIA's exporters write them. Reading such files back gives the standard operators again
// (onnx/raise_tensorrt.cpp).
//
//   standard                                                   trt
//   QuantizeLinear to E2M1 with E4M3 scales made at run time   TRT_FP4DynamicQuantize(x, global; axis,
//     (engine/ir/block_scales.h)                                 block_size, scale_type 17) -> codes, scales
//   QuantizeLinear to E4M3 with E8M0 scales made at run time   TRT_MXFP8DynamicQuantize(x; axis, block_size)
//                                                                -> codes, scales as uint8
//   DequantizeLinear(E4M3 codes, E8M0 scales)                  TRT_MXFP8DequantizeLinear(codes, uint8)
//   QuantizeLinear, DequantizeLinear with E4M3 codes           TRT_FP8QuantizeLinear, TRT_FP8DequantizeLinear
//   DequantizeLinear with INT4 codes in blocks                 TRT_INT4DequantizeLinear
//   FP4 weights (two DequantizeLinear)                         stay standard, as TensorRT takes them
//
// Zero points of 0 go. INT8 stays standard.
#pragma once

#include "graphsurgeon/forms/qoperator.h"

namespace pare {

QuantizedFormReport to_tensorrt_forms(Graph& graph);

}  // namespace pare
