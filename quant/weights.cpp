// Weight scales: the largest magnitude, or the scale of least squared error.
//
// A search tries the scale of the largest magnitude times each factor of a list, and, for integers, ends
// with the least-squares scale of the best codes. Codes are always computed from the float32 scale that is
// written. Sums run in double over eight fixed lanes, so every machine chooses the same scale.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/base/error.h"
#include "engine/numeric/quantize.h"
#include "engine/numeric/table.h"
#include "quant/plan.h"

namespace pare::quant {
namespace {

constexpr int kLanes = 8;

double squared_error(const float* a, const float* b, std::int64_t n) {
  double lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const double d = static_cast<double>(a[i + k]) - static_cast<double>(b[i + k]);
      lane[k] += d * d;
    }
  for (; i < n; ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    lane[i % kLanes] += d * d;
  }
  double sum = 0;
  for (const double v : lane) sum += v;
  return sum;
}

// One channel's weights, contiguous, and room for their images.
struct Row {
  std::vector<float> values, image;
};

class Searcher {
 public:
  Searcher(DType dtype, bool search) : info_(format_info(dtype)), search_(search) { target_.type = dtype; }

  // The largest code of a symmetric grid: -127..127, so that negation is exact.
  double largest_code() const { return info_.largest; }

  float choose(Row& row) const {
    float amax = 0;
    for (const float v : row.values) {
      if (!std::isfinite(v)) fail(ErrorCode::kBadFile, "a weight is NaN or infinite");
      amax = std::max(amax, std::fabs(v));
    }
    const float start = static_cast<float>(static_cast<double>(amax) / largest_code());
    if (start == 0.0f || !std::isnormal(start)) return 1.0f;
    if (!search_) return start;
    float best = start;
    double least = error(row, start);
    for (const double factor : factors()) {
      const float scale = static_cast<float>(static_cast<double>(start) * factor);
      const double e = error(row, scale);
      if (e < least) {
        least = e;
        best = scale;
      }
    }
    if (info_.is_integer()) refine(row, best, least);
    return best;
  }

  double error(Row& row, float scale) const {
    const auto n = static_cast<std::int64_t>(row.values.size());
    fake_quantize(row.values.data(), ScaleLayout::per_tensor(n), &scale, nullptr, target_, row.image.data());
    return squared_error(row.values.data(), row.image.data(), n);
  }

 private:
  // Integers: clipping the tail buys a finer step. FP8: the step grows with the value, so what matters is
  // where in a binade the values fall; one octave covers every position.
  const std::vector<double>& factors() const {
    static const std::vector<double> integer = [] {
      std::vector<double> list;
      for (int i = 1; i <= 40; ++i) list.push_back(1.0 - 0.0125 * i);
      return list;
    }();
    static const std::vector<double> floating = [] {
      std::vector<double> list;
      for (int i = 1; i < 32; ++i) list.push_back(std::exp2(i / 32.0));
      for (int i = 1; i <= 8; ++i) list.push_back(std::exp2(-i / 32.0));
      return list;
    }();
    return info_.is_integer() ? integer : floating;
  }

  // s = sum(w q) / sum(q q) is the best scale for given codes.
  void refine(Row& row, float& best, double& least) const {
    for (int round = 0; round < 2; ++round) {
      error(row, best);
      double wq = 0, qq = 0;
      for (std::size_t i = 0; i < row.values.size(); ++i) {
        const double q = static_cast<double>(row.image[i]) / static_cast<double>(best);
        wq += static_cast<double>(row.values[i]) * q;
        qq += q * q;
      }
      if (qq == 0) return;
      const float scale = static_cast<float>(wq / qq);
      if (!(scale > 0) || !std::isnormal(scale)) return;
      const double e = error(row, scale);
      if (e >= least) return;
      least = e;
      best = scale;
    }
  }

