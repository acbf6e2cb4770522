// Kernels as text: what a layer of a plan becomes when a kernel is generated for it. All sizes stand in the
// text as numbers, so equal layers give equal text and are compiled once. Nothing here needs CUDA: the text
// can be made, compared and (where NVRTC is) compiled without a device.
//
// Arithmetic is that of engine/build/plan/plan_reference.h with float32 sums. Arguments of every kernel are
// pointers: the layer's present inputs in order, its outputs, then the workspace and the counters if it asks
// for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/build/plan/engine_plan.h"

namespace pare::cuda {

// A view that the bulk copy engine reads by tiles of `bytes` (64 or 128) of k, swizzled by as much:
// [batch, rows, k] (cuTensorMapEncodeTiled), or the pixels [N,H,W,C] that a convolution's windows begin at
// (cuTensorMapEncodeIm2col).
struct TensorMap {
  int slot = 0;  // which input of the layer
  DType type = DType::kUndefined;
  std::int64_t dims[4] = {}, strides[3] = {};  // innermost first; strides in bytes
  int box[3] = {};                             // k, rows (pixels), batches
  int bytes = 128;
  bool pixels = false;
  int lower[2] = {}, upper[2] = {}, step[2] = {1, 1};  // of windows in x and y; corners beyond the image's
};

struct KernelSource {
  std::string tactic;  // "rows:warp", "gemm:mma_128x64x64_s3", ... unique among the kernels of one layer
  std::string code;    // with the entry point `kernel`; compiled behind prelude()
  std::int64_t grid[3] = {1, 1, 1};
  int block = 256;
  int shared_bytes = 0;              // dynamic
  std::int64_t workspace_bytes = 0;  // > 0: an argument behind the outputs
  std::int64_t counters = 0;         // > 0: a further argument, that many zeroed 32 bit words, left zeroed
  std::vector<int> in, out;          // which views are arguments
  std::vector<TensorMap> maps;       // arguments in front of all others
};

// Types, conversions and the functions that program steps call. Includes nothing.
const std::string& prelude();

// Each gives the kernels that can run the layer, the likeliest first, or says in `why_not` why there is none.
std::vector<KernelSource> pointwise_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not);
std::vector<KernelSource> rows_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not);
// MaxPool by words of 16 bit pairs.
std::vector<KernelSource> max_pool_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                           std::string& why_not);
std::vector<KernelSource> pool_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not);
// One thread an output: any convolution or product, slowly. The last resort.
std::vector<KernelSource> plain_linear_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                               std::string& why_not);
std::vector<KernelSource> depthwise_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not);
// Tensor cores (mma.sync) for products and convolutions of float16, bfloat16 and int8, with the whole
// epilogue.
std::vector<KernelSource> mma_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not);
// wgmma and TMA: products of float16, bfloat16, E4M3 and int8, with the whole epilogue.
std::vector<KernelSource> wgmma_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not);
// The same for large products: two warpgroups take turns, so that finishing a tile costs no time of the
// matrix unit.
std::vector<KernelSource> pingpong_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                           std::string& why_not);
// Products whose weights stay in shared memory while rows and residual stream through it: what memory limits.
std::vector<KernelSource> stream_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                         std::string& why_not);
// Convolutions of stride 1 on wgmma whose windows overlap in shared memory: small pixels, 3x3 layers.
std::vector<KernelSource> window_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                         std::string& why_not);
// The same with weights that stay and images that stream through.
std::vector<KernelSource> strip_kernels(const EnginePlan& plan, const PlanLayer& layer, std::string& why_not);
// Large products where two or three warpgroups share a tile, which is larger and finished by all of them.
std::vector<KernelSource> shared_tile_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                              std::string& why_not);
std::vector<KernelSource> attention_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not);
// All of them for this layer; why_not quotes each group that gives none.
std::vector<KernelSource> generated_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not);

// --- for the generators
const char* type_word(DType type);  // "F16", "float", "i8", ...
int size_of(DType type);
DType type_of(const EnginePlan& plan, const PlanView& view);
std::string number(double value);  // a float literal, infinities and NaN included
using Replacements = std::vector<std::pair<std::string, std::string>>;
// Replaces each $NAME$ by its text. Error kInternal when one is left.
std::string fill(std::string text, const Replacements& words);
// `words`, and behind them a convolution's or pool's sizes: KH KW, SH SW, DH DW, TOP LEFT, OH OW, H W, C.
Replacements with_geometry(Replacements words, const ConvGeometry& g);
// "const F16* __restrict__ in0, ..., float* __restrict__ out0", and the views in order.
std::string parameters(const EnginePlan& plan, const PlanLayer& layer, KernelSource& source);
// float activation_(float v): the epilogue's, as exact as results stored in `out` can show.
std::string activation_code(const Activation& act, DType out);
// The activation is also there for two float16 at once (u32 activation_pair_(u32)), exact enough for E4M3.
bool activates_pairs(const PlanLayer& layer, DType out);
// log2 Phi(-a), a >= 0, as a polynomial, lowest power first. With it x Phi(x) = max(x, 0) - |x| Phi(-|x|) is
// off by at most 0.6 of half a unit in the last place of a float16; for codes by 8.1e-5, and 0.5 % of its
// value (half a unit of E4M3 is 3 to 6 %). Empty: float32 asks for more.
std::vector<float> gelu_tail(DType out);

}  // namespace pare::cuda
