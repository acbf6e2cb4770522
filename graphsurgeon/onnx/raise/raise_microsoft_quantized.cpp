// com.microsoft's operators on codes: dequantize, operate, quantize.
#include <algorithm>

#include "engine/numeric/pack.h"
#include "graphsurgeon/onnx/raise/raise_microsoft.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

void refuse_channels_last(Steps& s, Node& node) {
  std::int64_t channels_last = 0;
  if (take(node, "channels_last", channels_last) && channels_last != 0) s.refuse("channels_last");
}

// Two operands: a, its scale and zero, b, its scale and zero, the result's scale and zero.
template <bool kProduct>
bool raise_binary(Raiser& r, Node& node) {
  Steps s(r, node);
  const ValueId a = s.dequantized("a", 0), b = s.dequantized("b", 3);
  s.quantized(s.make("result", kProduct ? "Mul" : "Add", {a, b}), 6, s.need(0));
  return false;
}

// One operand: x, its scale and zero, the result's scale and zero.
bool raise_unary(Raiser& r, Node& node) {
  Steps s(r, node);
  refuse_channels_last(s, node);
  const std::string op = node.op.substr(std::string("QLinear").size());
  Attributes attrs = node.attrs;
  if (op == "LeakyRelu" && !node.has_attr("alpha")) attrs["alpha"] = 0.01F;
  const ValueId x = s.dequantized("x", 0);
  s.quantized(s.make("result", op.c_str(), {x}, attrs), 3, s.need(0));
  return false;
}

bool raise_mean(Raiser& r, Node& node) {
  Steps s(r, node);
  Ints axes;
  take(node, "axes", axes);
  const ValueId over = axes.empty() ? ValueId::kNone : s.ints("axes", axes);
  s.quantized(s.make("result", "ReduceMean", {s.dequantized("x", 0), over}, node.attrs), 3, s.need(0));
  return false;
}

bool raise_softmax(Raiser& r, Node& node) {
  Steps s(r, node);
  const std::int64_t opset = node.attr("opset", std::int64_t{13});
  std::int64_t axis = node.attr("axis", std::int64_t{opset < 13 ? 1 : -1});
  ValueId x = s.dequantized("x", 0);
  const int rank = s.value(s.need(0)).shape.rank();
  const bool coerced = opset < 13 && axis != -1 && (rank < 0 || axis != rank - 1);
  if (!coerced) {
    s.quantized(s.make("result", "Softmax", {x}, {{"axis", axis}}), 3, s.need(0));
    return false;
  }
  const ValueId shape = s.make("shape", "Shape", {x});
  x = s.make("flat", "Flatten", {x}, {{"axis", axis}});
  x = s.make("flat_result", "Softmax", {x}, {{"axis", std::int64_t{-1}}});
  s.quantized(s.make("result", "Reshape", {x, shape}), 3, s.need(0));
  return false;
}

bool raise_concat(Raiser& r, Node& node) {  // scale and zero of the result come first
  Steps s(r, node);
  std::vector<ValueId> parts;
  for (std::size_t i = 2; i + 2 < node.in.size() + 1; i += 3)
    parts.push_back(s.dequantized(("part_" + std::to_string(parts.size())).c_str(), i));
  s.quantized(s.make("result", "Concat", parts, node.attrs), 0, s.need(2));
  return false;
}

bool raise_where(Raiser& r, Node& node) {
  Steps s(r, node);
  const ValueId x = s.dequantized("x", 1), y = s.dequantized("y", 4);
  s.quantized(s.make("result", "Where", {s.need(0), x, y}), 7, s.need(1));
  return false;
}

