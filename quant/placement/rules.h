// Which formats a node gets: the defaults, then every rule that matches it, in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "quant/placement/spec.h"

namespace pare::quant {

struct Resolved {
  bool quantize = true;
  Format weights, activations;
  std::string method;
  std::string why_not;   // set when !quantize
  bool by_rule = false;  // !quantize because a rule says so, not because of the operator
};

// Error kUsage for a pattern that is no regular expression.
class RuleBook {
 public:
  explicit RuleBook(const Spec& spec);
  ~RuleBook();
  Resolved resolve(const Graph& graph, const Node& node) const;
  // A sentence for each pattern of a rule that matches nothing in the graph (a misspelt name, a node of
  // another model), with the nearest name: a rule that does nothing is hardly meant.
  std::vector<std::string> unmatched(const Graph& graph) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pare::quant
