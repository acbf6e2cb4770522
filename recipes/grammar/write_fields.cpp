#include <charconv>

#include "recipes/grammar/fields.h"
#include "recipes/grammar/tree.h"

namespace pare {

namespace {

class Writer final : public Fields {
 public:
  explicit Writer(const ChangePath& path) : path_(path) {}
  TreeNode take() { return std::move(node_); }

  void text(const Field& f, std::string& value) override {
    if (!value.empty())
      node_.add(f.key, TreeNode::scalar(f.path && path_ ? path_(f.key, value) : value, true));
  }
  void integer(const Field& f, std::int64_t& value) override {
    node_.add(f.key, TreeNode::scalar(std::to_string(value)));
  }
  void number(const Field& f, double& value) override {
    node_.add(f.key, TreeNode::scalar(number_text(value)));
  }
  void boolean(const Field& f, bool& value) override { add_boolean(f, value); }
  void maybe_number(const Field& f, std::optional<double>& value) override {
    if (value) node_.add(f.key, TreeNode::scalar(number_text(*value)));
  }
  void maybe_integer(const Field& f, std::optional<std::int64_t>& value) override {
    if (value) node_.add(f.key, TreeNode::scalar(std::to_string(*value)));
  }
  void maybe_boolean(const Field& f, std::optional<bool>& value) override {
    if (value) add_boolean(f, *value);
  }
  void texts(const Field& f, std::vector<std::string>& value) override {
    add_list(f, value, [](const std::string& text) { return TreeNode::scalar(text, true); });
  }
  void numbers(const Field& f, std::vector<double>& value) override {
    add_list(f, value, [](double number) { return TreeNode::scalar(number_text(number)); });
  }
  void integers(const Field& f, std::vector<std::int64_t>& value) override {
    add_list(f, value, [](std::int64_t number) { return TreeNode::scalar(std::to_string(number)); });
  }
  void text_map(const Field& f, std::map<std::string, std::string>& value) override {
    if (value.empty()) return;
    TreeNode map = TreeNode::map();
    for (const auto& [key, text] : value) map.add(key, TreeNode::scalar(text, true));
    node_.add(f.key, std::move(map));
  }
  void section(const Field& f, bool& present, const Body& body) override {
    if (!present) return;
    TreeNode inside = write_fields(body, path_);
    if (!inside.members.empty()) node_.add(f.key, std::move(inside));
  }
  void list(const Field& f, std::size_t size, const std::function<void(std::size_t)>&,
            const std::function<void(Fields&, std::size_t)>& item) override {
    if (size == 0) return;
    TreeNode list = TreeNode::list();
    for (std::size_t i = 0; i < size; ++i)
      list.items.push_back(write_fields([&](Fields& fields) { item(fields, i); }, path_));
    node_.add(f.key, std::move(list));
  }
  void named(const Field& f, const std::vector<std::string>& names,
             const std::function<void(Fields&, const std::string&)>& item) override {
    if (names.empty()) return;
    TreeNode map = TreeNode::map();
    for (const std::string& name : names)
      map.add(name, write_fields([&](Fields& fields) { item(fields, name); }, path_));
    node_.add(f.key, std::move(map));
  }

 private:
  void add_boolean(const Field& f, bool value) {
    node_.add(f.key, TreeNode::scalar(value ? "true" : "false"));
  }
  template <typename T, typename Make>
  void add_list(const Field& f, const std::vector<T>& values, Make make) {
    if (values.empty()) return;
    TreeNode list = TreeNode::list();
    for (const T& value : values) list.items.push_back(make(value));
    node_.add(f.key, std::move(list));
  }

  TreeNode node_ = TreeNode::map();
  const ChangePath& path_;
};

}  // namespace

TreeNode write_fields(const Fields::Body& body, const ChangePath& path) {
  Writer writer(path);
  body(writer);
  return writer.take();
}

std::string number_text(double value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, result.ptr);
}

}  // namespace pare