  const FormatInfo& info_;
  bool search_;
  QuantTarget target_;
};

// `shared`: the scale of all the layers that are fused with this one, null when it is alone.
WeightPlan plan_one(const Graph& graph, const WeightSite& site, bool search, const float* shared,
                    ThreadPool& pool) {
  const Tensor& weight = graph.value(site.value).constant;
  const Dims& dims = weight.dims();
  const bool per_channel = site.format.granularity == Granularity::kChannel;
  const ScaleLayout layout =
      per_channel ? ScaleLayout::per_channel(dims, site.axis) : ScaleLayout::per_tensor(weight.size());
  const std::int64_t channels = layout.scales(), inner = layout.inner, outer = layout.outer;
  const Searcher searcher(site.format.dtype, search);

  std::vector<float> scales(static_cast<std::size_t>(channels));
  std::vector<double> errors(scales.size()), powers(scales.size());
  std::vector<std::int64_t> clipped(scales.size());
  const float* w = weight.as<float>();
  pool.parallel_for(channels, 1, [&](std::int64_t begin, std::int64_t end) {
    Row row;
    const std::int64_t n = weight.size() / std::max<std::int64_t>(channels, 1);
    row.values.resize(static_cast<std::size_t>(n));
    row.image.resize(row.values.size());
    for (std::int64_t c = begin; c < end; ++c) {
      if (per_channel) {
        for (std::int64_t o = 0; o < outer; ++o)
          std::copy_n(w + (o * channels + c) * inner, inner, row.values.data() + o * inner);
      } else {
        std::copy_n(w, n, row.values.data());
      }
      const auto i = static_cast<std::size_t>(c);
      scales[i] = shared != nullptr ? *shared : searcher.choose(row);
      errors[i] = searcher.error(row, scales[i]);
      const double edge = static_cast<double>(scales[i]) * (searcher.largest_code() + 0.5);
      for (const float v : row.values) {
        powers[i] += static_cast<double>(v) * static_cast<double>(v);
        clipped[i] += std::fabs(static_cast<double>(v)) > edge ? 1 : 0;
      }
    }
  });

  WeightPlan plan;
  double error = 0, power = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    error += errors[i];
    power += powers[i];
    plan.clipped += clipped[i];
  }
  plan.mse = error / static_cast<double>(std::max<std::int64_t>(weight.size(), 1));
  plan.sqnr_db = error == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(power / error);
  plan.scales = Tensor::from(DType::kF32, per_channel ? Dims{channels} : Dims{}, scales);
  plan.codes = Tensor::allocate(site.format.dtype, dims);
  QuantTarget target;
  target.type = site.format.dtype;
  quantize(w, layout, scales.data(), nullptr, target, plan.codes.mut<std::byte>());
  return plan;
}

// One product computes fused layers, so weights with one scale for the tensor have one for all of them: the
// best for their values together. Nothing for layers whose scales are a channel's or a block's own.
std::vector<std::optional<float>> scales_of_fused(const Graph& graph, const Placement& placement,
                                                  bool search) {
  std::vector<std::optional<float>> scales(placement.fused.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    Row row;
    DType type = DType::kUndefined;
    for (const std::size_t w : placement.fused[i].weights) {
      const WeightSite& site = placement.weights[w];
      if (site.format.granularity != Granularity::kTensor) continue;
      const Tensor& weight = subgraph_at(graph, site.path).value(site.value).constant;
      row.values.insert(row.values.end(), weight.as<float>(), weight.as<float>() + weight.size());
      type = site.format.dtype;
    }
    if (row.values.empty()) continue;
    row.image.resize(row.values.size());
    scales[i] = Searcher(type, search).choose(row);
  }
  return scales;
}

}  // namespace

std::vector<WeightPlan> plan_weights(const Graph& graph, const Placement& placement,
                                     const std::string& method, ThreadPool& pool) {
  std::vector<WeightPlan> plans;
  const std::vector<std::optional<float>> shared = scales_of_fused(graph, placement, method != "rtn");
  for (const WeightSite& site : placement.weights) {
    try {
      const float* scale = site.fused >= 0 && shared[static_cast<std::size_t>(site.fused)]
                               ? &*shared[static_cast<std::size_t>(site.fused)]
                               : nullptr;
      plans.push_back(plan_one(subgraph_at(graph, site.path), site, method != "rtn", scale, pool));
    } catch (Error& error) {
      error.at(fmt::format("weight '{}'", value_label(graph, site.path, site.value)));
      throw;
    }
  }
  return plans;
}

}  // namespace pare::quant
