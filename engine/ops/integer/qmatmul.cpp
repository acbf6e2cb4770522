#include "engine/ops/integer/qmatmul.h"

#include <algorithm>

namespace pare::qmatmul {
namespace {

// The matrix of `dims` (leading sizes, broadcast against `y`) that belongs to matrix `index` of y.
std::int64_t broadcast_matrix(const Dims& dims, const Dims& y, std::int64_t index) {
  std::int64_t matrix = 0, step = 1;
  for (std::size_t back = 3; back <= y.size(); ++back) {
    const std::int64_t size = y[y.size() - back], at = index % size;
    index /= size;
    if (back > dims.size()) continue;
    const std::int64_t own = dims[dims.size() - back];
    matrix += own == 1 ? 0 : at * step;
    step *= own;
  }
  return matrix;
}

}  // namespace

Geometry geometry(const OpCall& call) {
  const Dims &x = call.input(kQX).dims, &w = call.input(kQW).dims, &y = call.out[0].dims;
  Geometry g;
  g.trans_b = call.node->attr("trans_b", std::int64_t{0}) != 0;
  g.rows = x[x.size() - 2];
  g.k = x.back();
  g.n = y.back();
  std::int64_t matrices = 1;
  for (std::size_t i = 0; i + 2 < y.size(); ++i) matrices *= y[i];
  const bool w_is_shared = std::all_of(w.begin(), w.end() - 2, [](std::int64_t d) { return d == 1; });
  if (w_is_shared && x.size() == y.size()) {  // one tall matrix
    g.rows *= matrices;
    matrices = matrices > 0 ? 1 : 0;
  }
  for (std::int64_t i = 0; i < matrices; ++i) {
    g.x_matrix.push_back(matrices == 1 ? 0 : broadcast_matrix(x, y, i));
    g.w_matrix.push_back(matrices == 1 ? 0 : broadcast_matrix(w, y, i));
  }
  return g;
}

std::string why_not(const OpCall& call) {
  const TensorView &x = call.input(kQX), &w = call.input(kQW), &y = call.out[0];
  if (x.dims.size() < 2 || w.dims.size() < 2) return "x and w are not both of rank 2 or more";
  const bool trans_b = call.node->attr("trans_b", std::int64_t{0}) != 0;
  const std::int64_t k = x.dims.back(), n = w.dims[w.dims.size() - (trans_b ? 2 : 1)];
  if (w.dims[w.dims.size() - (trans_b ? 1 : 2)] != k) return "x and w have different K";
  const std::size_t rank = std::max(x.dims.size(), w.dims.size());
  Dims want(rank, 1);
  for (std::size_t back = 3; back <= rank; ++back) {
    std::int64_t& size = want[rank - back];
    for (const Dims* dims : {&x.dims, &w.dims}) {
      if (back > dims->size()) continue;
      const std::int64_t own = (*dims)[dims->size() - back];
      if (own != 1 && size != 1 && own != size) return "leading sizes do not broadcast";
      if (own != 1) size = own;
    }
  }
  want[rank - 2] = x.dims[x.dims.size() - 2];
  want[rank - 1] = n;
  if (y.dims != want) return "y has not the shape that follows from x and w";
  return qlinear_why_not(call, k, n);
}

}  // namespace pare::qmatmul
