// pare.WMatMul in double over decoded weights, and pare.DecodeBlocks (wmatmul.h).
#include <vector>

#include "engine/base/error.h"
#include "engine/numeric/ggml_codes.h"
#include "engine/ops/matmul/wmatmul.h"
#include "engine/ops/registry.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  WMatMulShape shape;
  return resolve_wmatmul(call, shape);
}

void run(const OpCall& call) {
  WMatMulShape s;
  resolve_wmatmul(call, s);
  const TensorView &bias = call.input(4), &residual = call.input(5);
  std::vector<float> column(static_cast<std::size_t>(s.k));
  for (std::int64_t n = 0; n < s.n; ++n) {
    decode_wmatmul_column(call, s, n, column.data());
    for (std::int64_t m = 0; m < s.m; ++m) {
      const float* a = call.in[0].as<float>() + m * s.k;
      double sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k)
        sum += static_cast<double>(a[k]) * static_cast<double>(column[static_cast<std::size_t>(k)]);
      if (bias.present()) sum += static_cast<double>(bias.as<float>()[n]);
      if (residual.present()) sum += static_cast<double>(residual.as<float>()[m * s.n + n]);
      call.out[0].mut<float>()[m * s.n + n] = static_cast<float>(s.act(sum));
    }
  }
}

const GgmlType* format_of(const OpCall& call) {
  const GgmlType* type = find_ggml_type(call.node->attr("format", "").c_str());
  return type == nullptr || type->decode == nullptr ? nullptr : type;
}

std::string why_not_decode(const OpCall& call) {
  const GgmlType* type = format_of(call);
  if (type == nullptr) return "blocks of a format it does not know";
  const TensorView &in = call.in[0], &out = call.out[0];
  if (in.dtype != DType::kU8 || out.dtype != DType::kF32) return "uint8 to float32 only";
  if (in.dims.empty() || in.dims.back() % type->bytes != 0 ||
      in.size() / type->bytes * type->block != out.size())
    return "rows that are no whole blocks";
  return "";
}

void run_decode(const OpCall& call) {
  const GgmlType& type = *format_of(call);
  const auto* from = call.in[0].as<std::uint8_t>();
  auto* to = call.out[0].mut<float>();
  call.pool->parallel_for(call.in[0].size() / type.bytes, 64, [&](std::int64_t begin, std::int64_t end) {
    type.decode(from + begin * type.bytes, to + begin * type.block, end - begin);
  });
}

}  // namespace

void add_wmatmul_references(Registry& registry) {
  registry.add({"pare", "WMatMul", Backend::kCpu, "pare.WMatMul/cpu:reference", why_not, nullptr, run});
  registry.add({"pare", "DecodeBlocks", Backend::kCpu, "pare.DecodeBlocks/cpu:ref", why_not_decode, nullptr,
                run_decode});
}

}  // namespace pare
