#include "calib/statistics.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {

const TensorStats* Statistics::find(const std::string& name) const {
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                      [](const TensorStats& t, const std::string& n) { return t.name < n; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

const TensorStats& Statistics::at(const std::string& name) const {
  if (const TensorStats* found = find(name)) return *found;
  std::vector<const char*> names;
  for (const TensorStats& t : tensors) names.push_back(t.name.c_str());
  const std::string near = nearest_word(name, names.data(), names.size());
  throw make_error(ErrorCode::kUsage, "the statistics know no tensor '{}'", name)
      .hint(near.empty() ? "calibrate again with this model" : "the nearest name is '" + near + "'");
}

std::uint64_t Statistics::nan_count() const {
  std::uint64_t sum = 0;
  for (const TensorStats& t : tensors) sum += t.nan;
  return sum;
}

std::uint64_t Statistics::inf_count() const {
  std::uint64_t sum = 0;
  for (const TensorStats& t : tensors) sum += t.positive_inf + t.negative_inf;
  return sum;
}

Statistics merge(const Statistics& a, const Statistics& b) {
  if (a.graph_hash != b.graph_hash)
    throw make_error(ErrorCode::kUsage, "the statistics are of different models (graph {:.12} and {:.12})",
                     a.graph_hash, b.graph_hash)
        .hint("merge parts that were calibrated with one and the same model file");
  if (a.samples > 0 && b.samples > 0 && a.data_hash == b.data_hash)
    throw make_error(ErrorCode::kUsage, "both statistics come from the same {} samples", a.samples)
        .hint("merge parts of the data that do not overlap");
  Statistics sum = a;
  sum.samples += b.samples;
  sum.data_hash.add(b.data_hash);
  if (a.tensors.size() != b.tensors.size())
    throw make_error(ErrorCode::kUsage, "one part watched {} tensors, the other {}", a.tensors.size(),
                     b.tensors.size())
        .hint("calibrate the parts with the same options");
  for (std::size_t t = 0; t < sum.tensors.size(); ++t) {
    if (sum.tensors[t].name != b.tensors[t].name)
      throw make_error(ErrorCode::kUsage, "the parts watched different tensors: '{}' and '{}'",
                       sum.tensors[t].name, b.tensors[t].name)
          .hint("calibrate all parts with the same model and options");
    merge(sum.tensors[t], b.tensors[t]);
  }
  return sum;
}

void refuse_stale(const Statistics& statistics, const std::string& graph_hash, const std::string& file) {
  if (statistics.graph_hash == graph_hash) return;
  throw make_error(ErrorCode::kUsage,
                   "the statistics were made from another model (graph {:.12}, this one is {:.12})",
                   statistics.graph_hash, graph_hash)
      .at(file)
      .hint("calibrate again: pare calibrate MODEL --data DATA -o STATS.h5");
}

void refuse_other_data(const Statistics& statistics, const DigestSum& data_hash, std::int64_t samples,
                       const std::string& file) {
  if (statistics.data_hash == data_hash && statistics.samples == samples) return;
  throw make_error(
      ErrorCode::kUsage,
      "the statistics were made from other data ({} samples, hash {:.12}; asked for are {}, {:.12})",
      statistics.samples, statistics.data_hash.hex(), samples, data_hash.hex())
      .at(file)
      .hint("calibrate again with these samples and this preprocessing");
}

}  // namespace pare
