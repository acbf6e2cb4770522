// From a recipe's file to a checked Recipe: extends, --set, ${NAME}, grammar, then sense.
#pragma once

#include <string>
#include <vector>

#include "recipes/grammar/recipe.h"
#include "recipes/grammar/tree.h"

namespace pare {

struct RecipeOptions {
  // "a.b.0.c=value" sets a key (value is YAML); "NAME=value" gives ${NAME} its value when the recipe uses it.
  std::vector<std::string> sets;
  bool check_files = true;  // that named files exist
};

struct LoadedRecipe {
  Recipe recipe;
  TreeNode tree;     // after extends, --set and ${NAME}: where keys stand
  std::string text;  // canonical YAML of `recipe`: every default written out; the same bytes everywhere
};

// `path` is a file, or builtin/NAME. Errors: kBadFile when it cannot be read; everything wrong inside is
// kUsage with where "file:line:column", except files it names that are missing: kBadFile, same where.
// Mistakes of the grammar are all reported at once (ManyErrors), then all that check_recipe finds. Paths
// inside are relative to the recipe's folder (those of builtin/ and of --set too).
LoadedRecipe load_recipe(const std::string& path, const RecipeOptions& options);

// The same from text; `name` stands in errors, `folder` is where relative paths start.
LoadedRecipe parse_recipe(std::string_view text, const std::string& name, const std::string& folder,
                          const RecipeOptions& options);

// The canonical text with paths that start at `folder`: the same recipe, to be kept there.
std::string recipe_text_in(const Recipe& recipe, const std::string& folder);

// A data set file of --data: the mapping that stands under a name in `datasets`, alone. Its relative paths
// start from its own folder.
DatasetEntry load_dataset_file(const std::string& path);

// SHA-256 of the part of a recipe that decides the model's bytes: not how it is judged and reported, nor how
// many samples are read at once. It goes into the model (metadata_props, pare.recipe).
std::string model_recipe_hash(const Recipe& recipe);

// What the grammar alone cannot see: names that refer to nothing, combinations that make no sense, gates on
// metrics that are not computed, missing files. Called by the functions above.
void check_recipe(const Recipe& recipe, const TreeNode& tree, bool check_files);

// --- built-in recipes: recipes/builtin/*.yaml, compiled in
struct BuiltinRecipe {
  const char* name;  // "int8": used as builtin/int8
  const char* what;  // its first comment line
  const char* text;
};
const std::vector<BuiltinRecipe>& builtin_recipes();
// Error kUsage with a suggestion. Takes "builtin/int8" and "int8".
const BuiltinRecipe& find_builtin(const std::string& name, const std::string& where);

}  // namespace pare
