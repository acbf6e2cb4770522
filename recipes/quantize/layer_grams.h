// The Gram matrices of the layers whose weights are quantized, by node, as transforms change the inputs.
//
// What is held are the matrices that were measured, once, however many graphs with other factors ask for
// theirs: those are made when they are asked for, a layer at a time.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "calib/gram_collect.h"
#include "calib/gram_geometry.h"
#include "engine/base/progress.h"
#include "quant/placement/placement.h"
#include "quant/transform/channel_shift.h"
#include "quant/transform/scale_group.h"

namespace pare {

// Layers whose matrices are one: those that multiply the same rows.
struct GramLayer {
  GramTarget target;  // the first of the nodes
  ValueId x = ValueId::kNone;
  GramGeometry geometry;
  std::vector<NodeId> nodes;
  std::int64_t rows = 0;  // of the widest weight
};
std::vector<GramLayer> gram_layers(const Graph& graph, const quant::Placement& placement);

class LayerGrams {
 public:
  // From the first samples of `data`, a quarter of which is held out to judge what the others fitted. Layers
  // that multiply the same rows share a matrix.
  static LayerGrams collect(const Graph& graph, const quant::Placement& placement, Dataset& data,
                            ThreadPool& pool, Progress* progress);
  // The same as the model's predictions see them (calib/gradient_grams.h), none held out. Layers that this
  // cannot be said of (in a subgraph, a weight of several nodes, no MatMul) have what collect() gives.
  static LayerGrams collect_gradients(const Graph& graph, const quant::Placement& placement, Dataset& data,
                                      ThreadPool& pool, Progress* progress);
  // The layers that it can be said of.
  static std::vector<NodeId> gradient_layers(const Graph& graph, const quant::Placement& placement,
                                             quant::Placement* rest = nullptr);
  // Which samples those are, and what it takes.
  static GramOptions options(const quant::Placement& placement, const Dataset& data);
  static GramForecast forecast(const Graph& graph, const quant::Placement& placement, const Dataset& data);

  // Moments from elsewhere, for one node; they replace what there is.
  void set(const SubgraphPath& path, NodeId node, GramPair pair) {
    grams_[{path, node}] = {std::make_shared<const GramPair>(std::move(pair)), {}};
  }

  bool empty() const { return grams_.empty(); }
  // Of the node, or of the first node that reads the weight; nullptr: none, or its branch was never taken.
  std::shared_ptr<const GramPair> find(const SubgraphPath& path, NodeId node) const;
  std::shared_ptr<const GramPair> find(const quant::WeightSite& site) const;

  // x_c became x_c / s_c for these nodes.
  void scale(const Graph& graph, const quant::ScaleGroup& group, const std::vector<float>& s);

  // x_c became x_c - z_c: E (x - z)(x - z)^T from the sums of x x^T and of x. No padding, one tap or all
  // alike.
  void shift(const Graph& graph, const quant::ShiftGroup& group, const std::vector<float>& z);

 private:
  struct Change {  // x_c / s_c, or x_c - z_c
    bool is_shift = false;
    std::int64_t ins = 0;  // channels of one group
    std::shared_ptr<const std::vector<float>> values;
  };
  struct Entry {
    std::shared_ptr<const GramPair> measured;
    std::vector<Change> changes;  // since then, in order
    bool outputs_moved = false;   // a factor went into the weight: gradients are of another scale
  };
  static void apply(const Change& change, Gram& gram);
  void add(const Graph& graph, const SubgraphPath& path, const std::vector<NodeId>& nodes, bool is_shift,
           const std::vector<float>& values);

  std::map<std::pair<SubgraphPath, NodeId>, Entry> grams_;
};

}  // namespace pare
