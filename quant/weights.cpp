// From the weight of a site to the tensors that are written: rows, a grid, codes, and back into place.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/numeric/quantize.h"
#include "engine/numeric/table.h"
#include "quant/grid/grid_search.h"
#include "quant/grid/search_rows.h"
#include "quant/grid/weight_rows.h"
#include "quant/plan.h"

namespace pare::quant {
namespace {

constexpr int kLanes = 8;

// Where scales lie: the weight's dims with blocks in place of the inputs.
Dims blocked_dims(Dims dims, const WeightSite& site) {
  auto& ins = dims.at(static_cast<std::size_t>(site.reduce_axis));
  ins = (ins + site.format.block - 1) / site.format.block;
  return dims;
}

// One number a group, from row order into the tensor that is written.
struct ScalePlaces {
  Dims dims;
  RowShape shape;
  WeightView view;

  ScalePlaces(const WeightSite& site, const Dims& weight, std::int64_t rows) {
    if (site.format.granularity == Granularity::kBlock) {
      dims = blocked_dims(weight, site);
      view = view_weight(dims, site.axis, site.reduce_axis);
    } else {
      if (site.format.granularity == Granularity::kChannel) dims = {rows};
      view.outs = rows, view.ins = 1, view.in_stride = 1, view.out_stride = 1;
    }
    shape = {view.outs, view.taps * view.ins, view.ins};
  }

  Tensor floats(std::vector<float> values) const {
    return scatter_rows({shape, std::move(values)}, view, dims);
  }
  Tensor codes(DType dtype, const std::vector<std::uint8_t>& values) const {
    return scatter_codes(dtype, shape, values.data(), view, dims);
  }
};

Tensor scale_tensor(const GridFormat& format, const Grid& grid, const ScalePlaces& places) {
  const std::vector<float> written = written_scales(format, grid);
  // Scales rounded to 16 bits for checkpoint files are float32 in a graph.
  if (format_info(format.scales).bits >= 16) return places.floats(written);
  const FormatInfo& info = format_info(format.scales);
  if (info.bits != 8)
    throw make_error(ErrorCode::kUnsupported, "scales in {} are not written", name(format.scales))
        .hint("take another scheme: `pare ops --formats` lists them");
  std::vector<std::uint8_t> bytes(written.size());
  info.encode(written.data(), bytes.data(), static_cast<std::int64_t>(written.size()));
  return places.codes(format.scales, bytes);
}

Tensor zero_tensor(const GridFormat& format, const Grid& grid, const ScalePlaces& places) {
  if (grid.zero_points.empty()) return {};
  if (format_info(format.codes).bits > 8)
    throw make_error(ErrorCode::kUnsupported, "zero points in {} are not written", name(format.codes))
        .hint("take symmetric weights");
  std::vector<std::uint8_t> bytes(grid.zero_points.size());
  const auto mask = static_cast<std::uint8_t>((1u << format_info(format.codes).bits) - 1);
  std::transform(grid.zero_points.begin(), grid.zero_points.end(), bytes.begin(),
                 [&](std::int32_t z) { return static_cast<std::uint8_t>(static_cast<unsigned>(z) & mask); });
  return places.codes(format.codes, bytes);
}

// Error, power and clipping of the weights, summed over rows in their order whatever the threads.
void measure(const GridFormat& format, const Grid& grid, const WeightRows& rows,
             const std::vector<float>& image, WeightPlan& plan, ThreadPool& pool) {
  const auto count = static_cast<std::size_t>(rows.shape.rows);
  std::vector<double> errors(count), powers(count);
  std::vector<std::int64_t> clipped(count);
  const bool narrow = format.symmetric && format_info(format.codes).bits >= 8;
  const double high = format.largest_code() + 0.5;
  const double low = (narrow ? -format.largest_code() : format.lowest_code()) - 0.5;
  const std::int64_t groups = groups_of(format, rows.shape);
  const std::int64_t width = format.group == 0 ? rows.shape.cols : format.group;
  const std::int64_t segment = format.group == 0 ? rows.shape.cols : rows.shape.segment;
  pool.parallel_for(rows.shape.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const float* w = rows.values.data() + row * rows.shape.cols;
      const float* q = image.data() + row * rows.shape.cols;
      double lane[kLanes] = {}, power = 0;
      std::int64_t group = row * groups;
      for (std::int64_t s = 0; s < rows.shape.cols; s += segment)
        for (std::int64_t at = s; at < s + segment; at += width, ++group) {
          const auto g = static_cast<std::size_t>(group);
          const double scale = static_cast<double>(grid.scales[g]);
          const double zero = grid.zero_points.empty() ? 0 : grid.zero_points[g];
          double a = (low - zero) * scale, b = (high - zero) * scale;
          if (a > b) std::swap(a, b);
          const std::int64_t stop = std::min(at + width, s + segment);
          for (std::int64_t i = at; i < stop; ++i) {
            const double v = static_cast<double>(w[i]), d = v - static_cast<double>(q[i]);
            lane[i % kLanes] += d * d;
            power += v * v;
            clipped[r] += v < a || v > b ? 1 : 0;
          }
        }
      for (const double v : lane) errors[r] += v;
      powers[r] = power;
    }
  });
  double error = 0, power = 0;
  plan.clipped = 0;
  for (std::size_t i = 0; i < count; ++i) {
    error += errors[i];
    power += powers[i];
    plan.clipped += clipped[i];
  }
  plan.mse = error / static_cast<double>(std::max<std::int64_t>(rows.shape.count(), 1));
  plan.sqnr_db = error == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(power / error);
}

}  // namespace

