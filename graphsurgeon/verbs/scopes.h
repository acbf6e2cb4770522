// What the verbs of surgery share: walking a graph with its subgraphs, and finding values by name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// The graph and every subgraph in it, outer ones first. A subgraph that graphs share is made this graph's
// own. `path` is "" or where the subgraph hangs: "if_1.then_branch/loop_2.body".
void for_each_graph(Graph& graph, const std::function<void(Graph&, const std::string& path)>& visit);
void for_each_graph(const Graph& graph,
                    const std::function<void(const Graph&, const std::string& path)>& visit);

// "if_1.then_branch" for a subgraph of `node`.
std::string scope_name(const Node& node, const std::string& key);

// The value of that name in the graph itself. Error kUsage with the nearest name when there is none.
ValueId named_value(const Graph& graph, const std::string& name);

// "did you mean 'x'", or where names are listed.
std::string nearest_value_hint(const Graph& graph, const std::string& name);

}  // namespace pare
