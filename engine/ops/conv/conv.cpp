#include "engine/ops/conv/conv.h"

#include "engine/ops/conv/conv_transpose.h"
#include "engine/ops/register_linear.h"
#include "engine/ops/registry.h"

namespace pare {
namespace {

bool read_ints(const Node& node, const char* key, std::size_t count, std::int64_t otherwise,
               std::vector<std::int64_t>& values) {
  values = node.attr_ints(key);
  if (values.empty()) values.assign(count, otherwise);
  return values.size() == count;
}

}  // namespace

std::string resolve_conv(const OpCall& call, ConvGeometry& g, Activation& activation) {
  if (call.in.size() < 2 || call.out.size() != 1) return "needs two inputs and one output";
  const TensorView &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const TensorView &bias = call.input(2), &residual = call.input(3);
  for (const TensorView& view : call.in)
    if (view.present() && view.dtype != DType::kF32) return "float32 only";
  if (!x.present() || !w.present() || y.dtype != DType::kF32) return "float32 only";
  if (x.dims.size() != 4 || w.dims.size() != 4 || y.dims.size() != 4) return "two spatial axes only";
  std::vector<std::int64_t> strides, dilations, pads;
  const Node& node = *call.node;
  if (!read_ints(node, "strides", 2, 1, strides) || !read_ints(node, "dilations", 2, 1, dilations) ||
      !read_ints(node, "pads", 4, 0, pads))
    return "strides, dilations or pads do not fit two axes";
  if (node.attr("auto_pad", "NOTSET") != "NOTSET") return "explicit pads only";
  g.n = x.dims[0], g.h = x.dims[1], g.w = x.dims[2], g.c = x.dims[3];
  g.oh = y.dims[1], g.ow = y.dims[2], g.m = y.dims[3];
  g.kh = w.dims[2], g.kw = w.dims[3];
  g.group = node.attr("group", std::int64_t{1});
  g.sh = strides[0], g.sw = strides[1], g.dh = dilations[0], g.dw = dilations[1];
  g.top = pads[0], g.left = pads[1];
  if (g.group < 1 || g.sh < 1 || g.sw < 1 || g.dh < 1 || g.dw < 1) return "an attribute below 1";
  const bool transposed = node.op == "ConvTranspose";
  if (g.c % g.group != 0 || g.m % g.group != 0 || w.dims[0] != (transposed ? g.c : g.m) ||
      w.dims[1] != (transposed ? g.group_m() : g.group_c()) || y.dims[0] != g.n)
    return "sizes of data, weight and output do not fit";
  if (bias.present() && bias.size() != g.m) return "bias has not one value an output channel";
  if (residual.present() && residual.dims != y.dims) return "residual has not the output's shape";
  if (!read_activation(node, activation)) return "an activation it does not know";
  return "";
}

std::string packed_conv_why_not(const OpCall& call, ConvGeometry& g) {
  Activation activation;
  if (std::string why = resolve_conv(call, g, activation); !why.empty()) return why;
  if (call.in[1].data == nullptr) return "the weight is no constant";
  return "";
}

void register_pare_conv(Registry& registry) {
  registry.add(conv_depthwise_kernel());
  registry.add(conv_few_tiles_kernel());
  registry.add(conv_winograd_kernel());
  registry.add(conv_gemm_kernel());
  registry.add(conv_reference_kernel());
  registry.add(conv_transpose_depthwise_kernel());
  registry.add(conv_transpose_rows_kernel());
  registry.add(conv_transpose_reference_kernel());
}

}  // namespace pare
