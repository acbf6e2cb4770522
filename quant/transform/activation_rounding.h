// Fake quantization of a sample of an activation's rows, as a search over layers sees it: what codes of a
// format would make of them.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/base/thread_pool.h"
#include "quant/placement/spec.h"

namespace pare::quant {

// f(x, rows, channels, largest), in place. `largest`: of the whole activation, which the sample may not
// reach.
//   one scale for the tensor   the range of least squared error over the sample among `largest` times 1, 0.9
//   ...
//                              0.4; the range of asymmetric formats is that of the sample, its longer end
//                              `largest`
//   a scale a block or a row, computed at run time: from each one's own largest magnitude
// An inactive format gives a null function.
using ActivationRounding =
    std::function<void(float* x, std::int64_t rows, std::int64_t channels, double largest)>;
ActivationRounding activation_rounding(const Format& format, ThreadPool& pool);

}  // namespace pare::quant