// The bias is int32 with scale a_scale * b_scale, and alpha multiplies it too.
bool raise_gemm(Raiser& r, Node& node) {
  Steps s(r, node);
  const bool trans_b = node.attr("transB", std::int64_t{0}) != 0;
  const ValueId a = s.dequantized("a", 0);
  const ValueId b = s.make("b", "DequantizeLinear", {s.need(3), s.need(4), s.in(5)},
                           {{"axis", std::int64_t{trans_b ? 0 : 1}}});
  const float alpha = node.attr("alpha", 1.0F);
  ValueId bias = s.in(6);
  if (bias != ValueId::kNone) {
    ValueId scale = s.make("bias_scale", "Mul", {s.need(1), s.need(4)});
    if (alpha != 1) scale = s.make("bias_alpha", "Mul", {scale, s.number("alpha", alpha, s.need(1))});
    bias = s.make("bias_value", "Mul", {s.make("bias_number", "CastLike", {bias, s.need(1)}), scale});
  }
  const Attributes attrs{{"alpha", alpha},
                         {"transA", node.attr("transA", std::int64_t{0})},
                         {"transB", std::int64_t{trans_b ? 1 : 0}}};
  if (s.in(7) == ValueId::kNone)
    s.last("Gemm", {a, b, bias}, attrs);
  else
    s.quantized(s.make("result", "Gemm", {a, b, bias}, attrs), 7, s.need(0));
  return false;
}

// (sum of codes) * scale (+ bias) as float.
void scaled_product(Steps& s, ValueId a, ValueId b, ValueId a_zero, ValueId b_zero, ValueId a_scale,
                    ValueId b_scale, ValueId bias) {
  const ValueId sums = s.make("sums", "MatMulInteger", {a, b, a_zero, b_zero});
  const ValueId scale = s.make("scale", "Mul", {a_scale, b_scale});
  const ValueId number = s.make("number", "CastLike", {sums, b_scale});
  if (bias == ValueId::kNone) return s.last("Mul", {number, scale});
  s.last("Add", {s.make("product", "Mul", {number, scale}), bias});
}

bool raise_dynamic_matmul(Raiser& r, Node& node) {
  Steps s(r, node);
  Node quantize;
  quantize.name = raised_name(node) + "_quantize";
  quantize.op = "DynamicQuantizeLinear";
  quantize.in = {s.need(0)};
  quantize.out = {r.temporary(node, "codes"), r.temporary(node, "a_scale"), r.temporary(node, "a_zero")};
  const std::vector<ValueId> out = quantize.out;
  r.emit(std::move(quantize));
  scaled_product(s, out[0], s.need(1), out[2], s.in(3), out[1], s.need(2), s.in(4));
  return false;
}

bool raise_integer_to_float(Raiser& r, Node& node) {
  Steps s(r, node);
  scaled_product(s, s.need(0), s.need(1), s.in(4), s.in(5), s.need(2), s.need(3), s.in(6));
  return false;
}

// --- packed codes

DType code_type(Steps& s, std::int64_t bits) {
  if (bits == 8) return DType::kU8;
  if (bits == 4) return DType::kU4;
  if (bits != 2) s.refuse("bits other than 2, 4 and 8");
  return DType::kU2;
}

const Tensor& constant_bytes(Steps& s, std::size_t i) {
  const ValueId id = s.need(i);
  if (!s.raiser().graph().is_constant(id)) s.refuse("packed codes that are not constant");
  const Tensor& tensor = s.value(id).constant;
  if (tensor.dtype() != DType::kU8)
    fail(ErrorCode::kBadFile, "{}: input {} is {}", s.node().op, i, name(tensor.dtype()));
  return tensor;
}

