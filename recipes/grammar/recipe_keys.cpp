#include "recipes/grammar/recipe_keys.h"

#include "engine/base/error.h"
#include "recipes/grammar/fields.h"

namespace pare {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

template <typename T>
std::string list_text(const std::vector<T>& values) {
  std::vector<std::string> words;
  for (const T& value : values) words.push_back(number_text(static_cast<double>(value)));
  return joined(words);
}

class KeyList final : public Fields {
 public:
  KeyList(std::vector<RecipeKey>& keys, std::string prefix) : keys_(keys), prefix_(std::move(prefix)) {}

  void text(const Field& f, std::string& value) override { add(f, "text", value); }
  void integer(const Field& f, std::int64_t& value) override { add(f, "integer", fmt::format("{}", value)); }
  void number(const Field& f, double& value) override { add(f, "number", number_text(value)); }
  void boolean(const Field& f, bool& value) override { add(f, "boolean", value ? "true" : "false"); }
  void maybe_number(const Field& f, std::optional<double>& value) override {
    add(f, "number", value ? number_text(*value) : "");
  }
  void maybe_integer(const Field& f, std::optional<std::int64_t>& value) override {
    add(f, "integer", value ? fmt::format("{}", *value) : "");
  }
  void maybe_boolean(const Field& f, std::optional<bool>& value) override {
    add(f, "boolean", value ? (*value ? "true" : "false") : "");
  }
  void texts(const Field& f, std::vector<std::string>& value) override {
    add(f, "list of text", joined(value));
  }
  void numbers(const Field& f, std::vector<double>& value) override {
    add(f, "list of numbers", list_text(value));
  }
  void integers(const Field& f, std::vector<std::int64_t>& value) override {
    add(f, "list of integers", list_text(value));
  }
  void text_map(const Field& f, std::map<std::string, std::string>&) override {
    add(f, "mapping of names to text", "");
  }
  void section(const Field& f, bool&, const Body& body) override {
    add(f, "mapping", "");
    KeyList inner(keys_, prefix_ + f.key + ".");
    body(inner);
  }
  void list(const Field& f, std::size_t, const std::function<void(std::size_t)>& resize,
            const std::function<void(Fields&, std::size_t)>& item) override {
    add(f, "list of mappings", "");
    resize(1);  // so that there is an item to describe
    KeyList inner(keys_, prefix_ + f.key + "[].");
    item(inner, 0);
  }
  void named(const Field& f, const std::vector<std::string>&,
             const std::function<void(Fields&, const std::string&)>& item) override {
    add(f, "mapping of names to mappings", "");
    KeyList inner(keys_, prefix_ + f.key + ".NAME.");
    item(inner, "NAME");
  }

 private:
  static std::string limits_text(const Field& f) {
    const bool least = f.min > -1e300, most = f.max < 1e300;
    // A limit that nobody meets guards against nonsense and says nothing.
    const bool useful = most && f.max <= 65536;
    if (least && f.min == f.max) return number_text(f.min);
    if (least && useful) return fmt::format("{} to {}", number_text(f.min), number_text(f.max));
    if (least) return fmt::format("at least {}", number_text(f.min));
    return useful ? fmt::format("at most {}", number_text(f.max)) : "";
  }
  void add(const Field& f, const char* type, std::string fallback) {
    RecipeKey key;
    key.path = prefix_ + f.key;
    key.type = type;
    key.choices.assign(f.choices.begin(), f.choices.end());
    key.limits = limits_text(f);
    if (!f.required) key.fallback = std::move(fallback);
    key.doc = f.doc;
    key.required = f.required;
    keys_.push_back(std::move(key));
  }

  std::vector<RecipeKey>& keys_;
  std::string prefix_;
};

}  // namespace

std::vector<RecipeKey> recipe_keys() {
  std::vector<RecipeKey> keys;
  KeyList list(keys, "");
  Recipe recipe;
  describe(list, recipe);
  return keys;
}

std::vector<std::string> recipe_choices(const std::string& path) {
  for (RecipeKey& key : recipe_keys())
    if (key.path == path) return std::move(key.choices);
  fail(ErrorCode::kInternal, "there is no recipe key '{}'", path);
}

}  // namespace pare
