// ONNX Conv and ConvTranspose on plain maps ([N,C,W] or [N,C,H,W]): moved channels-last, run by the first
// kernel of pare.Conv (pare.ConvTranspose) that takes it, moved back. Lowering saves the moves; a graph that
// was not lowered still gets fast kernels.
#include "engine/base/error.h"
#include "engine/ir/window.h"
#include "engine/ops/conv/channels_last.h"
#include "engine/ops/conv/conv.h"
#include "engine/ops/conv/conv_transpose.h"
#include "engine/ops/matmul/linear_ref.h"
#include "engine/ops/register_linear.h"
#include "engine/ops/registry.h"

namespace pare {
namespace {

struct Inner {
  Node node;
  std::vector<TensorView> in, out;  // of pare.Conv; data as in the outer call
  Kernel kernel;
  std::shared_ptr<const void> prepared;
};

Dims channels_last(const Dims& plain) { return {plain[0], plain[2], plain[3], plain[1]}; }

// A 1-D convolution becomes one of height 1.
Dims two_axes(Dims dims) {
  if (dims.size() == 3) dims.insert(dims.begin() + 2, 1);
  return dims;
}

std::string make_inner(const OpCall& call, Inner& inner) {
  if (call.in.size() < 2 || call.out.size() != 1) return "needs two inputs and one output";
  const TensorView &x = call.in[0], &w = call.in[1];
  if (x.dims.size() != w.dims.size() || (x.dims.size() != 3 && x.dims.size() != 4))
    return "one or two spatial axes only";
  if (call.out[0].dims.size() != x.dims.size()) return "sizes of data and output do not fit";
  const bool one_axis = x.dims.size() == 3;
  Window window;
  try {
    window = read_window(*call.node, Dims(w.dims.begin() + 2, w.dims.end()));
    if (call.node->op == "Conv")
      resolve_pads(window, Dims(x.dims.begin() + 2, x.dims.end()));
    else
      resolve_transposed_pads(*call.node, x.dims, call.out[0].dims, window);
  } catch (const Error& error) {
    return error.what();
  }
  if (one_axis) {
    window.strides.insert(window.strides.begin(), 1);
    window.dilations.insert(window.dilations.begin(), 1);
    window.pads_begin.insert(window.pads_begin.begin(), 0);
    window.pads_end.insert(window.pads_end.begin(), 0);
  }
  std::vector<std::int64_t> pads = window.pads_begin;
  pads.insert(pads.end(), window.pads_end.begin(), window.pads_end.end());
  inner.node.domain = "pare";
  inner.node.op = call.node->op;
  inner.node.name = call.node->name;
  inner.node.attrs = {{"group", call.node->attr("group", std::int64_t{1})},
                      {"strides", window.strides},
                      {"dilations", window.dilations},
                      {"pads", pads}};
  inner.in = {x, w};
  inner.in[0].dims = channels_last(two_axes(x.dims));
  inner.in[1].dims = two_axes(w.dims);
  if (call.has(2)) inner.in.push_back(call.in[2]);
  inner.out = {call.out[0]};
  inner.out[0].dims = channels_last(two_axes(call.out[0].dims));

  OpCall conv = call;
  conv.node = &inner.node;
  conv.in = inner.in;
  conv.out = inner.out;
  std::string reasons;
  const std::vector<Kernel> kernels =
      call.node->op == "Conv"
          ? std::vector<Kernel>{conv_depthwise_kernel(), conv_winograd_kernel(), conv_gemm_kernel()}
          : std::vector<Kernel>{conv_transpose_depthwise_kernel(), conv_transpose_rows_kernel()};
  for (const Kernel& kernel : kernels) {
    reasons = kernel.why_not(conv);
    inner.kernel = kernel;
    if (reasons.empty()) return "";
  }
  return reasons;
}

std::string why_not(const OpCall& call) {
  Inner inner;
  return make_inner(call, inner);
}

std::shared_ptr<const void> prepare(const OpCall& call) {
  auto inner = std::make_shared<Inner>();
  const std::string why = make_inner(call, *inner);
  PARE_ASSERT(why.empty());
  OpCall conv = call;
  conv.node = &inner->node;
  conv.in = inner->in;
  conv.out = inner->out;
  // Another shape may have chosen another kernel.
  const auto* other = static_cast<const Inner*>(call.prepared);
  const bool same = other != nullptr && other->kernel.prepare == inner->kernel.prepare &&
                    inner->kernel.share == PreparedShare::kConstants;
  conv.prepared = same ? other->prepared.get() : nullptr;
  inner->prepared = inner->kernel.prepare(conv);
  return inner;
}

// Between [N][rows][columns] and [N][columns][rows].
void move(ThreadPool& pool, const float* from, float* to, std::int64_t n, std::int64_t rows,
          std::int64_t columns) {
  const auto transpose = PARE_SIMD_PICK(transpose_words);
  pool.parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      transpose(reinterpret_cast<const std::uint32_t*>(from) + i * rows * columns, columns,
                reinterpret_cast<std::uint32_t*>(to) + i * rows * columns, rows, rows, columns);
  });
}

void run(const OpCall& call) {
  const auto& inner = *static_cast<const Inner*>(call.prepared);
  if (call.out[0].size() == 0) return;
  std::vector<TensorView> in = inner.in, out = inner.out;
  Tensor x = Tensor::allocate(DType::kF32, in[0].dims), y = Tensor::allocate(DType::kF32, out[0].dims);
  const Dims &from = x.dims(), &to = y.dims();
  move(*call.pool, call.in[0].as<float>(), x.mut<float>(), from[0], from[3], from[1] * from[2]);
  for (std::size_t i = 1; i < in.size(); ++i) in[i].data = call.in[i].data;
  in[0].data = x.mut<float>();
  out[0].data = y.mut<float>();
  OpCall conv = call;
  conv.node = &inner.node;
  conv.in = in;
  conv.out = out;
  conv.prepared = inner.prepared.get();
  inner.kernel.run(conv);
  move(*call.pool, y.as<float>(), call.out[0].mut<float>(), to[0], to[1] * to[2], to[3]);
}

}  // namespace

void register_conv_plain_cpu(Registry& registry) {
  Kernel kernel;
  kernel.op = "Conv";
  kernel.name = "Conv/cpu:channels_last";
  kernel.why_not = why_not;
  kernel.prepare = prepare;
  kernel.share = PreparedShare::kConstants;
  kernel.run = run;
  registry.add(kernel);
  kernel.op = "ConvTranspose";
  kernel.name = "ConvTranspose/cpu:channels_last";
  registry.add(kernel);
}

}  // namespace pare
