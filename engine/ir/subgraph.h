// Finding one's way through If, Loop and Scan: the address of a subgraph, and of a value in it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

struct SubgraphStep {
  NodeId node = NodeId::kNone;
  std::string attribute;  // "then_branch", "else_branch", "body"

  bool operator==(const SubgraphStep&) const = default;
  bool operator<(const SubgraphStep& other) const;
};

// From the main graph inwards; {} is the main graph itself.
using SubgraphPath = std::vector<SubgraphStep>;

// A value of a graph or of one inside it.
using ValuePlace = std::pair<SubgraphPath, ValueId>;

// "If_3.then_branch/Loop_1.body", "" for the main graph. A node without a name goes by that of
// its first output, so that a label outlives a file.
std::string to_string(const Graph& graph, const SubgraphPath& path);

// What reports and statistics call a value: its name, behind the path when it is inside a subgraph
// ("If_3.then_branch/conv_out").
std::string value_label(const Graph& graph, const SubgraphPath& path, ValueId id);

// The graph there. The path must exist.
const Graph& subgraph_at(const Graph& graph, const SubgraphPath& path);
// The same to be changed: subgraphs that other graphs share are copied on the way.
Graph& own_subgraph_at(Graph& graph, const SubgraphPath& path);

// Every graph, each before those inside it, nodes in order.
void walk_graphs(const Graph& graph,
                 const std::function<void(const SubgraphPath& path, const Graph& graph)>& visit);

// The keys of a node's subgraph attributes, in order.
std::vector<std::string> subgraph_attributes(const Node& node);
bool has_subgraph(const Node& node);
bool is_captured(const Graph& graph, ValueId id);                     // comes from the graph around
const Graph& subgraph(const Node& node, std::string_view attribute);  // must be there

// Captured values whose outer value is a constant become constants of the subgraph (sharing the memory),
// all the way in; a weight is a weight wherever it stands. The freed inputs of the owning nodes stay, empty
// (kNone), so that capture numbers hold. Returns how many.
int pull_in_constants(Graph& graph);

}  // namespace pare
