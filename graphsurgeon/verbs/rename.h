// `pare surgeon rename`: other names for values and nodes.
#pragma once

#include <string>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

enum class RenameWhat : int { kValue, kInput, kOutput, kNode };

struct Renaming {
  RenameWhat what = RenameWhat::kValue;
  std::string from, to;  // NamePattern; behind "re:" `to` may hold its groups, $1 .. $9
};

// "OLD=NEW" (the first '=' divides) or "re:PATTERN=REPLACEMENT" (the last one does). Error kUsage.
Renaming parse_renaming(RenameWhat what, const std::string& text);

struct Renamed {
  std::string kind;  // "input", "output", "value", "node"
  std::string from, to, scope;
};

// Renames in place, subgraphs included; all at once, so a=b and b=a swap two names. Constants are values.
// Error kUsage: a name or a pattern that nothing has (with the nearest name), a pattern that is none, a name
// that would be empty or stand for two values or two nodes. After an error the graph is as it was.
std::vector<Renamed> rename(Graph& graph, const std::vector<Renaming>& renamings);

}  // namespace pare
