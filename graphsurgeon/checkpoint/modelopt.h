// NVIDIA Model Optimizer's unified checkpoints: which algorithm a layer is, and its tensors.
//
//   FP8                        E4M3 per tensor, static inputs       weight F8_E4M3, weight_scale F32 [],
//   input_scale FP8_PER_CHANNEL_PER_TOKEN  E4M3 per channel, inputs by token    weight_scale [out] FP8_PB_WO
//   E4M3 in 128x128                      weight_scale [out/128, 1, in/128, 1] NVFP4, W4A16_NVFP4,
//   W4A8_NVFP4_FP8   E2M1 in 16, two levels    weight U8 [out, in/2], weight_scale F8_E4M3,
//                                                                    weight_scale_2 F32 (multiplies)
//   W4A8_MXFP4_FP8, MXFP8      E2M1, E4M3 in 32, scales E8M0        weight, weight_scale U8 [out, in/32]
//   W4A16_AWQ        int4 in groups                       weight U8 [out/2, in], weight_scale [out,
//                                                                    in/g],
//                                                                    pre_quant_scale [in] where there are
//                                                                    factors
//   W8A16, W8A8_SQ_PER_CHANNEL int8 per channel                     weight I8, weight_scale [out]
//
// Layers of several algorithms: MIXED_PRECISION. Source: nvidia-modelopt 0.47, torch/export.
#pragma once

#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

std::string modelopt_why_not(const LinearFormat& layer);
// "NVFP4"; "" for a layer that is none of them.
std::string modelopt_algorithm(const LinearFormat& layer);
std::vector<StoredTensor> modelopt_tensors(const QuantizedLinear& layer);
std::vector<StoredTensor> modelopt_kv_tensors(const KvScales& scales);
Json modelopt_config(const QuantizedModel& model);  // quantization_config of config.json
std::vector<std::pair<std::string, std::string>> modelopt_files(const QuantizedModel& model);

}  // namespace pare
