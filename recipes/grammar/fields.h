// One description of the grammar, walked by several visitors: reading (read_fields.cpp), writing canonical
// text (write_fields.cpp), the JSON schema (schema.cpp). A key exists exactly when describe() names it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recipes/grammar/recipe.h"

namespace pare {

struct Field {
  const char* key;
  const char* doc;
  std::vector<const char*> choices = {};  // of a text, or of each text of a list; empty: any
  bool required = false;
  bool path = false;  // a file or folder, relative to the recipe
  double min = -1e300, max = 1e300;
};

class Fields {
 public:
  virtual ~Fields() = default;

  virtual void text(const Field& field, std::string& value) = 0;  // "" = absent
  virtual void integer(const Field& field, std::int64_t& value) = 0;
  virtual void number(const Field& field, double& value) = 0;  // also "1/255"
  virtual void boolean(const Field& field, bool& value) = 0;
  virtual void maybe_number(const Field& field, std::optional<double>& value) = 0;
  virtual void maybe_integer(const Field& field, std::optional<std::int64_t>& value) = 0;
  virtual void maybe_boolean(const Field& field, std::optional<bool>& value) = 0;
  virtual void texts(const Field& field, std::vector<std::string>& value) = 0;  // one text is a list of one
  virtual void numbers(const Field& field, std::vector<double>& value) = 0;
  virtual void integers(const Field& field, std::vector<std::int64_t>& value) = 0;
  virtual void text_map(const Field& field, std::map<std::string, std::string>& value) = 0;

  using Body = std::function<void(Fields&)>;
  // A mapping. `present` says whether it is there: set by readers, asked by writers.
  virtual void section(const Field& field, bool& present, const Body& body) = 0;
  // A list of mappings: resize() gives it n items, then item(fields, i) describes each.
  virtual void list(const Field& field, std::size_t size, const std::function<void(std::size_t)>& resize,
                    const std::function<void(Fields&, std::size_t)>& item) = 0;
  // A mapping from names that the user chooses to mappings.
  virtual void named(const Field& field, const std::vector<std::string>& names,
                     const std::function<void(Fields&, const std::string&)>& item) = 0;

  template <typename T>
  void maybe_section(const Field& field, std::optional<T>& value, void (*describe)(Fields&, T&)) {
    bool present = value.has_value();
    T inside = value.value_or(T());
    section(field, present, [&](Fields& f) { describe(f, inside); });
    if (present)
      value = std::move(inside);
    else
      value.reset();
  }
};

void describe(Fields& f, Recipe& recipe);
void describe_dataset(Fields& f, DatasetEntry& entry);  // also a data set file of --data

// --- visitors

struct TreeNode;
class Mistakes;
// Fills what `body` describes from a mapping. Mistakes, kUsage with the place: unknown keys (with a
// suggestion), wrong types, values outside their choices or limits, required keys that are missing. What is
// wrong keeps its value. Throws only when `node` is no mapping. `partial`: keys may stand in a base that
// could not be read, so none is missing.
void read_fields(const TreeNode& node, const std::string& what, const Fields::Body& body, Mistakes& mistakes,
                 bool partial = false);
// The mapping with every value that is not empty; `path` (may be empty) changes the paths in it.
using ChangePath = std::function<std::string(const std::string& key, const std::string& path)>;
TreeNode write_fields(const Fields::Body& body, const ChangePath& path = {});

// "0.5", "1/255", "-3e-2". False when it is no finite number.
bool number_from_text(const std::string& text, double& value);
// The shortest text that reads back as the same double: "0.0039215686274509803", "512".
std::string number_text(double value);

// The name of a place where the given key stands: for checks that follow reading. `path` as in set_tree.
std::string place_of(const TreeNode& root, const std::string& path);

}  // namespace pare
