// AutoAWQ and GPTQ: integer weights in groups, float16 scales, tensors [in, out].
//
//   autoawq   4 bits: qweight I32 [in, out/8], qzeros I32 [in/g, out/8], scales F16 [in/g, out]; one format
//             for all layers
//   gptq      2, 3, 4, 8 bits: qweight I32 [in*b/32, out], qzeros I32 [in/g, out*b/32] of z - 1, scales F16,
//             g_idx I32 [in]; layers that differ stand under `dynamic`
//   gptq_v2   the same with qzeros of z: GPTQModel; holds a zero point of 0, which the first version cannot
//
// Sources: AutoAWQ 0.2, AutoGPTQ 0.7, GPTQModel; golden vectors tests/golden/codecs.
#pragma once

#include "graphsurgeon/checkpoint/dialect.h"

namespace pare {

std::string awq_why_not(const LinearFormat& layer);
std::vector<StoredTensor> awq_tensors(const QuantizedLinear& layer);
Json awq_config(const QuantizedModel& model);
std::vector<std::pair<std::string, std::string>> awq_files(const QuantizedModel& model);

std::string gptq_why_not(const LinearFormat& layer);
std::vector<StoredTensor> gptq_tensors(const QuantizedLinear& layer);
std::vector<StoredTensor> gptq_v2_tensors(const QuantizedLinear& layer);
Json gptq_config(const QuantizedModel& model);
Json gptq_v2_config(const QuantizedModel& model);
std::vector<std::pair<std::string, std::string>> gptq_files(const QuantizedModel& model);
std::vector<std::pair<std::string, std::string>> gptq_v2_files(const QuantizedModel& model);

}  // namespace pare
