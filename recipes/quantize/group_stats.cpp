#include "recipes/quantize/group_stats.h"

#include <map>

#include "engine/base/error.h"

namespace pare {

void join_group_stats(const quant::Placement& placement, std::vector<const TensorStats*>& stats,
                      std::vector<std::shared_ptr<const TensorStats>>& held) {
  PARE_ASSERT(stats.size() == placement.activations.size());
  std::map<int, TensorStats> sums;
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const int group = placement.activations[i].group;
    if (group < 0 || stats[i] == nullptr) continue;
    TensorStats part = *stats[i];
    part.channel_amax.clear();
    const auto it = sums.find(group);
    if (it == sums.end())
      sums.emplace(group, std::move(part));
    else
      merge(it->second, part);
  }
  for (std::size_t i = 0; i < stats.size(); ++i) {
    const int group = placement.activations[i].group;
    if (group < 0 || stats[i] == nullptr) continue;
    auto sum = std::make_shared<TensorStats>(sums.at(group));
    sum->name = stats[i]->name;
    stats[i] = sum.get();
    held.push_back(std::move(sum));
  }
}

}  // namespace pare
