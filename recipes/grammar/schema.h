// The JSON schema (draft 2020-12) of a recipe, for editors and other checkers: what `pare recipe schema`
// prints. Made from the same description that reads recipes.
#pragma once

#include <string>

namespace pare {

std::string recipe_schema();  // ended by a newline

}  // namespace pare
