#include "engine/ir/schema.h"

#include <algorithm>
#include <tuple>

#include "engine/base/error.h"
#include "engine/ir/schema_groups.h"

namespace pare {
namespace {

bool before(const OpSchema* a, const OpSchema* b) {
  return std::tie(a->domain, a->op) < std::tie(b->domain, b->op);
}

std::vector<const OpSchema*> join_groups() {
  std::vector<const OpSchema*> all;
  for (const auto group :
       {elementwise_schemas(), nn_schemas(), vision_schemas(), tensor_schemas(), size_schemas(),
        select_schemas(), reduce_schemas(), quant_schemas(), pare_schemas(), sequence_schemas(),
        control_schemas(), string_schemas(), microsoft_schemas(), ml_schemas()})
    for (const OpSchema& schema : group) all.push_back(&schema);
  std::sort(all.begin(), all.end(), before);
  for (std::size_t i = 1; i < all.size(); ++i) PARE_ASSERT(before(all[i - 1], all[i]));  // none twice
  return all;
}

}  // namespace

const std::vector<const OpSchema*>& all_schemas() {
  static const std::vector<const OpSchema*> all = join_groups();
  return all;
}

const OpSchema* find_schema(std::string_view domain, std::string_view op) {
  const auto& all = all_schemas();
  const OpSchema wanted{domain, op, 0, 0, 0, 0, nullptr};
  const auto found = std::lower_bound(all.begin(), all.end(), &wanted, before);
  if (found == all.end() || (*found)->domain != domain || (*found)->op != op) return nullptr;
  return *found;
}

}  // namespace pare
