// Every key of a recipe as a flat list, from the description that reads recipes: for docs/reference.md, man
// pages, shell completion and the choices of flags that say the same as a key.
#pragma once

#include <string>
#include <vector>

namespace pare {

struct RecipeKey {
  std::string path;  // "quantize.rules[].match.name"; NAME stands for a name that the user chooses
  std::string type;  // "text", "integer", "number", "boolean", "mapping"; "list of ..."
  std::vector<std::string> choices;  // empty: any; "percentile(...)": anything between the brackets
  std::string limits;                // "1 to 4096", "at least 1"; "" when there are none
  std::string fallback;              // what holds without it; "" when doc says it or nothing does
  std::string doc;
  bool required = false;  // where the mapping around it is given
};

std::vector<RecipeKey> recipe_keys();  // in the order of the grammar
// Of one key; empty when it takes any value. `path` must be a key.
std::vector<std::string> recipe_choices(const std::string& path);

}  // namespace pare
