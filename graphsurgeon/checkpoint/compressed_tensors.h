// compressed-tensors: how a layer is called and stored there.
//
//   integers, float inputs                 pack-quantized        weight_packed I32, weight_scale,
//                                                                weight_shape I64,
//                                                                zero points I32, weight_g_idx I32
//   integers, int8 inputs                  int-quantized         weight I8, weight_scale, weight_zero_point
//   I8 E4M3 per tensor, channel, 128x128      float-quantized       weight F8_E4M3, weight_scale
//     with float inputs                    naive-quantized       the same
//   E2M1 in 16, two levels                 nvfp4-pack-quantized  weight_packed U8, weight_scale F8_E4M3,
//                                                                weight_global_scale F32 (divides)
//   E2M1 or E4M3 in 32, scales E8M0        mxfp4-pack-quantized, mxfp8-quantized: weight_scale U8
//
// Static inputs have input_scale (input_zero_point), two-level ones input_global_scale. Several formats in
// one model: mixed-precision. Source: compressed-tensors 0.20; golden vectors tests/golden/codecs.
#pragma once

#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

std::string ct_why_not(const LinearFormat& layer);
const char* ct_format(const LinearFormat& layer);  // "pack-quantized"; of one that fits
std::vector<StoredTensor> ct_tensors(const QuantizedLinear& layer);
std::vector<StoredTensor> ct_kv_tensors(const KvScales& scales);
Json ct_config(const QuantizedModel& model);

}  // namespace pare
