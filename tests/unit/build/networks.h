// The shapes of networks that people build engines for, with random weights and an eighth of the usual width
// (the same layers, so the same kernels): what PyTorch's exporters write for them, after batch normalization
// was folded.
#pragma once

#include "engine/ir/graph.h"

namespace pare::test {

Graph resnet50();  // 53 convolutions, image [1,3,64,64]
// The layers of a quantized image network: 7x7 by 2 of an image, a pool, a block with a residual and a
// shortcut, one channel a group; int8 or E4M3 codes between all of them.
Graph image_codes(DType type, Dims image = {2, 3, 36, 36});
Graph vit(int layers);  // packed q/k/v Gemm, class token, image [2,3,32,32] in patches of 16
Graph bert(
    int layers,
    std::int64_t batch);  // three products for q, k, v; keys turned in rank 3, NaN guard; ids [batch,16]

// Products with a GELU, a residual and normalizations between them, large enough for tiles that several
// warpgroups share, of codes of that type. x [5640,64].
Graph large_products(DType type);

}  // namespace pare::test