// Bytes as rows of packed codes, each row padded to whole bytes (and beyond `columns`): [rows, columns]
// codes. Views the same memory where rows fit.
Tensor codes_of(const Tensor& bytes, DType type, std::int64_t rows, std::int64_t columns) {
  const int width = bits(type);
  if (rows <= 0 || columns <= 0 || bytes.size() % rows != 0 ||
      bytes.size() / rows < byte_count(type, {columns}))
    fail(ErrorCode::kBadFile, "{} bytes hold no {} rows of {} codes of {} bits", bytes.size(), rows, columns,
         width);
  const std::int64_t row_bytes = bytes.size() / rows;
  if (row_bytes * 8 == columns * width) {
    const auto owner = std::make_shared<Tensor>(bytes);
    return Tensor::share(type, {rows, columns}, bytes.data(), owner);
  }
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * columns)),
      row(static_cast<std::size_t>(row_bytes * 8 / width));
  for (std::int64_t i = 0; i < rows; ++i) {
    unpack_codes(width, bytes.as<std::uint8_t>() + i * row_bytes, row.data(),
                 static_cast<std::int64_t>(row.size()));
    std::copy_n(row.begin(), columns, codes.begin() + i * columns);
  }
  Tensor out = Tensor::allocate(type, {rows, columns});
  pack_codes(width, codes.data(), out.mut<std::byte>(), rows * columns);
  return out;
}

Tensor filled(DType type, const Dims& dims, int code) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(element_count(dims)),
                                  static_cast<std::uint8_t>(code));
  Tensor out = Tensor::allocate(type, dims);
  pack_codes(bits(type), codes.data(), out.mut<std::byte>(), out.size());
  return out;
}

void unpack_check(std::int64_t value, const char* key) {
  if (value < 1 || value > INT32_MAX) fail(ErrorCode::kBadFile, "attribute {} is {}", key, value);
}

bool raise_matmul_nbits(Raiser& r, Node& node) {
  Steps s(r, node);
  const std::int64_t k = node.attr("K", std::int64_t{0}), n = node.attr("N", std::int64_t{0}),
                     block = node.attr("block_size", std::int64_t{0}),
                     bits = node.attr("bits", std::int64_t{4});
  unpack_check(k, "K"), unpack_check(n, "N"), unpack_check(block, "block_size");
  if (node.attr("weight_prepacked", std::int64_t{0}) != 0) s.refuse("prepacked weights");
  const DType type = code_type(s, bits);
  const std::int64_t blocks = (k + block - 1) / block;
  const ValueId codes = r.constant(node, "codes", codes_of(constant_bytes(s, 1), type, n, k));
  ValueId scales = s.need(2);
  if (s.value(scales).shape.rank() != 2)
    scales = s.make("scales", "Reshape", {scales, s.ints("grid", {n, blocks})});
  ValueId zero = s.in(3), group = s.in(4);
  const bool numbers = zero != ValueId::kNone && s.value(zero).dtype != DType::kU8;  // zero points as numbers
  if (zero == ValueId::kNone)
    zero = r.constant(node, "zeros", filled(type, {n, blocks}, 1 << (bits - 1)));
  else if (!numbers)
    zero = r.constant(node, "zeros", codes_of(constant_bytes(s, 3), type, n, blocks));
  else if (s.value(zero).shape.rank() != 2)
    zero = s.make("zeros", "Reshape", {zero, s.ints("zero_grid", {n, blocks})});
  std::int64_t each = block;
  if (group != ValueId::kNone) {  // k belongs to group[k]: a scale for every code
    const Attributes columns{{"axis", std::int64_t{1}}};
    scales = s.make("scale_of", "Gather", {scales, group}, columns);
    zero = s.make("zero_of", "Gather", {zero, group}, columns);
    each = 1;
  }
  const Attributes blocked{{"axis", std::int64_t{1}}, {"block_size", each}};
  ValueId weight =
      s.make("weight", "DequantizeLinear", {codes, scales, numbers ? ValueId::kNone : zero}, blocked);
  if (numbers) {  // (q - z) s = q s - z s, z s spread over the block's columns
    ValueId shift = s.make("shift", "Mul", {zero, scales});
    if (each != 1) {
      const ValueId column = s.make("shift_column", "Unsqueeze", {shift, s.ints("behind", {2})});
      const ValueId spread = s.make("shift_spread", "Expand", {column, s.ints("spread", {n, blocks, block})});
      shift = s.make("shift_rows", "Reshape", {spread, s.ints("rows", {n, blocks * block})});
      if (blocks * block != k)
        shift = s.make("shift_cut", "Slice",
                       {shift, s.ints("from", {0}), s.ints("to", {k}), s.ints("along", {1})});
    }
    weight = s.make("centred", "Sub", {weight, shift});
  }
  const ValueId transposed = s.make("weight_kn", "Transpose", {weight}, {{"perm", Ints{1, 0}}});
  if (s.in(5) == ValueId::kNone)
    s.last("MatMul", {s.need(0), transposed});
  else
    s.last("Add", {s.make("product", "MatMul", {s.need(0), transposed}), s.in(5)});
  return false;
}

