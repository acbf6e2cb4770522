// Values of a template, with the meaning that Python and Jinja give them: what is true, what equals what, how
// something looks as text. Lists, dicts and texts are shared and never change; only namespaces do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_fwd.h"

namespace pare::jinja {

struct Node;
struct Scope;
class Value;
using List = std::vector<Value>;

// Keys are texts, in the order in which they came.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  const Value* find(const std::string& key) const;
  void set(const std::string& key, Value value);
};

struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  std::int64_t depth = 1;
};

struct Macro {
  const Node* node = nullptr;
  std::weak_ptr<Scope> scope;  // in which it was defined
};

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kGenerator,  // what filters such as map give: always true, and gone once it was walked
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,  // of the template's surroundings, by name
  kMethod     // by name, with its object
};

class Value {
 public:
  Kind kind = Kind::kUndefined;
  std::int64_t number = 0;  // kBool, kInt
  double real = 0;
  std::shared_ptr<const std::string> text_;  // kText; kUndefined: why; kFunction, kMethod: its name
  std::shared_ptr<List> list;                // kList, kTuple, kGenerator; kMethod: its object
  std::shared_ptr<Dict> dict;                // kDict, kNamespace
  std::shared_ptr<const Loop> loop;
  std::shared_ptr<const Macro> macro;

  static Value undefined(std::string why);
  static Value none();
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value floating(double value);
  static Value text(std::string value);
  static Value of(Kind kind, List items);  // kList, kTuple, kGenerator
  static Value of(Dict dict);
  static Value function(std::string name);
  static Value method(Value object, std::string name);

  bool is(Kind k) const { return kind == k; }
  bool is_number() const { return is(Kind::kInt) || is(Kind::kFloat) || is(Kind::kBool); }
  bool is_whole() const { return is(Kind::kInt) || is(Kind::kBool); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }
  double as_double() const { return is(Kind::kFloat) ? real : static_cast<double>(number); }
  const std::string& str() const;  // "" when there is none
};

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// < 0, 0, > 0; `ordered` false when Python would not compare the two.
int compare(const Value& a, const Value& b, bool& ordered);

std::string type_name(const Value& value);  // "str", "NoneType": as Python says it
std::string to_text(const Value& value);    // str(value)
std::string repr(const Value& value);

// As json.dumps of Python writes it. Error kUsage for what JSON has no form for.
struct JsonStyle {
  std::int64_t indent = -1;  // -1: one line
  std::string item = ", ", key = ": ";
  bool ascii = false, sorted = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

Value from_json(const Json& json);  // Error kUnsupported: whole numbers beyond 64 bits

}  // namespace pare::jinja
