#include "engine/ops/matmul/matmul.h"

#include <algorithm>

namespace pare {
namespace {

bool is_float(const TensorView& view) { return view.dtype == DType::kF32; }

// For each index of the broadcast `batch`, the matrix of an operand with leading dimensions `own`.
std::vector<std::int64_t> matrix_indices(const Dims& batch, const Dims& own) {
  const std::int64_t count = element_count(batch);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count), 0);
  const std::size_t rank = batch.size(), lead = rank - own.size();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, index = 0, stride = 1;
    for (std::size_t d = rank; d-- > 0;) {
      const std::int64_t at = rest % batch[d];
      rest /= batch[d];
      if (d < lead) continue;
      if (own[d - lead] != 1) index += at * stride;
      stride *= own[d - lead];
    }
    indices[static_cast<std::size_t>(i)] = index;
  }
  return indices;
}

std::string broadcast(const Dims& a, const Dims& b, Dims& out) {
  out.assign(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return "leading dimensions do not broadcast";
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return "";
}

}  // namespace

std::string resolve_matmul(const OpCall& call, MatMulShape& shape) {
  const Node& node = *call.node;
  if (call.in.size() < 2 || call.out.size() != 1) return "needs two inputs and one output";
  for (const TensorView& view : call.in)
    if (view.present() && !is_float(view)) return "float32 only";
  if (!is_float(call.in[0]) || !is_float(call.in[1]) || !is_float(call.out[0])) return "float32 only";
  Dims a = call.in[0].dims, b = call.in[1].dims;
  if (a.empty() || b.empty()) return "a scalar operand";
  if (a.size() == 1) a.insert(a.begin(), 1);
  const bool b_vector = b.size() == 1;
  if (b_vector) b.push_back(1);

  const bool gemm = node.op == "Gemm";
  if (gemm && (a.size() != 2 || b.size() != 2)) return "Gemm takes matrices";
  shape.trans_a = gemm && node.attr("transA", std::int64_t{0}) != 0;
  const bool trans_b =
      !b_vector && (gemm ? node.attr("transB", std::int64_t{0}) : node.attr("trans_b", std::int64_t{0})) != 0;
  shape.alpha = node.attr("alpha", 1.0f);
  shape.beta = gemm ? node.attr("beta", 1.0f) : 1.0f;
  if (!read_activation(node, shape.act)) return "an activation it does not know";

  const std::size_t ra = a.size(), rb = b.size();
  shape.m = shape.trans_a ? a[ra - 1] : a[ra - 2];
  shape.k = shape.trans_a ? a[ra - 2] : a[ra - 1];
  shape.n = trans_b ? b[rb - 2] : b[rb - 1];
  if ((trans_b ? b[rb - 1] : b[rb - 2]) != shape.k) return "inner dimensions differ";
  shape.b_stride_k = trans_b ? 1 : shape.n;
  shape.b_stride_n = trans_b ? shape.k : 1;

  const TensorView &c = call.input(2), &residual = call.input(3);
  if (c.present() && (gemm ? c.dims.size() > 2 : c.size() != shape.n))
    return gemm ? "c has more than two dimensions" : "bias has not one value a column";
  if (residual.present() && residual.dims != call.out[0].dims) return "residual has not the output's shape";

  const Dims a_lead(a.begin(), a.end() - 2), b_lead(b.begin(), b.end() - 2);
  Dims batch;
  if (std::string why = broadcast(a_lead, b_lead, batch); !why.empty()) return why;
  shape.b_matrices = element_count(b_lead);
  if (shape.b_matrices == 1 && !shape.trans_a && element_count(batch) == element_count(a_lead)) {
    shape.m *= element_count(a_lead);  // one tall product
    shape.a_index = shape.b_index = {0};
  } else {
    shape.a_index = matrix_indices(batch, a_lead);
    shape.b_index = matrix_indices(batch, b_lead);
  }
  return "";
}

}  // namespace pare
