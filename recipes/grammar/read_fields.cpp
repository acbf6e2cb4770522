#include <charconv>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "recipes/grammar/fields.h"
#include "recipes/grammar/mistakes.h"
#include "recipes/grammar/tree.h"

namespace pare {

namespace {

bool parse_plain_number(std::string_view text, double& value) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

std::string choice_list(const std::vector<const char*>& choices) {
  std::string out;
  for (const char* choice : choices) out += (out.empty() ? "" : ", ") + std::string(choice);
  return out;
}

// "did you mean 'x'?" or, when nothing is near, the list.
std::string suggestion(const std::string& word, const std::vector<const char*>& known) {
  const std::string near = nearest_word(word, known.data(), known.size());
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  return known.empty() ? "" : "known: " + choice_list(known);
}

// A choice "percentile(...)" takes any text of that form; whoever uses it reads the argument.
bool is_choice(const std::string& text, const std::vector<const char*>& choices) {
  for (const char* choice : choices) {
    const std::string c = choice;
    if (text == c) return true;
    const std::size_t dots = c.find("(...)");
    if (dots == std::string::npos) continue;
    if (text.compare(0, dots + 1, c, 0, dots + 1) == 0 && text.back() == ')') return true;
  }
  return choices.empty();
}

// Collects the keys that a description names; values are not touched.
class KeyList final : public Fields {
 public:
  std::vector<const char*> keys;

  void text(const Field& f, std::string&) override { keys.push_back(f.key); }
  void integer(const Field& f, std::int64_t&) override { keys.push_back(f.key); }
  void number(const Field& f, double&) override { keys.push_back(f.key); }
  void boolean(const Field& f, bool&) override { keys.push_back(f.key); }
  void maybe_number(const Field& f, std::optional<double>&) override { keys.push_back(f.key); }
  void maybe_integer(const Field& f, std::optional<std::int64_t>&) override { keys.push_back(f.key); }
  void maybe_boolean(const Field& f, std::optional<bool>&) override { keys.push_back(f.key); }
  void texts(const Field& f, std::vector<std::string>&) override { keys.push_back(f.key); }
  void numbers(const Field& f, std::vector<double>&) override { keys.push_back(f.key); }
  void integers(const Field& f, std::vector<std::int64_t>&) override { keys.push_back(f.key); }
  void text_map(const Field& f, std::map<std::string, std::string>&) override { keys.push_back(f.key); }
  void section(const Field& f, bool&, const Body&) override { keys.push_back(f.key); }
  void list(const Field& f, std::size_t, const std::function<void(std::size_t)>&,
            const std::function<void(Fields&, std::size_t)>&) override {
    keys.push_back(f.key);
  }
  void named(const Field& f, const std::vector<std::string>&,
             const std::function<void(Fields&, const std::string&)>&) override {
    keys.push_back(f.key);
  }
};

class Reader final : public Fields {
 public:
  Reader(const TreeNode& node, std::string what, Mistakes& mistakes, bool partial)
      : node_(node), what_(std::move(what)), mistakes_(mistakes), partial_(partial) {}

  void check_kind(const Body& body) const {
    if (node_.kind == TreeNode::Kind::kMap || node_.kind == TreeNode::Kind::kNull) return;
    KeyList known;
    body(known);
    // `model: my.onnx` is meant as `model: {path: my.onnx}`.
    std::string example = choice_list(known.keys);
    if (node_.kind == TreeNode::Kind::kScalar && !known.keys.empty())
      example = fmt::format("{{{}: {}}}; keys: {}", known.keys[0], node_.text, example);
    throw make_error(ErrorCode::kUsage, "{} is a mapping of keys, but this is {}", what_, kind_name(node_))
        .at(to_string(node_.place))
        .hint((node_.kind == TreeNode::Kind::kScalar ? "for example " : "keys: ") + example);
  }

  void check_keys(const Body& body) {
    KeyList known;
    body(known);
    for (const TreeMember& member : node_.members) {
      bool found = false;
      for (const char* key : known.keys) found = found || member.key == key;
      unknown_ = unknown_ || !found;
      if (!found)
        mistakes_.add(make_error(ErrorCode::kUsage, "unknown key '{}' in {}", member.key, what_)
                          .at(to_string(member.place))
                          .hint(suggestion(member.key, known.keys)));
    }
  }

  void text(const Field& f, std::string& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = scalar(f, *node, "a text");
    });
  }

