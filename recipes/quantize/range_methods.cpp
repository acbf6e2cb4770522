#include "recipes/quantize/range_methods.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {
namespace {

// "mse x 1.1": layers that clip do it in the same samples, so their errors add up and a wider range than the
// best of each alone can be better for all together.
constexpr double kWidened[] = {1.1, 1.25};

}  // namespace

RangeChoice range_by_name(const TensorStats& stats, const RangeTarget& target, const std::string& method) {
  for (const double factor : kWidened) {
    if (method != fmt::format("mse x {}", factor)) continue;
    // Not beyond what was seen: there is nothing to be gained there.
    const RangeChoice mse = range_mse(stats, target);
    const RangeChoice all = range_minmax(stats, target);
    RangeChoice wide = range_given(stats, target, std::max(static_cast<float>(mse.low * factor), all.low),
                                   std::min(static_cast<float>(mse.high * factor), all.high));
    wide.method = method;
    return wide;
  }
  return range_by_method(stats, target, method);
}

RangeTarget range_target(const quant::Format& format) {
  RangeTarget target;
  target.format = format.dtype;
  target.symmetric = format.symmetric;
  target.two_level =
      format.granularity == quant::Granularity::kBlock && format.scales == DType::kE4M3FN && !format.dynamic;
  return target;
}

std::vector<std::string> RangeMethods::names() const {
  if (!several()) return {calibrator_};
  std::vector<std::string> methods = {"minmax"};
  for (const double p : percentiles_) methods.push_back(fmt::format("percentile({})", p));
  methods.push_back("entropy");
  methods.push_back("mse");
  for (const double factor : kWidened) methods.push_back(fmt::format("mse x {}", factor));
  return methods;
}

std::vector<RangeChoice> RangeMethods::ranges(const quant::ActivationSite& site,
                                              const TensorStats& stats) const {
  const RangeTarget target = range_target(site.format);
  if (site.unit_range) {
    RangeChoice unit = range_given(stats, target, site.format.symmetric ? -1.0f : 0.0f, 1.0f);
    unit.method = "fixed (0,1)";
    return {unit};
  }
  std::vector<RangeChoice> list;
  for (const std::string& method : names()) list.push_back(range_by_name(stats, target, method));
  return list;
}

const RangeChoice& RangeMethods::pick(const std::vector<RangeChoice>& ranges, const std::string& name) const {
  if (ranges.size() == 1) return ranges[0];
  const std::vector<std::string> all = names();
  const auto it = std::find(all.begin(), all.end(), name);
  PARE_ASSERT(it != all.end());
  return ranges[static_cast<std::size_t>(it - all.begin())];
}

}  // namespace pare
