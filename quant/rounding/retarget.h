// Which weight to round when a layer will not read what it was trained to read.
//
// In the quantized model a layer's input is xh, not x: what comes before it lost something, and the input
// itself may be rounded. The best real weight for xh, by E |W x + r - V xh|^2 with r what the layer may
// repair besides (the error of the residual stream that its output is added to), is linear regression:
//
//   V = W + E[t xh^T] (Gh + lambda I)^-1,    t = W (x - xh) + r,    Gh = E[xh xh^T]
//
// and the loss of any codes Q is tr((V - Q) Gh (V - Q)^T) plus what no codes can change. So V takes W's place
// and Gh that of G, and every weight method works as before. lambda = ridge * mean(diag Gh) pulls V to W in
// directions that the data hardly shows. Sources: GPTAQ (arXiv 2504.02692), QEP (arXiv 2504.09629).
#pragma once

#include <vector>

#include "engine/base/thread_pool.h"
#include "quant/grid/weight_rows.h"

namespace pare::quant {

// `gram` E[xh xh^T] [cols][cols], both triangles; `cross` E[t xh^T] [rows][cols]. False, and `weight` as it
// was, where the regression has no finite solution. One group, one thread's arithmetic in float64.
bool retarget(WeightRows& weight, const std::vector<float>& gram, const std::vector<double>& cross,
              double ridge);

}  // namespace pare::quant
