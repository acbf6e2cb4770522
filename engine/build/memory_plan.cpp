#include "engine/build/memory_plan.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

struct Life {
  int tensor;
  std::int64_t first, last, bytes;
};

}  // namespace

std::int64_t plan_memory(EnginePlan& plan) {
  std::vector<Life> lives(plan.tensors.size());
  for (std::size_t i = 0; i < lives.size(); ++i)
    lives[i] = {static_cast<int>(i), -1, -1, aligned(plan.tensors[i].bytes())};
  plan.workspace_bytes = 0;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const auto at = static_cast<std::int64_t>(l);
    const PlanLayer& layer = plan.layers[l];
    plan.workspace_bytes = std::max(plan.workspace_bytes, aligned(layer.workspace));
    for (const PlanView& view : layer.out) {
      Life& life = lives[static_cast<std::size_t>(view.tensor)];
      if (life.first < 0) life.first = at;
      life.last = std::max(life.last, at);
    }
    for (const PlanView& view : layer.in)
      if (view.present()) lives[static_cast<std::size_t>(view.tensor)].last = at;
  }
  plan.weight_bytes = plan.arena_bytes = 0;
  std::int64_t total = 0;
  std::vector<Life> order;
  for (const Life& life : lives) {
    PlanTensor& tensor = plan.tensors[static_cast<std::size_t>(life.tensor)];
    if (tensor.role == PlanRole::kWeight) {
      tensor.offset = plan.weight_bytes;
      plan.weight_bytes += life.bytes;
    } else if (tensor.role == PlanRole::kActivation && life.first >= 0) {
      order.push_back(life);
      total += life.bytes;
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::vector<Life> done;
  for (const Life& life : order) {
    std::vector<std::pair<std::int64_t, std::int64_t>> busy;  // begin, end of what is alive at the same time
    for (const Life& other : done)
      if (other.first <= life.last && life.first <= other.last) {
        const std::int64_t begin = plan.tensors[static_cast<std::size_t>(other.tensor)].offset;
        busy.emplace_back(begin, begin + other.bytes);
      }
    std::sort(busy.begin(), busy.end());
    std::int64_t best = -1, best_gap = 0, end = 0;
    for (const auto& [begin, stop] : busy) {
      const std::int64_t gap = begin - end;
      if (gap >= life.bytes && (best < 0 || gap < best_gap)) best = end, best_gap = gap;
      end = std::max(end, stop);
    }
    if (best < 0) best = end;
    plan.tensors[static_cast<std::size_t>(life.tensor)].offset = best;
    plan.arena_bytes = std::max(plan.arena_bytes, best + life.bytes);
    done.push_back(life);
  }
  return total;
}

}  // namespace pare