std::int64_t WeightPlan::bytes() const {
  return codes.bytes() + scales.bytes() + global.bytes() + zero_points.bytes();
}

WeightRows site_rows(const Tensor& weight, const WeightSite& site) {
  return gather_rows(weight, site_view(site, weight.dims()));
}

WeightView site_view(const WeightSite& site, const Dims& dims) {
  if (site.format.granularity != Granularity::kTensor) return view_weight(dims, site.axis, site.reduce_axis);
  WeightView view;
  view.outs = 1, view.ins = element_count(dims), view.in_stride = 1;
  return view;
}

WeightPlan weight_plan(const WeightSite& site, const Dims& dims, const WeightRows& rows, const Grid& grid,
                       const std::vector<std::uint8_t>& codes, ThreadPool& pool) {
  const GridFormat format = grid_format(site.format);
  PARE_ASSERT(static_cast<std::int64_t>(codes.size()) == rows.shape.count());
  WeightPlan plan;
  const ScalePlaces places(site, dims, rows.shape.rows);
  plan.scales = scale_tensor(format, grid, places);
  plan.zero_points = zero_tensor(format, grid, places);
  if (format.scales == DType::kE4M3FN) plan.global = Tensor::scalar(grid.global);
  plan.codes = scatter_codes(format.codes, rows.shape, codes.data(), site_view(site, dims), dims);
  std::vector<float> image(codes.size());
  decode(format, rows.shape, grid, codes.data(), image.data(), pool);
  measure(format, grid, rows, image, plan, pool);
  return plan;
}

Tensor dequantized(const WeightSite& site, const WeightPlan& plan) {
  const Dims& dims = plan.codes.dims();
  ScaleLayout layout = ScaleLayout::per_tensor(plan.codes.size());
  if (site.format.granularity == Granularity::kChannel) layout = ScaleLayout::per_channel(dims, site.axis);
  if (site.format.granularity == Granularity::kBlock)
    layout = ScaleLayout::blocked(dims, site.reduce_axis, site.format.block);
  std::vector<float> scales(static_cast<std::size_t>(plan.scales.size()));
  format_info(plan.scales.dtype()).decode(plan.scales.data(), scales.data(), plan.scales.size());
  if (!plan.global.empty())
    for (float& scale : scales) scale *= *plan.global.as<float>();
  std::vector<std::int32_t> zeros;
  if (!plan.zero_points.empty()) {
    std::vector<float> values(scales.size());
    format_info(plan.zero_points.dtype())
        .decode(plan.zero_points.data(), values.data(), plan.zero_points.size());
    zeros.assign(values.begin(), values.end());
  }
  Tensor weight = Tensor::allocate(DType::kF32, dims);
  dequantize(plan.codes.dtype(), plan.codes.data(), layout, scales.data(),
             zeros.empty() ? nullptr : zeros.data(), weight.mut<float>());
  return weight;
}