  void integer(const Field& f, std::int64_t& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = to_integer(f, *node);
    });
  }

  void number(const Field& f, double& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = to_number(f, *node);
    });
  }

  void boolean(const Field& f, bool& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = to_boolean(f, *node);
    });
  }

  void maybe_number(const Field& f, std::optional<double>& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = to_number(f, *node);
    });
  }

  void maybe_integer(const Field& f, std::optional<std::int64_t>& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = to_integer(f, *node);
    });
  }

  void maybe_boolean(const Field& f, std::optional<bool>& value) override {
    mistakes_.collect([&] {
      if (const TreeNode* node = find(f)) value = to_boolean(f, *node);
    });
  }

  void texts(const Field& f, std::vector<std::string>& value) override {
    const TreeNode* node = found(f);
    if (node == nullptr) return;
    value.clear();
    for (const TreeNode* item : items(*node))
      mistakes_.collect([&] { value.push_back(scalar(f, *item, "a text or a list of texts")); });
  }

  void numbers(const Field& f, std::vector<double>& value) override {
    const TreeNode* node = found(f);
    if (node == nullptr) return;
    value.clear();
    for (const TreeNode* item : items(*node))
      mistakes_.collect([&] { value.push_back(to_number(f, *item)); });
  }

  void integers(const Field& f, std::vector<std::int64_t>& value) override {
    const TreeNode* node = found(f);
    if (node == nullptr) return;
    value.clear();
    for (const TreeNode* item : items(*node))
      mistakes_.collect([&] { value.push_back(to_integer(f, *item)); });
  }

  void text_map(const Field& f, std::map<std::string, std::string>& value) override {
    const TreeNode* node = found(f, TreeNode::Kind::kMap, "a mapping");
    if (node == nullptr) return;
    value.clear();
    for (const TreeMember& member : node->members)
      mistakes_.collect([&] { value[member.key] = scalar(f, member.value, "a text"); });
  }

  void section(const Field& f, bool& present, const Body& body) override {
    const TreeNode* node = found(f);
    present = node != nullptr;
    if (present) read_part(*node, fmt::format("'{}'", f.key), body);
  }

  void list(const Field& f, std::size_t, const std::function<void(std::size_t)>& resize,
            const std::function<void(Fields&, std::size_t)>& item) override {
    const TreeNode* node = found(f, TreeNode::Kind::kList, "a list");
    if (node == nullptr) return;
    resize(node->items.size());
    for (std::size_t i = 0; i < node->items.size(); ++i)
      read_part(node->items[i], fmt::format("item {} of '{}'", i, f.key),
                [&](Fields& fields) { item(fields, i); });
  }

  void named(const Field& f, const std::vector<std::string>&,
             const std::function<void(Fields&, const std::string&)>& item) override {
    const TreeNode* node = found(f, TreeNode::Kind::kMap, "a mapping from names to mappings");
    if (node == nullptr) return;
    for (const TreeMember& member : node->members)
      read_part(member.value, fmt::format("'{}.{}'", f.key, member.key),
                [&](Fields& fields) { item(fields, member.key); });
  }

 private:
  template <typename... Args>
  [[noreturn]] static void refuse(const Place& place, fmt::format_string<Args...> format, Args&&... args) {
    throw make_error(ErrorCode::kUsage, format, std::forward<Args>(args)...)
        .at(to_string(place))
        .hint("`pare recipe show` prints a recipe with every key; docs/reference.md says what each takes");
  }
  [[noreturn]] static void wrong(const Field& f, const TreeNode& node, const char* wanted) {
    if (node.kind == TreeNode::Kind::kScalar)
      throw make_error(ErrorCode::kUsage, "'{}' must be {}, not '{}'", f.key, wanted, node.text)
          .at(to_string(node.place))
          .hint(number_hint(f, node));
    refuse(node.place, "'{}' must be {}, not {}", f.key, wanted, kind_name(node));
  }

  [[noreturn]] void lacks(const Field& f) const {
    Error error = make_error(ErrorCode::kUsage, "{} needs the key '{}' ({})", what_, f.key, f.doc);
    const std::string place = to_string(node_.place);
    error.at(place);
    // Those that are compiled in are what others start from.
    if (place.rfind("builtin/", 0) != 0)
      error.hint(fmt::format("add '{}:' there", f.key));
    else
      error.hint(fmt::format(
          "`pare recipe init FILE --model MODEL --extends {}` writes a recipe that starts from it",
          place.substr(0, place.find(':'))));
    throw error;
  }

  const TreeNode* find(const Field& f) const {
    const TreeNode* node = node_.find(f.key);
    if (node == nullptr) {
      if (f.required && !unknown_ && !partial_) lacks(f);
      return nullptr;
    }
    if (node->kind != TreeNode::Kind::kNull) return node;
    refuse(node->place, "'{}' has no value", f.key);
  }

  // What a text that should be a number may have meant.
  static std::string number_hint(const Field& f, const TreeNode& node) {
    double value = 0;
    if (number_from_text(node.text, value)) return node.quoted ? "leave the quotes out" : meaning(f);
    if (!node.text.empty() && node.text.back() == '%' &&
        number_from_text(node.text.substr(0, node.text.size() - 1), value))
      return fmt::format("shares are fractions: {}", value / 100);
    return meaning(f);
  }
  static std::string meaning(const Field& f) { return fmt::format("{}: {}", f.key, f.doc); }

  // find(), with a mistake noted instead of thrown: nullptr then too.
  const TreeNode* found(const Field& f) const {
    const TreeNode* node = nullptr;
    mistakes_.collect([&] { node = find(f); });
    return node;
  }
  const TreeNode* found(const Field& f, TreeNode::Kind kind, const char* wanted) const {
    const TreeNode* node = nullptr;
    mistakes_.collect([&] {
      const TreeNode* any = find(f);
      if (any != nullptr && any->kind != kind) wrong(f, *any, wanted);
      node = any;
    });
    return node;
  }

  void read_part(const TreeNode& node, const std::string& what, const Body& body) const {
    mistakes_.collect([&] { read_fields(node, what, body, mistakes_, partial_); });
  }

  static std::vector<const TreeNode*> items(const TreeNode& node) {
    if (node.kind != TreeNode::Kind::kList) return {&node};
    std::vector<const TreeNode*> out;
    for (const TreeNode& item : node.items) out.push_back(&item);
    return out;
  }

  static std::string scalar(const Field& f, const TreeNode& node, const char* wanted) {
    if (node.kind != TreeNode::Kind::kScalar) wrong(f, node, wanted);
    if (node.text.empty()) refuse(node.place, "'{}' is an empty text", f.key);
    if (!is_choice(node.text, f.choices))
      throw make_error(ErrorCode::kUsage, "'{}' cannot be '{}'", f.key, node.text)
          .at(to_string(node.place))
          .hint(suggestion(node.text, f.choices));
    if (!f.path || node.place.source == nullptr || node.place.source->folder.empty()) return node.text;
    return join_path(node.place.source->folder, node.text);
  }

  static double to_number(const Field& f, const TreeNode& node) {
    double value = 0;
    if (node.kind != TreeNode::Kind::kScalar || node.quoted || !number_from_text(node.text, value))
      wrong(f, node, "a number");
    check_limits(f, node, value);
    return value;
  }

  static std::int64_t to_integer(const Field& f, const TreeNode& node) {
    std::int64_t value = 0;
    const char* end = node.text.data() + node.text.size();
    const auto result = std::from_chars(node.text.data(), end, value);
    if (node.kind != TreeNode::Kind::kScalar || node.quoted || result.ec != std::errc() || result.ptr != end)
      wrong(f, node, "a whole number");
    check_limits(f, node, static_cast<double>(value));
    return value;
  }

  static bool to_boolean(const Field& f, const TreeNode& node) {
    if (node.kind != TreeNode::Kind::kScalar || node.quoted || (node.text != "true" && node.text != "false"))
      wrong(f, node, "true or false");
    return node.text == "true";
  }

  static void check_limits(const Field& f, const TreeNode& node, double value) {
    if (value < f.min) refuse(node.place, "'{}' is {}, below its least value {}", f.key, node.text, f.min);
    if (value > f.max) refuse(node.place, "'{}' is {}, above its largest value {}", f.key, node.text, f.max);
  }

  const TreeNode& node_;
  std::string what_;
  Mistakes& mistakes_;
  bool partial_;
  bool unknown_ = false;  // some key has no meaning: perhaps one that is required, misspelt
};

}  // namespace

void read_fields(const TreeNode& node, const std::string& what, const Fields::Body& body, Mistakes& mistakes,
                 bool partial) {
  Reader reader(node, what, mistakes, partial);
  reader.check_kind(body);
  reader.check_keys(body);
  body(reader);
}

bool number_from_text(const std::string& text, double& value) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return parse_plain_number(text, value);
  double above = 0, below = 0;
  if (!parse_plain_number(std::string_view(text).substr(0, slash), above) ||
      !parse_plain_number(std::string_view(text).substr(slash + 1), below) || below == 0)
    return false;
  value = above / below;
  return std::isfinite(value);
}

}  // namespace pare
