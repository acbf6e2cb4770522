// The Gram matrices of the layers whose weights are quantized, by node, as transforms change the inputs.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "calib/gram_collect.h"
#include "engine/base/progress.h"
#include "quant/placement/placement.h"
#include "quant/transform/channel_shift.h"
#include "quant/transform/scale_group.h"

namespace pare {

class LayerGrams {
 public:
  // From the first samples of `data`, a quarter of which is held out to judge what the others fitted. Layers
  // that multiply the same rows share a matrix.
  static LayerGrams collect(const Graph& graph, const quant::Placement& placement, Dataset& data,
                            ThreadPool& pool, Progress* progress);

  // Moments from elsewhere, for one node; they replace what there is.
  void set(const SubgraphPath& path, NodeId node, GramPair pair) {
    grams_[{path, node}] = std::make_shared<const GramPair>(std::move(pair));
  }

  bool empty() const { return grams_.empty(); }
  // Of the node, or of the first node that reads the weight; nullptr: none, or its branch was never taken.
  const GramPair* find(const SubgraphPath& path, NodeId node) const;
  const GramPair* find(const quant::WeightSite& site) const;

  // x_c became x_c / s_c for these nodes.
  void scale(const Graph& graph, const quant::ScaleGroup& group, const std::vector<float>& s);

  // x_c became x_c - z_c: E (x - z)(x - z)^T from the sums of x x^T and of x. No padding, one tap or all
  // alike.
  void shift(const Graph& graph, const quant::ShiftGroup& group, const std::vector<float>& z);

 private:
  template <class Change>
  void change(const Graph& graph, const SubgraphPath& path, const std::vector<NodeId>& nodes,
              const Change& changed);

  std::map<std::pair<SubgraphPath, NodeId>, std::shared_ptr<const GramPair>> grams_;
};

}  // namespace pare
