# cmake -DOUT=builtin.cpp -P embed_recipes.cmake FILES...: the recipes as one C++ table. The first line of a
# recipe is a comment that says what it is.
set(text "// Made by cmake/embed_recipes.cmake.\n#include \"recipes/grammar/load.h\"\n\nnamespace pare {\n\n")
string(APPEND text "const std::vector<BuiltinRecipe>& builtin_recipes() {\n")
string(APPEND text "  static const std::vector<BuiltinRecipe> kRecipes = {\n")
foreach(file IN LISTS FILES)
  file(READ ${file} body)
  get_filename_component(name ${file} NAME_WE)
  string(REGEX MATCH "^# ([^\n]*)\n" _ "${body}")
  string(APPEND text "      {\"${name}\", \"${CMAKE_MATCH_1}\",\n       R\"RECIPE(${body})RECIPE\"},\n")
endforeach()
string(APPEND text "  };\n  return kRecipes;\n}\n\n}  // namespace pare\n")
file(WRITE ${OUT} "${text}")