bool raise_gather_blocks(Raiser& r, Node& node) {
  Steps s(r, node);
  ValueId data = s.need(0), zero = s.in(3);
  const std::int64_t bits = node.attr("bits", std::int64_t{4}),
                     block = node.attr("block_size", std::int64_t{128});
  const std::int64_t along = node.attr("quantize_axis", std::int64_t{1});
  if (block < 1) s.refuse("block_size 0");
  if (s.value(data).dtype == DType::kU8) {
    const DType type = code_type(s, bits);
    const auto as_codes = [&](std::size_t i, const char* what) {
      const Tensor& bytes = constant_bytes(s, i);
      Dims dims = bytes.dims();
      if (dims.empty()) fail(ErrorCode::kBadFile, "GatherBlockQuantized of a scalar");
      dims.back() *= 8 / bits;
      if (i == 3) dims.back() = std::min(dims.back(), s.value(s.need(2)).shape.dims.back().value);
      const std::int64_t rows = dims.back() == 0 ? 0 : element_count(dims) / dims.back();
      return r.constant(node, what, codes_of(bytes, type, rows, dims.back()).reshaped(dims));
    };
    data = as_codes(0, "codes");
    if (zero != ValueId::kNone) {
      if (s.value(s.need(2)).shape.rank() < 1) s.refuse("scales of unknown shape");
      zero = as_codes(3, "zeros");
    } else {
      const Shape& scales = s.value(s.need(2)).shape;
      if (!scales.concrete()) s.refuse("scales of unknown shape");
      if (element_count(scales.sizes()) > s.value(data).constant.size())
        fail(ErrorCode::kBadFile, "GatherBlockQuantized: more scales {} than codes", to_string(scales));
      zero = r.constant(node, "zeros", filled(type, scales.sizes(), 1 << (bits - 1)));
    }
  }
  const ValueId table =
      s.make("table", "DequantizeLinear", {data, s.need(2), zero}, {{"axis", along}, {"block_size", block}});
  s.last("Gather", {table, s.need(1)}, {{"axis", node.attr("gather_axis", std::int64_t{0})}});
  return false;
}

}  // namespace

std::vector<RaiseEntry> microsoft_quantized_rules() {
  return {{"QLinearAdd", 0, raise_binary<false>},
          {"QLinearMul", 0, raise_binary<true>},
          {"QLinearSigmoid", 0, raise_unary},
          {"QLinearLeakyRelu", 0, raise_unary},
          {"QLinearAveragePool", 0, raise_unary},
          {"QLinearGlobalAveragePool", 0, raise_unary},
          {"QLinearReduceMean", 0, raise_mean},
          {"QLinearSoftmax", 0, raise_softmax},
          {"QLinearConcat", 0, raise_concat},
          {"QLinearWhere", 0, raise_where},
          {"QGemm", 0, raise_gemm},
          {"DynamicQuantizeMatMul", 0, raise_dynamic_matmul},
          {"MatMulIntegerToFloat", 0, raise_integer_to_float},
          {"MatMulNBits", 0, raise_matmul_nbits},
          {"GatherBlockQuantized", 0, raise_gather_blocks}};
}

}  // namespace pare
