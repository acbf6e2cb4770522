#include "quant/grid/weight_rows.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

constexpr std::int64_t kTile = 16;  // rows at once, where outputs are neighbours in the weight: a cache line

// visit(index in rows, index in the weight), in any order.
template <class Visit>
void for_elements(const RowShape& shape, const WeightView& view, Visit&& visit) {
  const std::int64_t tile = view.out_stride < view.in_stride ? kTile : 1;
  for (std::int64_t first = 0; first < shape.rows; first += tile) {
    const std::int64_t end = std::min(first + tile, shape.rows);
    for (std::int64_t tap = 0; tap < view.taps; ++tap)
      for (std::int64_t in = 0; in < view.ins; ++in) {
        const std::int64_t column = tap * view.ins + in;
        for (std::int64_t out = first; out < end; ++out)
          visit(out * shape.cols + column, view.at(out, in, tap));
      }
  }
}

}  // namespace

WeightRows gather_rows(const Tensor& weight, const WeightView& view) {
  WeightRows rows;
  rows.shape = {view.outs, view.taps * view.ins, view.ins};
  PARE_ASSERT(rows.shape.count() == weight.size());
  rows.values.resize(static_cast<std::size_t>(rows.shape.count()));
  const float* source = weight.as<float>();
  for_elements(rows.shape, view, [&](std::int64_t at, std::int64_t from) {
    rows.values[static_cast<std::size_t>(at)] = source[from];
  });
  return rows;
}

Tensor scatter_rows(const WeightRows& rows, const WeightView& view, const Dims& dims) {
  Tensor weight = Tensor::allocate(DType::kF32, dims);
  PARE_ASSERT(rows.shape.count() == weight.size());
  float* target = weight.mut<float>();
  for_elements(rows.shape, view, [&](std::int64_t at, std::int64_t to) {
    target[to] = rows.values[static_cast<std::size_t>(at)];
  });
  return weight;
}

Tensor scatter_codes(DType dtype, const RowShape& shape, const std::uint8_t* codes, const WeightView& view,
                     const Dims& dims) {
  Tensor weight = Tensor::allocate(dtype, dims);
  PARE_ASSERT(shape.count() == weight.size());
  std::vector<std::uint8_t> order(static_cast<std::size_t>(shape.count()));
  for_elements(shape, view,
               [&](std::int64_t at, std::int64_t to) { order[static_cast<std::size_t>(to)] = codes[at]; });
  pack_codes(format_info(dtype).bits, order.data(), weight.mut<std::byte>(), weight.size());
  return weight;
}

}  // namespace pare::quant
