// What of a quantization is finished, on disk: the codes of every layer and the score of every candidate. A
// run that was killed takes them over and ends with the same bytes; and codes that are mapped from a file
// take no memory, so that of a weight-only quantization is a constant plus the largest layer.
//
//   FOLDER/KEY.layer    one layer (or several that share a scale): a line of JSON, then the tensors at
//                       multiples of 64 bytes. Written whole or not at all; SHA-256 of the tensors inside
//   FOLDER/scores.jsonl one line a candidate
//
// The key is a hash of all that decides a layer: weight, format, axes, method, and what `base` stands for
// (the statistics). A layer that was made from anything else is not found.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/atomic_file.h"
#include "engine/base/progress.h"
#include "engine/ir/graph.h"
#include "quant/plan.h"

namespace pare {

class LayerJournal {
 public:
  // The folder is made. `base`: everything beside weight and format that a result depends on.
  LayerJournal(std::string folder, std::string base);
  // A journal for its memory alone: in a new folder beside `path`, removed with the object.
  static std::unique_ptr<LayerJournal> temporary(const std::string& path);
  // One without files, for many quantizations of one model in one process: a layer that nothing changed is
  // solved once.
  static std::unique_ptr<LayerJournal> in_memory();
  ~LayerJournal();
  LayerJournal(const LayerJournal&) = delete;
  LayerJournal& operator=(const LayerJournal&) = delete;

  // The layers of a unit, if they were kept and their file is sound; else {}.
  std::vector<quant::WeightPlan> find(const std::string& key) const;
  // Writing costs a few milliseconds: not for a layer that took no longer, until these amount to something.
  bool is_worth_keeping(const std::vector<quant::WeightPlan>& plans, double seconds);
  double keep_seconds = 0.02;
  std::int64_t keep_bytes = std::int64_t{32} << 20;
  // Keeps them; returns them with tensors in the file.
  std::vector<quant::WeightPlan> keep(const std::string& key, const std::vector<quant::WeightPlan>& plans);

  std::optional<double> score(const std::string& candidate) const;
  void keep_score(const std::string& candidate, double score);

  const std::string& base() const { return base_; }
  const std::string& folder() const { return folder_; }
  bool is_temporary() const { return temporary_; }

 private:
  void read_scores();

  LayerJournal() = default;

  std::string folder_, base_;  // no folder: in memory
  bool temporary_ = false;
  std::map<std::string, std::vector<quant::WeightPlan>> memory_;
  std::int64_t in_memory_ = 0;  // of layers that were not worth it
  std::map<std::string, double> scores_;
  std::unique_ptr<AppendFile> score_file_;
};

// Computes the plans of a unit: a placement with nothing but weights, one or those of a fused group.
using DescribeUnit = std::function<std::string(const quant::Placement& unit)>;
// `advance` may be told which share of the unit's work is done, bit by bit and from any thread.
using Advance = std::function<void(double share)>;
using PlanUnit =
    std::function<std::vector<quant::WeightPlan>(const quant::Placement& unit, const Advance& advance)>;

// Plans by placement.weights, unit by unit in order; what the journal (may be null) has is not computed
// again. What `describe` says of a unit is part of the key: options, moments of its inputs. Cancellation is
// looked for between units; progress counts weights. Errors: those of `plan`, kDevice.
std::vector<quant::WeightPlan> plan_layers(const Graph& graph, const quant::Placement& placement,
                                           const DescribeUnit& describe, LayerJournal* journal,
                                           Progress& progress, const PlanUnit& plan,
                                           const char* what = "weights");

}  // namespace pare
