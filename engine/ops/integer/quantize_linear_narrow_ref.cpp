// QuantizeLinear and DequantizeLinear with float16 or bfloat16 data, scales or division, int32 data or
// scales, and scales that are powers of two (E8M0).
//
// x and scale are widened to float32 (int32 beyond 2^24 rounds); the quotient is rounded to `precision` (by
// default the scale's type, float32 where that is none) before it becomes a code, as ONNX asks. Dequantized
// values are computed in float32 and rounded once.
#include "engine/numeric/convert.h"
#include "engine/ops/integer/quantize_linear.h"
#include "engine/ops/support.h"

namespace pare::quantize_linear {
namespace {

// Taken beside the small floats; converted as a whole.
bool is_wide_type(DType type) { return type == DType::kI32 || type == DType::kE8M0; }

const float* widened(const TensorView& view, std::vector<float>& room) {
  if (!is_wide_type(view.dtype)) return all_floats(view, room);
  room.resize(static_cast<std::size_t>(view.size()));
  convert(view, {DType::kF32, view.dims, room.data()});
  return room.data();
}

// The call as it would be in float32: what the other kernels can judge.
struct Widened {
  Node node;
  std::vector<TensorView> in, out;
  OpCall call;

  Widened(const OpCall& narrow, bool data)
      : node(*narrow.node),
        in(narrow.in.begin(), narrow.in.end()),
        out(narrow.out.begin(), narrow.out.end()),
        call(narrow) {
    node.attrs.erase("precision");
    for (std::vector<TensorView>* views : {&in, &out})
      for (TensorView& view : *views)
        if (view.dtype == DType::kF16 || view.dtype == DType::kBF16) view.dtype = DType::kF32;
    for (std::size_t i = data ? 0 : 1; i < 2 && i < in.size(); ++i)
      if (is_wide_type(in[i].dtype)) in[i].dtype = DType::kF32;
    call.node = &node;
    call.in = in;
    call.out = out;
  }
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;
};

DType precision_of(const OpCall& call) {
  const std::int64_t code = call.node->attr("precision", std::int64_t{0});
  if (code != 0) return static_cast<DType>(code);
  return is_small_float(call.in[1].dtype) ? call.in[1].dtype : DType::kF32;
}

std::string quantize_why_not(const OpCall& call) {
  const DType x = call.input(0).dtype, scale = call.input(1).dtype;
  if (!is_small_float(x) && x != DType::kI32) return "x is none of float32, float16, bfloat16, int32";
  if (!is_small_float(scale) && !is_wide_type(scale))
    return "the scale is none of float32, float16, bfloat16, int32, float8e8m0";
  if (!is_small_float(precision_of(call))) return "the precision is none of float32, float16, bfloat16";
  const Widened wide(call, true);
  return why_not(wide.call, Direction::kQuantize);
}

void run_quantize(const OpCall& call) {
  std::vector<float> x_room, scale_room;
  const float* x = widened(call.in[0], x_room);
  Parameters p = parameters(call, Direction::kQuantize);
  p.scales = widened(call.in[1], scale_room);
  p.target.precision = precision_of(call);
  quantize(x, p.layout, p.scales, p.zeros(), p.target, call.out[0].data);
}

std::string dequantize_why_not(const OpCall& call) {
  const DType scale = call.input(1).dtype;
  if ((!is_small_float(scale) && scale != DType::kE8M0) || !is_small_float(call.out[0].dtype))
    return "the scale is none of float32, float16, bfloat16, float8e8m0, or y none of the first three";
  const Widened wide(call, false);
  return why_not(wide.call, Direction::kDequantize);
}

void run_dequantize(const OpCall& call) {
  std::vector<float> scale_room, y(static_cast<std::size_t>(call.out[0].size()));
  Parameters p = parameters(call, Direction::kDequantize);
  p.scales = widened(call.in[1], scale_room);
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
