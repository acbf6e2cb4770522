#include "engine/ops/matmul/wmatmul.h"

#include <algorithm>
#include <cmath>

#include "engine/numeric/convert.h"
#include "engine/numeric/ggml_codes.h"

namespace pare {

bool wmatmul_keeps(DType type) {
  switch (type) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI4:
    case DType::kU4:
    case DType::kI2:
    case DType::kU2:
    case DType::kE2M1:
      return true;
    default:
      return false;
  }
}
namespace {

// Elements in rows of K or N; block_size along K where it is set.
std::string resolve_elements(const OpCall& call, WMatMulShape& s) {
  const TensorView &codes = call.in[1], &scale = call.input(2), &zero = call.input(3);
  if (!wmatmul_keeps(codes.dtype)) return "codes of a type it does not keep";
  if (scale.dtype != DType::kF32) return "scales that are not float32";
  const bool trans_b = call.node->attr("trans_b", std::int64_t{0}) != 0;
  if (codes.dims[trans_b ? 1 : 0] != s.k) return "inner dimensions differ";
  s.n = codes.dims[trans_b ? 0 : 1];
  s.code_step_k = trans_b ? 1 : s.n;
  s.code_step_n = trans_b ? s.k : 1;
  const std::int64_t block = call.node->attr("block_size", std::int64_t{0});
  if (block < 0) return "a negative block size";
  s.group = block == 0 ? s.k : std::min(block, s.k);
  s.groups = s.k == 0 ? 0 : (s.k + s.group - 1) / s.group;
  if (block > 0) {
    const Dims want = trans_b ? Dims{s.n, s.groups} : Dims{s.groups, s.n};
    if (scale.dims != want) return "scales that do not fit the blocks";
    s.scale_step_k = trans_b ? 1 : s.n;
    s.scale_step_n = trans_b ? s.groups : 1;
  } else {
    if (scale.size() != 1 && scale.dims != Dims{s.n}) return "neither one scale nor one a column";
    s.scale_step_n = scale.size() == 1 ? 0 : 1;
  }
  if (zero.present() && (zero.dtype != codes.dtype || zero.size() != scale.size() || zero.data == nullptr))
    return "zero points that do not fit";
  return scale.data == nullptr ? "scales that are no constants" : "";
}

std::string resolve_blocks(const OpCall& call, const std::string& format, WMatMulShape& s) {
  s.blocks = find_ggml_type(format.c_str());
  s.coding = s.blocks == nullptr ? nullptr : find_ggml_coding(*s.blocks);
  if (s.coding == nullptr) return "blocks of a format it does not know";
  const TensorView& codes = call.in[1];
  if (codes.dtype != DType::kU8) return "blocks that are no bytes";
  if (call.has(2) || call.has(3)) return "scales beside those of the blocks";
  if (s.k % s.blocks->block != 0 || codes.dims[1] != s.k / s.blocks->block * s.blocks->bytes)
    return "inner dimensions differ";
  s.n = codes.dims[0];
  s.group = s.coding->group;
  s.groups = s.k / s.group;
  return "";
}

}  // namespace

std::string resolve_wmatmul(const OpCall& call, WMatMulShape& s) {
  if (call.in.size() < 2 || call.out.size() != 1) return "needs two inputs and one output";
  const TensorView &a = call.in[0], &codes = call.in[1];
  if (a.dtype != DType::kF32 || call.out[0].dtype != DType::kF32) return "float32 activations only";
  if (a.dims.empty() || codes.dims.size() != 2) return "codes are no matrix";
  if (codes.data == nullptr) return "codes that are no constant";
  s.k = a.dims.back();
  s.m = s.k == 0 ? element_count(Dims(a.dims.begin(), a.dims.end() - 1)) : a.size() / s.k;
  const std::string format = call.node->attr("format", "");
  const std::string why = format.empty() ? resolve_elements(call, s) : resolve_blocks(call, format, s);
  if (!why.empty()) return why;
  const TensorView &bias = call.input(4), &residual = call.input(5);
  if (bias.present() && (bias.dtype != DType::kF32 || bias.size() != s.n))
    return "bias has not one value a column";
  if (residual.present() && (residual.dtype != DType::kF32 || residual.dims != call.out[0].dims))
    return "residual has not the output's shape";
  return read_activation(*call.node, s.act) ? "" : "an activation it does not know";
}

void decode_wmatmul_column(const OpCall& call, const WMatMulShape& s, std::int64_t n, float* column) {
  if (s.blocks != nullptr) {
    const std::int64_t count = s.k / s.blocks->block;
    s.blocks->decode(call.in[1].as<std::uint8_t>() + n * count * s.blocks->bytes, column, count);
    return;
  }
  const TensorView &codes = call.in[1], &scale = call.input(2), &zero = call.input(3);
  const int width = bits(codes.dtype);
  const auto value = [&](const TensorView& from, std::int64_t i) {
    const std::uint8_t byte = from.as<std::uint8_t>()[i * width / 8];
    const auto code = static_cast<std::uint8_t>(byte >> (i * width % 8));  // decode reads the low bits
    float all[8];
    decode(from.dtype, &code, all, 1);
    return all[0];
  };
  for (std::int64_t k = 0; k < s.k; ++k) {
    const std::int64_t at = k / s.group * s.scale_step_k + n * s.scale_step_n;
    const float z = zero.present() ? value(zero, at) : 0.0f;
    column[k] = scale.as<float>()[at] * (value(codes, k * s.code_step_k + n * s.code_step_n) - z);
  }
}

// Products and sums of float32 numbers are exact in double unless their exponents are far apart, and then
// float32 does not hold them either; what a sum loses is checked. A zero of either sign keeps its sign in
// fma(scale, 2^e + code, addend) only as +0, so scales are positive (0 too, where the other parameter is
// added).
bool wmatmul_folds(WMatMulTask::Shift shift, float first, float scale, float other) {
  const bool adds = shift == WMatMulTask::Shift::kOffset;
  if (!std::isfinite(scale) || !std::isfinite(other) || std::signbit(scale)) return false;
  if (scale == 0 && (!adds || (other == 0 && std::signbit(other)))) return false;
  for (const float power : {kNearCode, kFarCode}) {
    double start = static_cast<double>(first) - static_cast<double>(power);
    if (shift == WMatMulTask::Shift::kZero) start -= static_cast<double>(other);
    const double product = static_cast<double>(scale) * start;
    if (static_cast<double>(static_cast<float>(start)) != start) return false;
    const double added = adds ? static_cast<double>(other) : 0.0, sum = product + added, back = sum - product;
    if ((product - (sum - back)) + (added - back) != 0) return false;
    if (static_cast<double>(static_cast<float>(sum)) != sum) return false;
  }
  return true;
}

}  // namespace pare
