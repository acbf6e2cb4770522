#include "recipes/grammar/tree.h"

#include <charconv>

#include "engine/base/error.h"

namespace pare {

std::string to_string(const Place& place) {
  if (place.source == nullptr) return "";
  if (!place.source->has_lines || place.line <= 0) return place.source->name;
  return fmt::format("{}:{}:{}", place.source->name, place.line, place.column);
}

TreeNode TreeNode::scalar(std::string text, bool quoted) {
  TreeNode node;
  node.kind = Kind::kScalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

TreeNode TreeNode::list() {
  TreeNode node;
  node.kind = Kind::kList;
  return node;
}

TreeNode TreeNode::map() {
  TreeNode node;
  node.kind = Kind::kMap;
  return node;
}

const TreeNode* TreeNode::find(std::string_view key) const {
  for (const TreeMember& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}

TreeNode* TreeNode::find(std::string_view key) {
  return const_cast<TreeNode*>(static_cast<const TreeNode*>(this)->find(key));
}

TreeNode& TreeNode::add(std::string key, TreeNode value) {
  TreeMember member;
  member.key = std::move(key);
  member.place = value.place;
  member.value = std::move(value);
  members.push_back(std::move(member));
  return members.back().value;
}

const char* kind_name(const TreeNode& node) {
  switch (node.kind) {
    case TreeNode::Kind::kMap:
      return "a mapping";
    case TreeNode::Kind::kList:
      return "a list";
    case TreeNode::Kind::kScalar:
      return "a single value";
    default:
      return "nothing";
  }
}

void merge_tree(TreeNode& base, TreeNode over) {
  if (base.kind != TreeNode::Kind::kMap || over.kind != TreeNode::Kind::kMap) {
    base = std::move(over);
    return;
  }
  base.place = over.place;
  for (TreeMember& member : over.members) {
    if (TreeNode* mine = base.find(member.key))
      merge_tree(*mine, std::move(member.value));
    else
      base.members.push_back(std::move(member));
  }
}

namespace {

bool list_index(const std::string& step, std::size_t& index) {
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
  return error == std::errc() && end == step.data() + step.size();
}

// The part that `step` names below `node`, made when it is missing.
TreeNode& descend(TreeNode& node, const std::string& step, const std::string& path, const Place& place) {
  if (node.kind == TreeNode::Kind::kNull) node.kind = TreeNode::Kind::kMap;
  if (node.kind == TreeNode::Kind::kScalar)
    throw make_error(ErrorCode::kUsage, "'{}' goes through the single value '{}'", path, node.text)
        .at("--set " + path)
        .hint("`pare recipe show` prints the keys that there are");
  if (node.kind == TreeNode::Kind::kMap) {
    if (TreeNode* found = node.find(step)) return *found;
    TreeNode made;
    made.place = place;
    return node.add(step, std::move(made));
  }
  std::size_t index = 0;
  if (!list_index(step, index) || index > node.items.size())
    throw make_error(ErrorCode::kUsage, "'{}' of '{}' is no index into a list of {} items", step, path,
                     node.items.size())
        .at("--set " + path)
        .hint("indices count from 0; one past the end appends");
  if (index == node.items.size()) {
    node.items.emplace_back();
    node.items.back().place = place;
  }
  return node.items[index];
}

}  // namespace

void set_tree(TreeNode& root, const std::string& path, TreeNode value) {
  TreeNode* at = &root;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = path.find('.', begin);
    const std::string step = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    if (step.empty())
      throw make_error(ErrorCode::kUsage, "'{}' is no path of keys", path)
          .at("--set " + path)
          .hint("write it as a.b.0.c=value");
    at = &descend(*at, step, path, value.place);
    if (dot == std::string::npos) break;
    begin = dot + 1;
  }
  *at = std::move(value);
}

}  // namespace pare
