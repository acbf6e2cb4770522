// QuantizeLinear and DequantizeLinear with float16 or bfloat16 data, scales or division.
//
// x and scale are widened to float32; the quotient is rounded to `precision` (by default the scale's type)
// before it becomes a code, as ONNX asks. Dequantized values are computed in float32 and rounded once.
#include "engine/ops/quantize_linear.h"
#include "engine/ops/support.h"

namespace pare::quantize_linear {
namespace {

// The call as it would be in float32: what the other kernels can judge.
struct Widened {
  Node node;
  std::vector<TensorView> in, out;
  OpCall call;

  explicit Widened(const OpCall& narrow)
      : node(*narrow.node),
        in(narrow.in.begin(), narrow.in.end()),
        out(narrow.out.begin(), narrow.out.end()),
        call(narrow) {
    node.attrs.erase("precision");
    for (std::vector<TensorView>* views : {&in, &out})
      for (TensorView& view : *views)
        if (view.dtype == DType::kF16 || view.dtype == DType::kBF16) view.dtype = DType::kF32;
    call.node = &node;
    call.in = in;
    call.out = out;
  }
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;
};

DType precision_of(const OpCall& call) {
  const std::int64_t code = call.node->attr("precision", std::int64_t{0});
  return code == 0 ? call.in[1].dtype : static_cast<DType>(code);
}

std::string quantize_why_not(const OpCall& call) {
  if (!is_small_float(call.input(0).dtype) || !is_small_float(call.input(1).dtype))
    return "x or the scale is none of float32, float16, bfloat16";
  if (!is_small_float(precision_of(call))) return "the precision is none of float32, float16, bfloat16";
  const Widened wide(call);
  return why_not(wide.call, Direction::kQuantize);
}

void run_quantize(const OpCall& call) {
  std::vector<float> x_room, scale_room;
  const float* x = all_floats(call.in[0], x_room);
  Parameters p = parameters(call, Direction::kQuantize);
  p.scales = all_floats(call.in[1], scale_room);
  p.target.precision = precision_of(call);
  quantize(x, p.layout, p.scales, p.zeros(), p.target, call.out[0].data);
}

std::string dequantize_why_not(const OpCall& call) {
  if (!is_small_float(call.input(1).dtype) || !is_small_float(call.out[0].dtype))
    return "the scale or y is none of float32, float16, bfloat16";
  const Widened wide(call);
  return why_not(wide.call, Direction::kDequantize);
}

void run_dequantize(const OpCall& call) {
  std::vector<float> scale_room, y(static_cast<std::size_t>(call.out[0].size()));
  Parameters p = parameters(call, Direction::kDequantize);
  p.scales = all_floats(call.in[1], scale_room);
  float* to = floats_to_write(call.out[0], 0, y.data());
  dequantize(p.target.type, call.in[0].data, p.layout, p.scales, p.zeros(), to);
  write_floats(call.out[0], 0, call.out[0].size(), to);
}

}  // namespace

Kernel quantize_narrow_kernel() {
  return {"",      "QuantizeLinear", Backend::kCpu, "QuantizeLinear/cpu:narrow", quantize_why_not,
          nullptr, run_quantize};
}

Kernel dequantize_narrow_kernel() {
  return {"",      "DequantizeLinear", Backend::kCpu, "DequantizeLinear/cpu:narrow", dequantize_why_not,
          nullptr, run_dequantize};
}

}  // namespace pare::quantize_linear
