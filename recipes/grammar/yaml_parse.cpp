// The only file that includes the YAML library. It is driven by events rather than by its own tree, because
// events tell quoted from plain scalars and can be refused before anything is expanded.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "recipes/grammar/tree.h"

namespace pare {
namespace {

constexpr std::size_t kMaxParts = 100'000;  // keys and values of one recipe

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<const TreeSource> source) : source_(std::move(source)) {}

  TreeNode take() { return std::move(root_); }
  Place place(const YAML::Mark& mark) const {
    return {source_, mark.line < 0 ? 1 : mark.line + 1, mark.column < 0 ? 1 : mark.column + 1};
  }
  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what, const std::string& hint) const {
    throw make_error(ErrorCode::kUsage, "{}", what).at(to_string(place(mark))).hint(hint);
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    no_anchor(mark, anchor);
    TreeNode node;
    node.place = place(mark);
    add(mark, std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not supported in recipes", "write the value out, or use extends");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    no_anchor(mark, anchor);
    no_tag(mark, tag);
    if (value.find('\0') != std::string::npos)
      refuse(mark, "a zero byte in a value", "is it the right file?");
    const bool quoted = tag == "!";
    TreeNode node = TreeNode::scalar(value, quoted);
    if (!quoted && (value.empty() || value == "~" || value == "null")) node = TreeNode();
    node.place = place(mark);
    if (!open_.empty() && open_.back().node.kind == TreeNode::Kind::kMap && !open_.back().has_key)
      return take_key(mark, value);
    add(mark, std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(mark, tag, anchor, TreeNode::list());
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(mark, tag, anchor, TreeNode::map());
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    TreeNode node;
    YAML::Mark mark;
    std::string key;
    Place key_place;
    bool has_key = false;
    std::unordered_set<std::string> keys;
  };

  void no_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0)
      refuse(mark, "anchors (&name) are not supported in recipes", "write the value out, or use extends");
  }
  void no_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      refuse(mark, fmt::format("tags ({}) are not supported in recipes", tag), "leave the tag out");
  }
  void count_part(const YAML::Mark& mark) {
    if (++parts_ > kMaxParts)
      refuse(mark, fmt::format("more than {} keys and values", kMaxParts), "is it the right file?");
  }

  void take_key(const YAML::Mark& mark, const std::string& key) {
    count_part(mark);
    Open& open = open_.back();
    if (key == "<<")
      refuse(mark, "merge keys (<<) are not supported in recipes", "use `extends: OTHER.yaml`");
    if (key.empty()) refuse(mark, "an empty key", "give the key a name");
    if (!open.keys.insert(key).second)
      refuse(mark, fmt::format("key '{}' stands here twice", key), "keep one of the two");
    open.key = key;
    open.key_place = place(mark);
    open.has_key = true;
  }
  void start(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, TreeNode node) {
    no_anchor(mark, anchor);
    no_tag(mark, tag);
    if (!open_.empty() && open_.back().node.kind == TreeNode::Kind::kMap && !open_.back().has_key)
      refuse(mark, "a key must be plain text", "a line is KEY: VALUE; lists and mappings are values only");
    if (open_.size() >= limits::kMaxYamlDepth)
      refuse(mark, fmt::format("nested deeper than {} levels", limits::kMaxYamlDepth),
             "is it the right file?");
    node.place = place(mark);
    open_.emplace_back();
    open_.back().node = std::move(node);
    open_.back().mark = mark;
  }
  void close() {
    PARE_ASSERT(!open_.empty());
    TreeNode node = std::move(open_.back().node);
    const YAML::Mark mark = open_.back().mark;
    open_.pop_back();
    add(mark, std::move(node));
  }
  void add(const YAML::Mark& mark, TreeNode node) {
    count_part(mark);
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& open = open_.back();
    if (open.node.kind == TreeNode::Kind::kList) {
      open.node.items.push_back(std::move(node));
      return;
    }
    if (!open.has_key)
      refuse(mark, "a key must be plain text", "a line is KEY: VALUE; lists and mappings are values only");
    TreeMember member;
    member.key = std::move(open.key);
    member.place = open.key_place;
    // Nothing has no place of its own: the parser gives the next line's.
    if (node.kind == TreeNode::Kind::kNull) node.place = open.key_place;
    member.value = std::move(node);
    open.node.members.push_back(std::move(member));
    open.has_key = false;
  }

  std::shared_ptr<const TreeSource> source_;
  TreeNode root_;
  std::vector<Open> open_;
  std::size_t parts_ = 0;
};

}  // namespace

TreeNode parse_yaml(std::string_view text, std::shared_ptr<const TreeSource> source, bool any_kind) {
  if (text.size() > limits::kMaxRecipeBytes)
    throw make_error(ErrorCode::kUsage, "{} bytes, more than the {} that a recipe may have", text.size(),
                     limits::kMaxRecipeBytes)
        .at(source->name)
        .hint("is it the right file?");
  TreeBuilder builder(source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder) && !any_kind)
      throw make_error(ErrorCode::kUsage, "the recipe is empty")
          .at(source->name)
          .hint("`pare recipe init` writes one to start from");
    TreeBuilder rest(source);
    if (parser.HandleNextDocument(rest))
      throw make_error(ErrorCode::kUsage, "a second YAML document")
          .at(source->name)
          .hint("one recipe a file");
  } catch (const YAML::Exception& error) {
    throw make_error(ErrorCode::kUsage, "invalid YAML: {}", error.msg)
        .at(to_string(builder.place(error.mark)))
        .hint("look at the indentation, and at colons and brackets of this line and the one above");
  }
  TreeNode root = builder.take();
  if (!any_kind && root.kind != TreeNode::Kind::kMap)
    throw make_error(ErrorCode::kUsage, "a recipe is a mapping, but this is {}", kind_name(root))
        .at(to_string(root.place))
        .hint("start with `version: 1`");
  return root;
}

}  // namespace pare
