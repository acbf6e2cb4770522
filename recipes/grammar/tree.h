// The plain tree that a recipe's YAML becomes, before anyone asks what its keys mean. Every part remembers
// where it stands, so that each later error can say so. No YAML library here: yaml_parse.cpp and
// yaml_emit.cpp are behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pare {

// What a piece of text was read from.
struct TreeSource {
  std::string name;    // "recipe.yaml", "builtin/int8", "--set": how errors name it
  std::string folder;  // prefix that makes its relative paths relative to the main recipe; often ""
  bool has_lines = true;
};

struct Place {
  std::shared_ptr<const TreeSource> source;
  int line = 0, column = 0;  // from 1; the column counts bytes
};
std::string to_string(const Place& place);  // "recipe.yaml:3:5"; without lines only the name

struct TreeMember;

struct TreeNode {
  enum class Kind : std::uint8_t { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // "12" in quotes is never a number
  Place place;
  std::vector<TreeNode> items;      // of a list
  std::vector<TreeMember> members;  // of a map, in the order of the text; keys are unique

  static TreeNode scalar(std::string text, bool quoted = false);
  static TreeNode list();
  static TreeNode map();

  const TreeNode* find(std::string_view key) const;  // nullptr when there is none, or this is no map
  TreeNode* find(std::string_view key);
  TreeNode& add(std::string key, TreeNode value);  // appends a member to a map
};

struct TreeMember {
  std::string key;
  Place place;
  TreeNode value;
};

const char* kind_name(const TreeNode& node);  // "a mapping", "a list", "a value", "nothing"

// One YAML document, which must be a mapping unless `any_kind`. Errors, all kUsage with where = the place:
// syntax; a key twice in one mapping; anchors, aliases, merge keys and tags (use `extends`); nesting deeper
// than limits::kMaxYamlDepth; more than 100,000 parts; a second document; a key that is no plain text.
TreeNode parse_yaml(std::string_view text, std::shared_ptr<const TreeSource> source, bool any_kind = false);

// Canonical YAML: the same tree gives the same bytes. Block style, two spaces a level, lists of scalars and
// empty containers in one line, quotes only where plain text would read back as something else.
std::string emit_yaml(const TreeNode& node);

// What `over` says wins; mappings are merged key by key, lists and values replaced whole.
void merge_tree(TreeNode& base, TreeNode over);

// Sets the part at "evaluate.gates.0.max" (list items by index; one past the end appends), making mappings
// on the way. Error kUsage when a step goes through a scalar or past the end of a list.
void set_tree(TreeNode& root, const std::string& path, TreeNode value);

}  // namespace pare
