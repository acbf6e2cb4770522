#include "engine/build/plan/memory_plan.h"

#include <algorithm>
#include <map>

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
  std::map<std::string, std::int64_t> by_hash;
  std::vector<Life> order;
  for (const Life& life : lives) {
    PlanTensor& tensor = plan.tensors[static_cast<std::size_t>(life.tensor)];
    if (tensor.role == PlanRole::kWeight) {
      tensor.offset = plan.weight_bytes;
      if (!tensor.hash.empty()) {
        const auto [seen, is_first] = by_hash.emplace(tensor.hash, tensor.offset);
        tensor.offset = seen->second;
        if (!is_first) continue;
      }
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

PlannedMemory planned_memory(const EnginePlan& plan) {
  PlannedMemory m;
  m.weights = plan.weight_bytes;
  m.activations = plan.arena_bytes;
  m.workspace = std::max<std::int64_t>(plan.workspace_bytes, kPlanAlignment);
  for (const auto* list : {&plan.inputs, &plan.outputs})
    for (const int id : *list) m.io += plan.tensors[static_cast<std::size_t>(id)].bytes() + kPlanAlignment;
  return m;
}

std::int64_t largest_batch(const EnginePlan& plan, std::int64_t batch, std::int64_t bytes) {
  const PlannedMemory m = planned_memory(plan);
  const std::int64_t each =
      std::max<std::int64_t>((m.activations + m.io) / std::max<std::int64_t>(batch, 1), 1);
  return std::max<std::int64_t>((bytes - m.weights - m.workspace) / each, 0);
}

void check_fits(const EnginePlan& plan, std::int64_t batch, std::int64_t bytes, bool lent) {
  const PlannedMemory m = planned_memory(plan);
  if (lent) bytes += m.weights;
  if (m.peak() <= bytes) return;
  const std::int64_t most = largest_batch(plan, batch, bytes);
  const auto mb = [](std::int64_t n) { return static_cast<double>(n) / 1e6; };
  throw make_error(
      ErrorCode::kDevice,
      "the engine needs {:.1f} MB of the device at batch {} (weights {:.1f}, activations {:.1f}, "
      "workspace {:.1f}, inputs and outputs {:.1f}), {:.1f} MB are free",
      mb(m.peak()), batch, mb(m.weights), mb(m.activations), mb(m.workspace), mb(m.io), mb(bytes))
      .hint(most > 0 ? fmt::format("the largest batch that fits is about {}", most)
                     : std::string(
                           "not even one sample fits: free memory of the device, or take a smaller model"));
}

}  // namespace pare