namespace {

// `global`: the given one of a two-level format, 0 when it may choose.
Grid grid_for(const GridFormat& format, const WeightRows& rows, bool search, float global, ThreadPool& pool) {
  const bool whole_rows = format.group == 0 && format.symmetric && format.scales == DType::kF32;
  if (search && whole_rows && format_info(format.codes).bits == 8) {
    Grid grid = amax_grid(format, rows.shape, rows.values.data(), pool);
    search_rows(format, rows.shape, rows.values.data(), grid, pool);
    return grid;
  }
  GridSearch options;
  options.search = search;
  options.global = global;
  return choose_grid(format, rows.shape, rows.values.data(), options, pool);
}

// One product computes fused layers, so what their weights share of a scale is the best for all of their
// values together: the one scale of a tensor, or the global one of two levels. 0 where nothing is shared.
std::vector<float> scales_of_fused(const Graph& graph, const Placement& placement, bool search,
                                   ThreadPool& pool) {
  std::vector<float> scales(placement.fused.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    std::vector<WeightRows> weights;
    GridFormat format;
    for (const std::size_t w : placement.fused[i].weights) {
      const WeightSite& site = placement.weights[w];
      const bool two_levels = site.format.scales == DType::kE4M3FN;
      if (site.format.granularity != Granularity::kTensor && !two_levels) continue;
      weights.push_back(site_rows(subgraph_at(graph, site.path).value(site.value).constant, site));
      format = grid_format(site.format);
    }
    if (weights.empty()) continue;
    if (format.scales == DType::kE4M3FN) {
      std::vector<GridSource> sources;
      for (const WeightRows& rows : weights) {
        GridSource source{rows.shape, rows.values.data(), {}};
        source.options.search = search;
        sources.push_back(source);
      }
      scales[i] = choose_global(format, sources, pool);
      continue;
    }
    WeightRows all;
    for (const WeightRows& rows : weights)
      all.values.insert(all.values.end(), rows.values.begin(), rows.values.end());
    all.shape = RowShape::whole(1, static_cast<std::int64_t>(all.values.size()));
    scales[i] = grid_for(format, all, search, 0, pool).scales[0];
  }
  return scales;
}

WeightPlan plan_one(const Graph& graph, const WeightSite& site, bool search, float shared, ThreadPool& pool) {
  const Tensor& weight = graph.value(site.value).constant;
  const GridFormat format = grid_format(site.format);
  const WeightRows rows = site_rows(weight, site);
  Grid grid;
  if (shared != 0 && site.format.granularity == Granularity::kTensor)
    grid.scales = {shared};
  else
    grid = grid_for(format, rows, search, shared, pool);
  std::vector<std::uint8_t> codes(rows.values.size());
  encode(format, rows.shape, grid, rows.values.data(), codes.data(), pool);
  return weight_plan(site, weight.dims(), rows, grid, codes, pool);
}

}  // namespace

std::vector<WeightPlan> plan_weights(const Graph& graph, const Placement& placement,
                                     const std::string& method, ThreadPool& pool) {
  const bool search = method != "rtn";
  std::vector<WeightPlan> plans;
  const std::vector<float> shared = scales_of_fused(graph, placement, search, pool);
  for (const WeightSite& site : placement.weights) {
    try {
      const float scale = site.fused >= 0 ? shared[static_cast<std::size_t>(site.fused)] : 0;
      plans.push_back(plan_one(subgraph_at(graph, site.path), site, search, scale, pool));
    } catch (Error& error) {
      error.at(fmt::format("weight '{}'", value_label(graph, site.path, site.value)));
      throw;
    }
  }
  return plans;
}

}  // namespace pare::quant
