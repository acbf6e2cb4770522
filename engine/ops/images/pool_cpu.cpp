// Pools of float32 planes. Global ones: a row each (rows_simd.h has the order of the sum). Others: each row
// of the output from whole rows of the input, tap by tap, sums in the order of the taps.
#include <algorithm>
#include <limits>
#include <vector>

#include "engine/base/grain.h"
#include "engine/ir/window.h"
#include "engine/ops/axis/reduce.h"
#include "engine/ops/images/pool.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {

bool is_global_pool(const OpCall& call) { return call.node->op.substr(0, 6) == "Global"; }

PlanePool plane_pool(const OpCall& call) {
  const Dims &x = call.in[0].dims, &y = call.out[0].dims;
  PlanePool s;
  s.planes = x[0] * x[1];
  const std::size_t axes = x.size() - 2;
  Window window;
  if (!is_global_pool(call)) {
    window = read_window(*call.node, {});
    resolve_pads(window, Dims(x.begin() + 2, x.end()));
  }
  for (std::size_t i = 0; i < axes; ++i) {
    const std::size_t at = 3 - axes + i;
    s.in[at] = x[i + 2];
    s.out[at] = y[i + 2];
    s.kernel[at] = x[i + 2];
    if (is_global_pool(call)) continue;
    s.kernel[at] = window.kernel[i];
    s.stride[at] = window.strides[i];
    s.dilation[at] = window.dilations[i];
    s.begin[at] = window.pads_begin[i];
    s.end[at] = window.pads_end[i];
  }
  return s;
}

namespace {

std::string why_not(const OpCall& call) {
  std::string reason = type_reason(call, 0, {DType::kF32});
  if (reason.empty() && call.in[0].dims.size() < 2) return "rank below 2";
  if (reason.empty() && call.in[0].size() == 0) return "no elements";
  return reason;
}

void run(const OpCall& call) {
  const Dims& dims = call.in[0].dims;
  const std::int64_t planes = dims[0] * dims[1], n = product_of(dims, 2, dims.size());
  const bool average = call.node->op == "GlobalAveragePool";
  const RowReduction kind = average ? RowReduction::kSum : RowReduction::kMax;
  const float divisor = average ? static_cast<float>(n) : 1.0F;
  const auto row = PARE_SIMD_PICK(reduce_row);
  const float* x = call.in[0].as<float>();
  float* y = call.out[0].mut<float>();
  call.pool->parallel_for(planes, grain_for(kElementGrain, n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = row(kind, x + i * n, n) / divisor;
  });
}

// --- windows

std::string window_why_not(const OpCall& call) {
  const std::size_t rank = call.in[0].dims.size();
  if (rank < 3 || rank > 5) return "not one to three spatial axes";
  if (call.out.size() > 1 && call.out[1].present()) return "indices";
  return type_reason(call, 0, {DType::kF32});
}

// Positions of a window that lie inside of `size` elements, or of it and its padding.
std::int64_t positions(const PlanePool& s, std::size_t axis, std::int64_t o, bool padding) {
  std::int64_t count = 0;
  for (std::int64_t k = 0; k < s.kernel[axis]; ++k) {
    const std::int64_t at = o * s.stride[axis] - s.begin[axis] + k * s.dilation[axis];
    const bool in = at >= 0 && at < s.in[axis];
    count += in || (padding && at < s.in[axis] + s.end[axis]) ? 1 : 0;
  }
  return count;
}

void run_windows(const OpCall& call) {
  const PlanePool s = plane_pool(call);
  if (call.out[0].size() == 0) return;
  const bool largest = call.node->op == "MaxPool";
  const bool padding = call.node->attr("count_include_pad", std::int64_t{0}) != 0;
  const auto pool_row = PARE_SIMD_PICK(pool_row);
  std::array<std::vector<std::int64_t>, 3> counts;
  for (std::size_t a = 0; a < 3; ++a)
    for (std::int64_t o = 0; o < s.out[a]; ++o) counts[a].push_back(positions(s, a, o, padding));
  // Outputs [first, last) of a row whose tap kx lies inside.
  struct Span {
    std::int64_t first, last;
  };
  std::vector<Span> spans;
  for (std::int64_t kx = 0; kx < s.kernel[2]; ++kx) {
    const std::int64_t offset = kx * s.dilation[2] - s.begin[2];  // of the input at output 0
    const std::int64_t first = offset >= 0 ? 0 : (-offset + s.stride[2] - 1) / s.stride[2];
    const std::int64_t last = offset >= s.in[2] ? 0 : (s.in[2] - 1 - offset) / s.stride[2] + 1;
    spans.push_back({first, std::min(last, s.out[2])});
  }
  const std::int64_t lines = s.out[0] * s.out[1], work = s.out[2] * volume(s.kernel);
  call.pool->parallel_for(
      s.planes * lines, grain_for(kElementGrain, work), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t oz = i % lines / s.out[1], oy = i % s.out[1];
          const float* plane = call.in[0].as<float>() + i / lines * volume(s.in);
          float* y = call.out[0].mut<float>() + i * s.out[2];
          std::fill_n(y, s.out[2], largest ? -std::numeric_limits<float>::infinity() : 0.0F);
          for (std::int64_t kz = 0; kz < s.kernel[0]; ++kz)
            for (std::int64_t ky = 0; ky < s.kernel[1]; ++ky) {
              const std::int64_t iz = oz * s.stride[0] - s.begin[0] + kz * s.dilation[0],
                                 iy = oy * s.stride[1] - s.begin[1] + ky * s.dilation[1];
              if (iz < 0 || iz >= s.in[0] || iy < 0 || iy >= s.in[1]) continue;
              const float* row = plane + (iz * s.in[1] + iy) * s.in[2];
              for (std::int64_t kx = 0; kx < s.kernel[2]; ++kx) {
                const Span span = spans[static_cast<std::size_t>(kx)];
                if (span.first >= span.last) continue;
                pool_row(largest, row + span.first * s.stride[2] + kx * s.dilation[2] - s.begin[2],
                         s.stride[2], y + span.first, span.last - span.first);
              }
            }
          if (largest) continue;
          const std::int64_t above =
              counts[0][static_cast<std::size_t>(oz)] * counts[1][static_cast<std::size_t>(oy)];
          for (std::int64_t ox = 0; ox < s.out[2]; ++ox)
            y[ox] /= static_cast<float>(above * counts[2][static_cast<std::size_t>(ox)]);
        }
      });
}

}  // namespace

void add_pool_kernels(Registry& registry) {
  Kernel kernel;
  kernel.why_not = why_not;
  kernel.run = run;
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "vector");
    registry.add(kernel);
  }
  kernel.why_not = window_why_not;
  kernel.run = run_windows;
  for (const char* op : {"AveragePool", "MaxPool"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "rows");
    registry.add(kernel);
  }
}

}  // namespace pare
