#include "recipes/grammar/schema.h"

#include "engine/base/json.h"
#include "recipes/grammar/fields.h"

namespace pare {
namespace {

class SchemaWriter final : public Fields {
 public:
  Json take(const char* doc = nullptr) {
    Json schema = {{"type", "object"}};
    if (doc != nullptr) schema["description"] = doc;
    schema["properties"] = std::move(properties_);
    if (!required_.empty()) schema["required"] = std::move(required_);
    schema["additionalProperties"] = false;
    return schema;
  }

  void text(const Field& f, std::string&) override { add(f, text_type(f)); }
  void integer(const Field& f, std::int64_t&) override { add(f, limited(f, {{"type", "integer"}})); }
  void number(const Field& f, double&) override { add(f, number_type(f)); }
  void boolean(const Field& f, bool&) override { add(f, {{"type", "boolean"}}); }
  void maybe_number(const Field& f, std::optional<double>&) override { add(f, number_type(f)); }
  void maybe_integer(const Field& f, std::optional<std::int64_t>&) override {
    add(f, limited(f, {{"type", "integer"}}));
  }
  void maybe_boolean(const Field& f, std::optional<bool>&) override { add(f, {{"type", "boolean"}}); }
  void texts(const Field& f, std::vector<std::string>&) override { add(f, one_or_list(text_type(f))); }
  void numbers(const Field& f, std::vector<double>&) override { add(f, one_or_list(number_type(f))); }
  void integers(const Field& f, std::vector<std::int64_t>&) override {
    add(f, one_or_list(limited(f, {{"type", "integer"}})));
  }
  void text_map(const Field& f, std::map<std::string, std::string>&) override {
    add(f, {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}});
  }
  void section(const Field& f, bool&, const Body& body) override { add(f, inner(body)); }
  void list(const Field& f, std::size_t, const std::function<void(std::size_t)>& resize,
            const std::function<void(Fields&, std::size_t)>& item) override {
    resize(1);  // so that there is an item to describe
    add(f, {{"type", "array"}, {"items", inner([&](Fields& fields) { item(fields, 0); })}});
  }
  void named(const Field& f, const std::vector<std::string>&,
             const std::function<void(Fields&, const std::string&)>& item) override {
    add(f,
        {{"type", "object"}, {"additionalProperties", inner([&](Fields& fields) { item(fields, "name"); })}});
  }

 private:
  static Json inner(const Body& body) {
    SchemaWriter writer;
    body(writer);
    return writer.take();
  }
  static Json text_type(const Field& f) {
    if (f.choices.empty()) return {{"type", "string"}};
    Json plain = Json::array(), any = Json::array();
    for (const char* choice : f.choices) {
      const std::string text = choice;
      const std::size_t dots = text.find("(...)");
      if (dots == std::string::npos)
        plain.push_back(text);
      else
        any.push_back({{"type", "string"}, {"pattern", "^" + text.substr(0, dots) + "\\(.*\\)$"}});
    }
    if (any.empty()) return {{"enum", plain}};
    any.insert(any.begin(), {{"enum", plain}});
    return {{"anyOf", any}};
  }
  static Json limited(const Field& f, Json type) {
    if (f.min > -1e300) type["minimum"] = f.min;
    if (f.max < 1e300) type["maximum"] = f.max;
    return type;
  }
  static Json number_type(const Field& f) {
    return {{"anyOf", Json::array({limited(f, {{"type", "number"}}),
                                   {{"type", "string"}, {"pattern", "^[-+0-9.eE]+/[-+0-9.eE]+$"}}})}};
  }
  static Json one_or_list(const Json& item) {
    return {{"anyOf", Json::array({item, {{"type", "array"}, {"items", item}}})}};
  }
  void add(const Field& f, Json type) {
    type["description"] = f.doc;
    properties_[f.key] = std::move(type);
    if (f.required) required_.push_back(f.key);
  }

  Json properties_ = Json::object();
  Json required_ = Json::array();
};

}  // namespace

std::string recipe_schema() {
  SchemaWriter writer;
  Recipe recipe;
  describe(writer, recipe);
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "pare recipe"}};
  schema.update(writer.take("what `pare run` does with one model"));
  return dump(schema, 2) + "\n";
}

}  // namespace pare
